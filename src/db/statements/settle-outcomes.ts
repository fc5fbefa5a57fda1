/**
 * What hangs off committed outcomes, in later statements of the same batch. Each finds the transitions of this very transaction by
 * the history row that was written with them (`xmin` is ours), so a resend after a lost reply changes nothing twice.
 */
import { CLOCK, defineStatement } from './statement.ts'
import { intoWindow } from './window.ts'

export interface SettledParams {
  /** The runs whose outcomes were applied in this batch. */
  readonly ids: readonly string[]
}

/**
 * Runs of that parameter whose last transition was written by this transaction. Each is looked up in history by its key, one probe a run:
 * a plain join is planned by what statistics say of history, which may be nothing.
 */
export const settled = (s: string, ids: string) => `
settled AS (
  SELECT r.*, h.outcome FROM ${s}.runs r
  CROSS JOIN LATERAL (SELECT h.xmin AS written_by, h.outcome FROM ${s}.history h WHERE h.run_id = r.id AND h.seq = r.seq LIMIT 1) h
  WHERE r.id = ANY (${ids}::uuid[]) AND h.written_by = pg_current_xact_id()::xid
)`

export interface ParkParentsParams {
  readonly now: string | null
  readonly ids: readonly string[]
  /** How many children of each join must end well; null: all that were inserted must end, however. */
  readonly needs: readonly (number | null)[]
  /** The first that ends otherwise than well is enough to go on. */
  readonly failFasts: readonly boolean[]
  /** Children that have not ended are cancelled once the parent has gone on: noted in the parent's policy. */
  readonly cancelsStragglers: readonly boolean[]
}

/**
 * Sets the barrier of parents that were parked in this batch to the children that really came to be (a duplicate is not counted): how many ends
 * are still needed, and where they must be good ones, how many others may come before that cannot be met. None: the parent goes on at once.
 */
export const parkParents = defineStatement<ParkParentsParams>(
  'park_parents',
  (s) => `
WITH ${CLOCK},
parked AS (
  SELECT p.id, least(coalesce(i.need, c.n), c.n) AS remaining, CASE WHEN i.fail_fast THEN 0 WHEN i.need IS NOT NULL THEN greatest(c.n - i.need, 0) END AS spare,
    CASE WHEN i.cancels THEN coalesce(p.policy, '{}') || jsonb_build_object('cancelsStragglersOf', p.join_seq) ELSE p.policy END AS policy
  FROM unnest($2::uuid[], $3::int[], $4::boolean[], $5::boolean[]) AS i(id, need, fail_fast, cancels)
  JOIN ${s}.runs p ON p.id = i.id
  CROSS JOIN LATERAL (SELECT count(*)::int AS n FROM ${s}.runs k WHERE k.parent_id = p.id AND k.parent_join_seq = p.join_seq) c
  WHERE p.status = 'waiting' AND p.join_seq = p.seq AND p.join_remaining IS NULL AND p.xmin = pg_current_xact_id()::xid
),
updated AS (
  UPDATE ${s}.runs r
  SET join_remaining = p.remaining,
      join_spare = p.spare,
      policy = p.policy,
      status = CASE WHEN p.remaining <= 0 THEN 'pending'::${s}.run_status ELSE r.status END,
      notable = CASE WHEN p.remaining <= 0 THEN NULL ELSE r.notable END,
      timer_at = CASE WHEN p.remaining <= 0 THEN NULL ELSE r.timer_at END,
      available_at = clock.at
  FROM parked p, clock
  WHERE r.id = p.id
  RETURNING r.id, r.status, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold
)
${intoWindow(s, 'updated', `x.status = 'pending' AND x.hold IS NULL`)}
ON CONFLICT DO NOTHING
`,
  (p) => [p.now, p.ids, p.needs, p.failFasts, p.cancelsStragglers],
)

/** Where any end will do, each counts; else the good ones do, and the others are spent from what may fail. */
const REMAINING = 'p.join_remaining - CASE WHEN p.join_spare IS NULL THEN e.n ELSE e.good END'
const SPARE = 'p.join_spare - (e.n - e.good)'
const ENOUGH = `${REMAINING} <= 0 OR coalesce(${SPARE} < 0, false)`

/**
 * Counts children that ended in this batch against the join of their parent that waits for them, all siblings in one update, and
 * wakes the parents that have enough, or can have enough no more. A child of an older join changes nothing.
 */
