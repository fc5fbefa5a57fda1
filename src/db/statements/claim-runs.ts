import { CLOCK, defineStatement } from './statement.ts'

export interface ClaimRunsParams {
  readonly now: string | null
  readonly environment: string
  /** Id of this request: the owner of what it takes. A claim is held under (run, claim id, seq). */
  readonly claimId: string
  /** What this build can run and whose timeout fits the time left, as two parallel arrays. */
  readonly definitions: readonly string[]
  readonly versions: readonly number[]
  readonly leaseMs: number
  /** Most runs to take. */
  readonly limit: number
  /** Most payload to take; the first run is taken whatever its size. */
  readonly maxBytes: number
  /** Lanes up to this one were served by the claims before: go on behind it. */
  readonly laneCursor: number
  /** Nothing else is in flight here: a run that has lost its host before may be taken, and is then taken alone. */
  readonly alone: boolean
  /** Only these queues (null: all). */
  readonly queues: readonly string[] | null
  /** Most inbox rows and joined children that come with a run; the rest is fetched per run. */
  readonly satellites: number
  /** Lanes whose names need not be sent again. */
  readonly knownLanes: readonly number[]
}

const openLane = (s: string, lane: string) => `
    SELECT l.id, l.tenant FROM ${s}.lanes l JOIN known k ON k.definition = l.definition AND k.version = l.version
    WHERE l.id = ${lane} AND l.environment_id = (SELECT id FROM environment) AND NOT l.paused
      AND ((SELECT $11::text[]) IS NULL OR l.queue = ANY ((SELECT $11::text[])::text[]))`

/** What a claimed run comes with: one column for all that only some runs have, and the lane only where it is not known yet. */
const claimedColumns = (s: string, satellites: string, known: string) => `
SELECT c.id, c.seq, c.visit, c.lane_id, c.step, c.failures, c.losses, c.max_attempts, c.payload_bytes, c.input, c.state,
  CASE WHEN c.lane_id = ANY (${known}::int[]) THEN NULL ELSE (
    SELECT jsonb_build_object('tenant', l.tenant, 'queue', l.queue, 'definition', l.definition, 'version', l.version) FROM ${s}.lanes l WHERE l.id = c.lane_id) END AS lane,
  CASE WHEN c.key IS NOT NULL OR c.tags IS NOT NULL OR c.headers IS NOT NULL OR c.parent_id IS NOT NULL OR c.gates IS NOT NULL OR c.awaits IS NOT NULL
      OR c.join_seq IS NOT NULL OR c.signalled OR c.timed_out OR c.snoozes > 0 OR c.lonely_losses > 0 OR c.cancel_requested_at IS NOT NULL
    THEN jsonb_build_object(
      'key', c.key, 'tags', c.tags, 'headers', c.headers, 'parentId', c.parent_id, 'gates', c.gates, 'awaits', c.awaits, 'timedOut', c.timed_out,
      'snoozes', c.snoozes, 'lonelyLosses', c.lonely_losses, 'cancelRequested', c.cancel_requested_at IS NOT NULL,
      'inbox', CASE WHEN c.signalled THEN (
        SELECT jsonb_agg(jsonb_build_object('id', i.id::text, 'name', i.name, 'payload', i.payload, 'receivedAt', extract(epoch FROM i.created_at) * 1000) ORDER BY i.id)
        FROM (SELECT * FROM ${s}.signals g WHERE g.run_id = c.id AND g.consumed_seq IS NULL ORDER BY g.id LIMIT ${satellites}::int) i) END,
      'joinSeq', c.join_seq,
      'children', CASE WHEN c.join_seq IS NOT NULL THEN (
        SELECT jsonb_agg(jsonb_build_object('id', k.id, 'definition', k.definition, 'key', k.key, 'index', k.child_index, 'status', k.status, 'result', k.result, 'error', k.error) ORDER BY k.child_index)
        FROM (
          SELECT x.id, l.definition, x.key, x.child_index, x.status, x.result, x.error FROM ${s}.runs x JOIN ${s}.lanes l ON l.id = x.lane_id
          WHERE x.parent_id = c.id AND x.parent_join_seq = c.join_seq ORDER BY x.child_index LIMIT ${satellites}::int
        ) k) END)
  END AS extras`

/**
 * Takes the runs that come next. Lanes with something in the window are found by a loose index scan, so a lane that this build
 * cannot serve costs one probe, whatever lies in it. Rows are locked where they are read, SKIP LOCKED: a claim never waits. Estimates
 * do not depend on parameters, so that a prepared statement settles on one plan.
 *
 * Gates: only a claim that holds a counter row and saw it full may block a run on it; a counter it had to skip proves nothing and
 * leaves the run where it is. What is debited hangs off the rows that the claim really changed.
 */
