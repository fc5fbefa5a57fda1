/** What a spawn does to a run that is there and has not started: gives it another start, or puts its input into it. */
import { admissions, type ReadAdmissionsParams, unstarted } from './admit-runs.ts'
import { defineStatement } from './statement.ts'
import { intoWindow, outOfWindow } from './window.ts'

export interface LockOccupantsParams {
  readonly environment: string
  /** Entries that runs of this request want. The arrays are parallel. */
  readonly tenants: readonly string[]
  readonly scopes: readonly string[]
  readonly tokens: readonly string[]
}

/**
 * Locks the runs that have not started and hold what others want, before anything else is locked: runs come before entries. Spawns that
 * change one run so queue up for it; a claim passes it over meanwhile.
 */
export const lockOccupants = defineStatement<LockOccupantsParams>(
  'lock_occupants',
  (s) => `
SELECT FROM ${s}.runs r
WHERE r.id = ANY (ARRAY(
    SELECT u.run_id FROM unnest($2::text[], $3::text[], $4::text[]) AS i(tenant, scope, token)
    CROSS JOIN LATERAL (
      SELECT x.run_id FROM ${s}.uniques x
      WHERE x.tenant = i.tenant AND x.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) AND x.scope = i.scope AND x.token = i.token LIMIT 1
    ) u))
  AND ${unstarted('r')}
ORDER BY r.id FOR NO KEY UPDATE
`,
  (p) => [p.environment, p.tenants, p.scopes, p.tokens],
)

/** Items that may change a run that is there, all with a receipt. The arrays are parallel. */
export interface MergeSpawnsParams extends ReadAdmissionsParams {
  readonly now: string | null
  readonly inputs: readonly (string | null)[]
  readonly states: readonly (string | null)[]
  readonly payloadBytes: readonly number[]
  readonly gates: readonly (string | null)[]
  readonly gateUnits: readonly (string | null)[]
  /** reschedule: milliseconds from now, or an instant as epoch milliseconds; both null: at once. */
  readonly delaysMs: readonly (number | null)[]
  readonly runAts: readonly (number | null)[]
  /** debounce: how long it waits anew, and how long after its spawn it starts at most. */
  readonly waitsMs: readonly (number | null)[]
  readonly maxMs: readonly (number | null)[]
  /** batch: items of one run at most. */
  readonly sizes: readonly (number | null)[]
  readonly maxPayloadBytes: number
  /** Whose room it is from now on is left in the outbox, since the transaction is a caller's: handing it over has to wait for others. */
  readonly leavesRoom: boolean
}

/**
 * Changes the runs that have what items of this request want, once each, and writes on the items' receipts what was done. After
 * `insertRuns`: an item may be merged into another of its own batch. Never waits, since entries are locked by now: a run that somebody
 * holds, or that is not any more as the snapshot has it (its row of the claim window would be missed), is left alone, and its items stay
 * undecided, which means that they are sent again. A list that is full, or has no room for an item, starts at once and holds its entry no
 * longer: what found no room begins the next one. Answers the gates whose room may have been handed to a run that has left the window.
 */