export const creditParents = defineStatement<SettledParams & { readonly now: string | null }>(
  'credit_parents',
  (s) => `
WITH ${CLOCK},
${settled(s, '$2')},
ended AS (
  SELECT x.parent_id, x.parent_join_seq, count(*)::int AS n, (count(*) FILTER (WHERE x.status = 'completed'))::int AS good FROM settled x
  WHERE x.finished_at IS NOT NULL AND x.parent_join_seq IS NOT NULL GROUP BY x.parent_id, x.parent_join_seq
),
credited AS (
  UPDATE ${s}.runs p
  SET join_remaining = ${REMAINING},
      join_spare = ${SPARE},
      status = CASE WHEN ${ENOUGH} THEN 'pending'::${s}.run_status ELSE p.status END,
      notable = CASE WHEN ${ENOUGH} THEN NULL ELSE p.notable END,
      timer_at = CASE WHEN ${ENOUGH} THEN NULL ELSE p.timer_at END,
      available_at = CASE WHEN ${ENOUGH} THEN clock.at ELSE p.available_at END,
      seq = p.seq + (${ENOUGH})::int,
      updated_at = clock.at
  FROM ended e, clock
  WHERE p.id = e.parent_id AND p.join_seq = e.parent_join_seq AND p.status = 'waiting' AND p.join_remaining IS NOT NULL
  RETURNING p.id, p.status, p.lane_id, p.losses, p.priority, p.available_at, p.position, p.hold
)
${intoWindow(s, 'credited', `x.status = 'pending' AND x.hold IS NULL`)}
ON CONFLICT DO NOTHING
`,
  (p) => [p.now, p.ids],
)

export interface ConsumeSignalsParams {
  /** The step that was shown these signals because it had waited for them; consumed once it has made progress. The arrays are parallel. */
  readonly runIds: readonly string[]
  readonly signalIds: readonly string[]
}

export const consumeSignals = defineStatement<ConsumeSignalsParams>(
  'consume_signals',
  (s) => `
WITH progressed AS (
  SELECT r.id, r.seq FROM ${s}.runs r
  CROSS JOIN LATERAL (SELECT h.xmin AS written_by, h.outcome FROM ${s}.history h WHERE h.run_id = r.id AND h.seq = r.seq LIMIT 1) h
  WHERE r.id = ANY ($1::uuid[]) AND h.written_by = pg_current_xact_id()::xid AND h.outcome IN ('next', 'continue', 'wait', 'join', 'done', 'discard')
),
consumed AS (
  UPDATE ${s}.signals g SET consumed_seq = p.seq
  FROM unnest($1::uuid[], $2::bigint[]) AS i(run_id, signal_id) JOIN progressed p ON p.id = i.run_id
  WHERE g.id = i.signal_id AND g.id = ANY ($2::bigint[]) AND g.run_id = i.run_id AND g.consumed_seq IS NULL
  RETURNING g.id, g.run_id
)
UPDATE ${s}.runs r SET signalled = EXISTS (
  SELECT FROM ${s}.signals g WHERE g.run_id = r.id AND g.consumed_seq IS NULL AND g.id NOT IN (SELECT c.id FROM consumed c))
WHERE r.id IN (SELECT c.run_id FROM consumed c)
`,
  (p) => [p.runIds, p.signalIds],
)

export interface RecheckWaitsParams {
  readonly now: string | null
  /** The runs that were parked on signals in this batch. */
  readonly ids: readonly string[]
  /** Signals that the step was already shown, as (run, signal) pairs: by id, since ids commit out of order. */
  readonly shownRunIds: readonly string[]
  readonly shownSignalIds: readonly string[]
}

/**
 * Wakes what was parked although something it waits for was in the inbox already: a delivery that came before the park saw no waiting
 * run to wake. Without the exclusion of what was shown, awaiting a pack would spin.
 */
export const recheckWaits = defineStatement<RecheckWaitsParams>(
  'recheck_waits',
  (s) => `
WITH ${CLOCK},
woken AS (
  UPDATE ${s}.runs r
  SET status = 'pending', notable = NULL, timer_at = NULL, available_at = clock.at, signalled = true
  FROM clock
  WHERE r.id = ANY ($2::uuid[]) AND r.status = 'waiting' AND r.awaits IS NOT NULL AND r.xmin = pg_current_xact_id()::xid
    AND EXISTS (
      SELECT FROM ${s}.signals g
      WHERE g.run_id = r.id AND g.consumed_seq IS NULL AND g.name = ANY (r.awaits)
        AND NOT EXISTS (SELECT FROM unnest($3::uuid[], $4::bigint[]) AS x(run_id, signal_id) WHERE x.run_id = r.id AND x.signal_id = g.id))
  RETURNING r.id, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold
)
${intoWindow(s, 'woken', 'x.hold IS NULL')}
ON CONFLICT DO NOTHING
`,
  (p) => [p.now, p.ids, p.shownRunIds, p.shownSignalIds],
)