export const claimRuns = defineStatement<ClaimRunsParams>(
  'claim_runs',
  (s) => `
WITH RECURSIVE ${CLOCK},
environment AS (SELECT id FROM ${s}.environments WHERE name = $2::text),
known AS (SELECT * FROM unnest((SELECT $4::text[]), (SELECT $5::int[])) AS k(definition, version)),
walk AS (
  SELECT first.lane_id, 0 AS opened, 1 AS steps
  FROM (SELECT r.lane_id FROM ${s}.ready r WHERE r.lane_id > (SELECT $9::int) ORDER BY r.lane_id LIMIT 1) first
  UNION ALL
  SELECT next.lane_id, w.opened + open.yes, w.steps + 1
  FROM walk w
  CROSS JOIN LATERAL (SELECT count(*)::int AS yes FROM (${openLane(s, 'w.lane_id')}) o) open
  CROSS JOIN LATERAL (SELECT r.lane_id FROM ${s}.ready r WHERE r.lane_id > w.lane_id ORDER BY r.lane_id LIMIT 1) next
  WHERE w.opened < 64 AND w.steps < 2000
),
open_lanes AS MATERIALIZED (SELECT o.id, o.tenant FROM walk w CROSS JOIN LATERAL (${openLane(s, 'w.lane_id')}) o),
quotas AS (
  SELECT ranked.lane_id, count(*)::int AS quota
  FROM (
    SELECT h.lane_id
    FROM open_lanes l
    CROSS JOIN LATERAL (
      SELECT r.lane_id, r.priority, r.available_at, r.position FROM ${s}.ready r
      WHERE r.lane_id = l.id ORDER BY r.priority, r.available_at, r.position LIMIT (SELECT $7::int)
    ) h
    ORDER BY row_number() OVER (PARTITION BY l.tenant ORDER BY h.priority, h.available_at, h.position), h.priority, h.available_at, h.position
    LIMIT (SELECT $7::int)
  ) ranked
  GROUP BY ranked.lane_id
),
lonely AS (
  SELECT y.ctid AS spot, r.ctid AS place, r.id, y.priority, y.available_at, y.position, r.payload_bytes, r.gates
  FROM ${s}.ready y JOIN ${s}.runs r ON r.id = y.run_id
  WHERE (SELECT $10::boolean) AND y.lane_id < 0 AND EXISTS (${openLane(s, '-y.lane_id')})
  ORDER BY y.lane_id, y.priority, y.available_at, y.position
  LIMIT 1
  FOR NO KEY UPDATE OF r SKIP LOCKED
),
candidates AS (
  SELECT * FROM lonely
  UNION ALL
  SELECT c.*
  FROM open_lanes l
  CROSS JOIN LATERAL (
    SELECT y.ctid AS spot, r.ctid AS place, r.id, y.priority, y.available_at, y.position, r.payload_bytes, r.gates
    FROM ${s}.ready y JOIN ${s}.runs r ON r.id = y.run_id
    WHERE y.lane_id = l.id
    ORDER BY y.priority, y.available_at, y.position
    LIMIT CASE WHEN (SELECT count(*) FROM open_lanes) = 1 THEN (SELECT $7::int) ELSE (SELECT q.quota FROM quotas q WHERE q.lane_id = l.id) END
    FOR NO KEY UPDATE OF r SKIP LOCKED
  ) c
  WHERE NOT EXISTS (SELECT FROM lonely)
),
sized AS (
  SELECT c.*, row_number() OVER turn AS turn, sum(c.payload_bytes) OVER turn AS bytes
  FROM candidates c
  WINDOW turn AS (ORDER BY c.priority, c.available_at, c.position)
),
fitting AS MATERIALIZED (SELECT * FROM sized WHERE turn = 1 OR bytes <= $8::bigint),
wanted AS (SELECT f.id, f.turn, g.gate FROM fitting f CROSS JOIN LATERAL unnest(f.gates) AS g(gate) WHERE f.gates IS NOT NULL),
minted AS (
  INSERT INTO ${s}.limit_counters (environment_id, gate)
  SELECT (SELECT id FROM environment), w.gate FROM (SELECT DISTINCT gate FROM wanted) w
  WHERE NOT EXISTS (SELECT FROM ${s}.limit_counters c WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = w.gate)
  ORDER BY w.gate
  ON CONFLICT DO NOTHING
),
grabbed AS (
  SELECT c.gate, c.held,
    coalesce((SELECT p.concurrency FROM ${s}.limits p WHERE p.environment_id = c.environment_id AND p.name = split_part(c.gate, E'\\x1f', 1)), 1) AS capacity
  FROM ${s}.limit_counters c
  WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = ANY (ARRAY(SELECT DISTINCT gate FROM wanted)) AND c.shard = 0
  ORDER BY c.gate
  FOR UPDATE OF c SKIP LOCKED
),
ranked AS (
  SELECT w.id, g.gate IS NOT NULL AS holds, g.held, g.capacity, row_number() OVER (PARTITION BY w.gate ORDER BY w.turn) AS rank
  FROM wanted w LEFT JOIN grabbed g ON g.gate = w.gate
),
admitted AS MATERIALIZED (
  SELECT f.id, f.place, f.spot FROM fitting f
  WHERE f.gates IS NULL
    OR f.id IN (SELECT r.id FROM ranked r GROUP BY r.id HAVING bool_and(r.holds AND r.held + r.rank <= r.capacity))
),
claimed AS (
  UPDATE ${s}.runs r
  SET status = 'running', seq = r.seq + 1, claimed_by = $3::uuid, updated_at = clock.at
  FROM clock
  WHERE r.ctid = ANY (ARRAY(SELECT a.place FROM admitted a)) AND r.status = 'pending'
  RETURNING r.*
),
taken AS (DELETE FROM ${s}.ready y WHERE y.ctid = ANY (ARRAY(SELECT a.spot FROM admitted a JOIN claimed c ON c.id = a.id))),
leased AS (
  INSERT INTO ${s}.claims (id, environment_id, lease_until, alone, run_ids)
  SELECT $3::uuid, (SELECT id FROM environment), clock.at + make_interval(secs => $6::float8 / 1000), $10::boolean AND cardinality(c.ids) = 1, c.ids
  FROM clock, (SELECT array_agg(id) AS ids FROM claimed) c
  WHERE c.ids IS NOT NULL
),
debited AS (
  UPDATE ${s}.limit_counters c SET held = c.held + d.n
  FROM (SELECT g.gate, count(*)::int AS n FROM claimed CROSS JOIN LATERAL unnest(claimed.gates) AS g(gate) WHERE claimed.gates IS NOT NULL GROUP BY g.gate) d
  WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = d.gate AND c.shard = 0
),
filled AS (
  SELECT g.gate FROM grabbed g
  WHERE g.held + (SELECT count(*) FROM admitted a JOIN wanted w ON w.id = a.id WHERE w.gate = g.gate) >= g.capacity
),
denied AS MATERIALIZED (
  SELECT f.place, f.spot, f.id, min(w.gate) AS gate FROM fitting f JOIN wanted w ON w.id = f.id JOIN filled x ON x.gate = w.gate
  WHERE f.gates IS NOT NULL AND f.id NOT IN (SELECT id FROM admitted) GROUP BY f.place, f.spot, f.id
),
blocked AS (
  UPDATE ${s}.runs r SET blocked_on = d.gate FROM denied d
  WHERE r.ctid = ANY (ARRAY(SELECT x.place FROM denied x)) AND r.id = d.id AND r.status = 'pending'
  RETURNING r.id
),
removed AS (DELETE FROM ${s}.ready y WHERE y.ctid = ANY (ARRAY(SELECT d.spot FROM denied d JOIN blocked b ON b.id = d.id)))
${claimedColumns(s, '$12', '$13')}
FROM claimed c
`,
  (p) => [
    p.now,
    p.environment,
    p.claimId,
    p.definitions,
    p.versions,
    p.leaseMs,
    p.limit,
    p.maxBytes,
    p.laneCursor,
    p.alone,
    p.queues,
    p.satellites,
    p.knownLanes,
  ],
)

/** What a claim took whose reply was lost, if it was committed: the same columns. */
export const recoverClaim = defineStatement<{ readonly claimId: string; readonly satellites: number; readonly knownLanes: readonly number[] }>(
  'recover_claim',
  (s) => `
WITH claimed AS MATERIALIZED (
  SELECT r.* FROM ${s}.claims k CROSS JOIN LATERAL unnest(k.run_ids) AS x(run_id) JOIN ${s}.runs r ON r.id = x.run_id
  WHERE k.id = $1::uuid AND r.claimed_by = k.id AND r.status = 'running'
)
${claimedColumns(s, '$2', '$3')}
FROM claimed c
`,
  (p) => [p.claimId, p.satellites, p.knownLanes],
)