export const mergeSpawns = defineStatement<MergeSpawnsParams>(
  'merge_spawns',
  (s) => `
WITH clock AS (SELECT coalesce($12::timestamptz, now()) AS at),
admissions AS (${admissions(s)}),
open AS MATERIALIZED (
  SELECT a.ordinal, a.mode, a.occupant_id AS run_id, t.place AS receipt_place, m.input, m.state, m.bytes, m.gates, m.gate_units, m.wait_ms, m.max_ms, m.size,
    CASE WHEN a.mode = 'batch' THEN jsonb_array_length(m.input::jsonb) END AS items,
    coalesce(to_timestamp(m.run_at / 1000), clock.at + make_interval(secs => coalesce(m.delay_ms, 0) / 1000)) AS scheduled
  FROM admissions a
  JOIN unnest($13::text[], $14::text[], $15::int[], $16::text[], $17::text[], $18::float8[], $19::float8[], $20::float8[], $21::float8[], $22::int[])
    WITH ORDINALITY AS m(input, state, bytes, gates, gate_units, delay_ms, run_at, wait_ms, max_ms, size, ordinal) ON m.ordinal = a.ordinal
  CROSS JOIN clock
  CROSS JOIN LATERAL (
    SELECT x.ctid AS place FROM ${s}.receipts x
    WHERE x.tenant = a.tenant AND x.environment_id = a.environment_id AND x.key = a.receipt_key AND x.nonce = $2::uuid AND x.decision IS NULL LIMIT 1
  ) t
  WHERE a.own_id IS NULL AND a.occupant_is_unstarted
),
seen AS MATERIALIZED (SELECT r.id, r.ctid AS place FROM ${s}.runs r WHERE r.id = ANY (ARRAY(SELECT o.run_id FROM open o))),
held AS MATERIALIZED (
  SELECT r.id, r.ctid AS place, r.lane_id, r.losses, r.priority, r.available_at, r.timer_at, r.position, r.created_at, r.hold, r.blocked_on, r.gates AS stood_before, r.payload_bytes,
    CASE WHEN (SELECT bool_or(o.mode = 'batch') FROM open o WHERE o.run_id = r.id) THEN jsonb_array_length(r.input) END AS items
  FROM ${s}.runs r
  WHERE r.id = ANY (ARRAY(SELECT x.id FROM seen x)) AND ${unstarted('r')}
  FOR NO KEY UPDATE OF r SKIP LOCKED
),
fitted AS MATERIALIZED (
  SELECT o.*, h.items + sum(o.items) OVER w AS total,
    o.mode <> 'batch' OR h.items + sum(o.items) OVER w <= o.size AND h.payload_bytes + sum(o.bytes) OVER w <= $23::int AS fits
  FROM open o JOIN held h ON h.id = o.run_id JOIN seen x ON x.id = h.id AND x.place = h.place
  WINDOW w AS (PARTITION BY o.run_id ORDER BY o.ordinal)
),
sums AS (
  SELECT f.run_id, bool_or(NOT f.fits) AS overflows, coalesce(sum(f.bytes) FILTER (WHERE f.fits), 0)::int AS bytes, coalesce(max(f.total) FILTER (WHERE f.fits), 0) AS total
  FROM fitted f GROUP BY f.run_id
),
lasts AS (SELECT DISTINCT ON (f.run_id) f.* FROM fitted f ORDER BY f.run_id, f.fits DESC, f.ordinal DESC),
wanted AS (
  SELECT h.*, l.mode, l.input, l.state, l.gates, l.gate_units, n.bytes AS more_bytes, l.bytes,
    l.mode = 'batch' AND (n.overflows OR n.total >= l.size) AS is_full,
    CASE l.mode
      WHEN 'reschedule' THEN l.scheduled
      WHEN 'debounce' THEN least(clock.at + make_interval(secs => l.wait_ms / 1000), h.created_at + make_interval(secs => l.max_ms / 1000))
      ELSE CASE WHEN n.overflows OR n.total >= l.size THEN clock.at ELSE h.available_at END
    END AS start_at
  FROM held h JOIN sums n ON n.run_id = h.id JOIN lasts l ON l.run_id = h.id CROSS JOIN clock
),
moves AS MATERIALIZED (
  SELECT w.*, x.stays, w.timer_at IS NULL AND w.blocked_on IS NULL AND w.hold IS NULL AS was_ready,
    CASE WHEN x.stays THEN w.available_at ELSE greatest(w.start_at, clock.at) END AS new_available_at,
    CASE WHEN x.stays THEN w.timer_at WHEN w.start_at > clock.at THEN w.start_at END AS new_timer_at,
    CASE WHEN x.stays AND w.mode <> 'debounce' THEN w.blocked_on END AS new_blocked_on
  FROM wanted w CROSS JOIN clock
  CROSS JOIN LATERAL (SELECT w.start_at = w.available_at OR w.start_at <= clock.at AND w.available_at <= clock.at AND w.timer_at IS NULL AS stays) x
),
updated AS (
  UPDATE ${s}.runs r
  SET seq = r.seq + 1, updated_at = clock.at, available_at = m.new_available_at, timer_at = m.new_timer_at, blocked_on = m.new_blocked_on,
    deadline_at = least(r.deadline_at, m.new_available_at + make_interval(secs => least((r.policy ->> 'maxTotalMs')::float8, (r.policy ->> 'maxWaitMs')::float8,
      (r.policy ->> 'maxIdleMs')::float8) / 1000)),
    scheduled_for = CASE WHEN m.stays THEN r.scheduled_for ELSE m.start_at END,
    input = CASE m.mode
      WHEN 'debounce' THEN m.input::jsonb
      WHEN 'batch' THEN r.input || coalesce((
        SELECT jsonb_agg(e.value ORDER BY f.ordinal, e.n) FROM fitted f CROSS JOIN LATERAL jsonb_array_elements(f.input::jsonb) WITH ORDINALITY AS e(value, n)
        WHERE f.run_id = m.id AND f.fits), '[]')
      ELSE r.input
    END,
    state = CASE WHEN m.mode = 'debounce' THEN m.state::jsonb ELSE r.state END,
    payload_bytes = CASE m.mode WHEN 'debounce' THEN m.bytes WHEN 'batch' THEN r.payload_bytes + m.more_bytes ELSE r.payload_bytes END,
    gates = CASE WHEN m.mode = 'debounce' THEN string_to_array(m.gates, E'\\x1e') ELSE r.gates END,
    gate_units = CASE WHEN m.mode = 'debounce' THEN string_to_array(m.gate_units, ',')::int[] ELSE r.gate_units END
  FROM moves m, clock
  WHERE r.id = m.id
  RETURNING r.id, r.available_at, r.policy -> 'unique' AS entry
),
periods AS (
  UPDATE ${s}.uniques u SET expires_at = x.available_at + make_interval(secs => (x.entry ->> 'periodMs')::float8 / 1000)
  FROM updated x
  WHERE x.entry -> 'fromSchedule' = 'true' AND u.run_id = x.id AND u.scope = x.entry ->> 'scope' AND u.token = x.entry ->> 'token'
),
left_window AS (
  ${outOfWindow(s, 'moves', 'x.was_ready AND x.new_timer_at IS NOT NULL')}
),
windowed AS (
  ${intoWindow(
    s,
    `(SELECT m.id, m.lane_id, m.losses, m.priority, m.position, m.new_available_at AS available_at,
    NOT m.was_ready AND m.new_timer_at IS NULL AND m.new_blocked_on IS NULL AND m.hold IS NULL AS comes FROM moves m)`,
    'x.comes',
  )}
  ON CONFLICT DO NOTHING
),
closed AS (
  DELETE FROM ${s}.uniques u WHERE u.run_id = ANY (ARRAY(SELECT m.id FROM moves m WHERE m.is_full)) AND u.keep & 16 <> 0
),
decided AS (
  UPDATE ${s}.receipts t
  SET decision = jsonb_build_object('id', f.run_id, 'status', 'pending', 'created', false, 'effect', CASE WHEN f.mode = 'reschedule' THEN 'rescheduled' ELSE 'gathered' END)
  FROM fitted f
  WHERE f.fits AND t.ctid = ANY (ARRAY(SELECT x.receipt_place FROM fitted x WHERE x.fits)) AND t.ctid = f.receipt_place
),
rooms AS MATERIALIZED (
  SELECT DISTINCT g.gate FROM moves m CROSS JOIN LATERAL unnest(m.stood_before) AS g(gate)
  WHERE m.was_ready AND (m.new_timer_at IS NOT NULL OR m.mode = 'debounce')
),
left_rooms AS (
  INSERT INTO ${s}.outbox (created_at, environment_id, tenant, kind, subject)
  SELECT clock.at, e.id, '', 'room', r.gate FROM rooms r JOIN ${s}.environments e ON e.name = $1::text CROSS JOIN clock WHERE $24::boolean ORDER BY r.gate
)
SELECT (SELECT count(*)::int FROM updated) AS merged, ARRAY(SELECT r.gate FROM rooms r) AS gates
`,
  (p) => [
    p.environment,
    p.nonce,
    p.ids,
    p.tenants,
    p.scopes,
    p.keys,
    p.receiptKeys,
    p.fingerprints,
    p.uniqueScopes,
    p.uniqueTokens,
    p.modes,
    p.now,
    p.inputs,
    p.states,
    p.payloadBytes,
    p.gates,
    p.gateUnits,
    p.delaysMs,
    p.runAts,
    p.waitsMs,
    p.maxMs,
    p.sizes,
    p.maxPayloadBytes,
    p.leavesRoom,
  ],
)