/**
 * Frees what runs hold that have ended: keys and other entries. One that is kept in that status stays until its time is up or the run is
 * deleted; one that is reserved stays until then.
 */
const releasing = (s: string, ended: string) => `
WITH ${CLOCK},
${ended},
held AS MATERIALIZED (
  SELECT u.ctid AS place, u.reserved_until,
    u.keep & CASE e.status WHEN 'completed' THEN 1 WHEN 'failed' THEN 2 WHEN 'cancelled' THEN 4 ELSE 8 END <> 0 AND coalesce(u.expires_at > clock.at, true) AS is_kept,
    coalesce(u.reserved_until > clock.at, false) AS is_reserved
  FROM ${s}.uniques u JOIN ended e ON e.id = u.run_id CROSS JOIN clock
  WHERE u.run_id = ANY (ARRAY(SELECT x.id FROM ended x))
),
reserved AS (
  UPDATE ${s}.uniques u SET expires_at = u.reserved_until
  WHERE u.ctid = ANY (ARRAY(SELECT h.place FROM held h WHERE h.is_reserved AND NOT h.is_kept)) AND u.run_id = ANY (ARRAY(SELECT x.id FROM ended x))
)
DELETE FROM ${s}.uniques u
WHERE u.ctid = ANY (ARRAY(SELECT h.place FROM held h WHERE NOT h.is_reserved AND NOT h.is_kept)) AND u.run_id = ANY (ARRAY(SELECT x.id FROM ended x))
`

/** Of runs that ended in this batch. By place: an entry that was taken over meanwhile, its time being up, is another run's. */
export const releaseKeys = defineStatement<SettledParams & { readonly now: string | null }>(
  'release_keys',
  (s) =>
    releasing(
      s,
      `${settled(s, '$2').trim()},
ended AS MATERIALIZED (SELECT x.id, x.status FROM settled x WHERE x.finished_at IS NOT NULL)`,
    ),
  (p) => [p.now, p.ids],
)

/** Of runs that have ended, by whomever, and are locked by this transaction. */
export const releaseKeysAgain = defineStatement<SettledParams & { readonly now: string | null }>(
  'release_keys_again',
  (s) =>
    releasing(
      s,
      `ended AS MATERIALIZED (SELECT r.id, r.status FROM ${s}.runs r WHERE r.id = ANY ((SELECT $2::uuid[])::uuid[]) AND r.finished_at IS NOT NULL)`,
    ),
  (p) => [p.now, p.ids],
)

/**
 * Fails the batch (22012, division by zero) unless this transaction applied that transition: what the user commits with an outcome
 * happens with it or not at all.
 */
export const requireApplied = defineStatement<{ readonly runId: string; readonly seq: number }>(
  'require_applied',
  (s) => `
SELECT 1 / (
  SELECT count(*)::int FROM ${s}.history h WHERE h.run_id = $1::uuid AND h.seq = $2::int AND h.xmin = pg_current_xact_id()::xid
) AS applied
`,
  (p) => [p.runId, p.seq],
)

/**
 * Ends claims whose runs are all settled. A claim is how runs of a dead invocation are found, so the database has the last word: one
 * under which a run still stands stays, as after a flush that came too late and was refused.
 */
export const endClaims = defineStatement<{ readonly claimIds: readonly string[] }>(
  'end_claims',
  (s) => `
WITH held AS (
  SELECT c.id FROM ${s}.claims c CROSS JOIN LATERAL unnest(c.run_ids) AS x(run_id)
  CROSS JOIN LATERAL (SELECT r.claimed_by, r.status FROM ${s}.runs r WHERE r.id = x.run_id LIMIT 1) r
  WHERE c.id = ANY ($1::uuid[]) AND r.claimed_by = c.id AND r.status = 'running'
)
DELETE FROM ${s}.claims c WHERE c.id = ANY ($1::uuid[]) AND c.id NOT IN (SELECT h.id FROM held h)
`,
  (p) => [p.claimIds],
)
