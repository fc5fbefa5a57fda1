import { defineStatement } from './statement.ts'

export interface ClaimRunsParams {
  readonly now: string | null
  readonly environment: string
  /** Id of this request: the owner of what it takes. A claim is held under (run, claim id, seq). */
  readonly claimId: string
  /** What this build can run and whose timeout fits the time left, as two parallel arrays. */
  readonly definitions: readonly string[]
  readonly versions: readonly number[]
  readonly leaseMs: number
  /** Most runs to take; 500 and above is 500. */
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

/** Inbox and children that come with one claimed run, as stored, in bytes: a batch of runs with full inboxes still fits a reply. */
const SATELLITE_BYTES = 65_536

/** What a claimed run comes with: one column for all that only some runs have, and the lane only where it is not known yet. */
const claimedColumns = (s: string, satellites: string, known: string) => `
  c.id, c.seq, c.visit, c.lane_id, c.step, c.failures, c.losses, c.max_attempts, c.payload_bytes, c.input, c.state,
  CASE WHEN c.lane_id = ANY (${known}::int[]) THEN NULL ELSE (
    SELECT jsonb_build_object('tenant', l.tenant, 'queue', l.queue, 'definition', l.definition, 'version', l.version) FROM ${s}.lanes l WHERE l.id = c.lane_id) END AS lane,
  CASE WHEN c.key IS NOT NULL OR c.tags IS NOT NULL OR c.headers IS NOT NULL OR c.parent_id IS NOT NULL OR c.gates IS NOT NULL OR c.awaits IS NOT NULL
      OR c.join_seq IS NOT NULL OR c.signalled OR c.timed_out OR c.snoozes > 0 OR c.lonely_losses > 0 OR c.cancel_requested_at IS NOT NULL OR c.awaited OR c.policy IS NOT NULL OR c.held_gates IS NOT NULL
    THEN jsonb_build_object(
      'key', c.key, 'tags', c.tags, 'headers', c.headers, 'parentId', c.parent_id, 'gates', c.gates, 'gateUnits', c.gate_units, 'heldGates', c.held_gates, 'policy', c.policy, 'awaited', c.awaited, 'awaits', c.awaits, 'timedOut', c.timed_out,
      'snoozes', c.snoozes, 'lonelyLosses', c.lonely_losses, 'cancelRequested', c.cancel_requested_at IS NOT NULL,
      'inbox', CASE WHEN c.signalled AND c.awaits IS NOT NULL THEN (
        SELECT jsonb_build_object(
          'items', coalesce(jsonb_agg(jsonb_build_object('id', i.id::text, 'name', i.name, 'payload', i.payload, 'receivedAt', extract(epoch FROM i.created_at) * 1000) ORDER BY i.id)
            FILTER (WHERE i.bytes <= ${SATELLITE_BYTES}), '[]'),
          'more', bool_or(i.bytes > ${SATELLITE_BYTES}) OR count(*) >= ${satellites}::int)
        FROM (
          SELECT g.id, g.name, g.payload, g.created_at, sum(coalesce(pg_column_size(g.payload), 0)) OVER (ORDER BY g.id) AS bytes FROM (
            SELECT * FROM ${s}.signals x WHERE x.run_id = c.id AND x.consumed_seq IS NULL AND x.name = ANY (c.awaits) ORDER BY x.id LIMIT ${satellites}::int
          ) g
        ) i) END,
      'joinSeq', c.join_seq,
      'children', CASE WHEN c.join_seq IS NOT NULL THEN (
        SELECT jsonb_build_object(
          'items', coalesce(jsonb_agg(jsonb_build_object('id', k.id, 'definition', k.definition, 'key', k.key, 'index', k.child_index, 'status', k.status, 'result', k.result, 'error', k.error)
            ORDER BY k.child_index) FILTER (WHERE k.bytes <= ${SATELLITE_BYTES}), '[]'),
          'more', bool_or(k.bytes > ${SATELLITE_BYTES}) OR count(*) >= ${satellites}::int)
        FROM (
          SELECT y.*, l.definition, sum(coalesce(pg_column_size(y.result), 0) + coalesce(pg_column_size(y.error), 0)) OVER (ORDER BY y.child_index) AS bytes FROM (
            SELECT x.id, x.lane_id, x.key, x.child_index, x.status, x.result, x.error FROM ${s}.runs x
            WHERE x.parent_id = c.id AND x.parent_join_seq = c.join_seq ORDER BY x.child_index LIMIT ${satellites}::int
          ) y JOIN ${s}.lanes l ON l.id = y.lane_id
        ) k) END)
  END AS extras`

/** Marks advisory locks (held by a transaction, never by a session) on the making of counters; any number that nobody else uses. */
const MINT_LOCK_CLASS = 7_252_028

/**
 * Takes the runs that come next. Lanes with something in the window are found by a loose index scan, so a lane that this build
 * cannot serve costs one probe, whatever lies in it; the probe comes from behind, where nothing has just been taken. Rows are locked
 * where they are read, SKIP LOCKED: a claim never waits. Estimates do not depend on parameters, so that a prepared statement settles
 * on one plan.
 *
 * Literal limits and ranges keep the estimated cost about the same whatever the tables hold: a generic plan is kept (planning takes
 * longer than the claim), and JIT compilation stays away.
 *
 * A run that changed between snapshot and lock is locked in a version that the update cannot see. It is not claimed, so its row of
 * the window stays: what leaves the window is what the updates answer with.
 *
 * Gates: only a claim that holds a counter row and saw it full may block a run on it; a counter it had to skip proves nothing and
 * leaves the run where it is. What is debited, and whether that fills the gate, hangs off the rows that the claim really changed. Rows are
 * written where they were locked: one that changed after the snapshot is elsewhere by then, and is left as it is. A new counter is made
 * under a lock that is tried and not waited for: another claim that is making it would otherwise hold this one up.
 */
export const claimRuns = defineStatement<ClaimRunsParams>(
  'claim_runs',
  (s) => `
WITH RECURSIVE environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $2::text),
walk AS (
  SELECT CASE WHEN (SELECT $10::boolean) THEN -2147483648 ELSE (SELECT $9::int) END AS lane_id, NULL::text AS tenant, 0 AS opened, 0 AS steps
  UNION ALL
  SELECT next.lane_id, open.tenant, w.opened + (open.tenant IS NOT NULL)::int, w.steps + 1
  FROM walk w
  CROSS JOIN LATERAL (
    SELECT y.lane_id FROM ${s}.ready y WHERE y.lane_id > CASE WHEN w.lane_id < 0 THEN w.lane_id ELSE greatest(w.lane_id, (SELECT $9::int)) END
    ORDER BY y.lane_id LIMIT 1
  ) next
  LEFT JOIN LATERAL (
    SELECT l.tenant FROM ${s}.lanes l
    WHERE l.id = abs(next.lane_id) AND (next.lane_id < 0 OR next.lane_id > (SELECT $9::int)) AND l.environment_id = (SELECT id FROM environment) AND NOT l.paused
      AND ((SELECT $11::text[]) IS NULL OR l.queue = ANY ((SELECT $11::text[])::text[]))
      AND (l.definition, l.version) IN (SELECT k.definition, k.version FROM unnest((SELECT $4::text[]), (SELECT $5::int[])) AS k(definition, version))
  ) open ON true
  WHERE w.opened < 64 AND w.steps < 2000 AND (w.lane_id >= 0 OR w.tenant IS NULL)
),
quotas AS (
  SELECT ranked.lane_id, count(*)::int AS quota
  FROM (
    SELECT h.lane_id
    FROM (
      SELECT l.tenant, y.*
      FROM walk l
      CROSS JOIN LATERAL (
        SELECT * FROM (
          SELECT r.lane_id, r.priority, r.available_at, r.position FROM ${s}.ready r
          WHERE r.lane_id = l.lane_id ORDER BY r.priority, r.available_at, r.position LIMIT (SELECT $7::int)
        ) x LIMIT 200
      ) y
      WHERE l.tenant IS NOT NULL
    ) h
    ORDER BY row_number() OVER (PARTITION BY h.tenant ORDER BY h.priority, h.available_at, h.position), h.priority, h.available_at, h.position
    LIMIT (SELECT $7::int)
  ) ranked
  GROUP BY ranked.lane_id
),
candidates AS (
  SELECT c.*
  FROM walk l
  CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT y.ctid AS spot, r.ctid AS place, r.id, y.priority, y.available_at, y.position, r.payload_bytes, r.gates
      FROM ${s}.ready y JOIN ${s}.runs r ON r.id = y.run_id
      WHERE y.lane_id = l.lane_id
      ORDER BY y.priority, y.available_at, y.position
      LIMIT CASE WHEN l.lane_id < 0 THEN 1 WHEN (SELECT max(opened) FROM walk) = 1 THEN (SELECT $7::int) ELSE coalesce((SELECT q.quota FROM quotas q WHERE q.lane_id = l.lane_id), 0) END
      FOR NO KEY UPDATE OF r SKIP LOCKED
    ) x LIMIT 500
  ) c
  WHERE l.tenant IS NOT NULL
  LIMIT 500
),
fitting AS MATERIALIZED (
  SELECT z.spot, z.place, z.id, z.gates, z.turn
  FROM (
    SELECT c.*, row_number() OVER turn AS turn, sum(c.payload_bytes) OVER turn AS bytes
    FROM candidates c
    WINDOW turn AS (ORDER BY c.priority, c.available_at, c.position ROWS UNBOUNDED PRECEDING)
  ) z
  WHERE z.turn = 1 OR z.bytes <= (SELECT $8::bigint)
),
wanted AS (SELECT f.id, f.turn, g.gate FROM fitting f CROSS JOIN LATERAL unnest(f.gates) AS g(gate) WHERE cardinality(f.gates) BETWEEN 1 AND 1000000),
minted AS (
  INSERT INTO ${s}.limit_counters (environment_id, gate)
  SELECT (SELECT id FROM environment), w.gate FROM (SELECT DISTINCT gate FROM wanted) w
  WHERE NOT EXISTS (SELECT FROM ${s}.limit_counters c WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = w.gate)
    AND pg_try_advisory_xact_lock(${MINT_LOCK_CLASS}, hashtext(w.gate))
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
  SELECT w.id, w.gate, g.capacity, coalesce(g.held + row_number() OVER (PARTITION BY w.gate ORDER BY w.turn) <= g.capacity, false) AS fits, g.held
  FROM wanted w LEFT JOIN grabbed g ON g.gate = w.gate
),
verdicts AS MATERIALIZED (SELECT r.id, bool_and(r.fits) AS admitted FROM ranked r GROUP BY r.id),
claimed AS (
  UPDATE ${s}.runs c
  SET status = 'running', seq = c.seq + 1, claimed_by = $3::uuid, updated_at = coalesce($1::timestamptz, now())
  WHERE c.ctid = ANY (ARRAY(SELECT f.place FROM fitting f WHERE f.gates IS NULL OR f.id IN (SELECT v.id FROM verdicts v WHERE v.admitted))) AND c.status = 'pending'
  RETURNING c.gates, ${claimedColumns(s, '$12', '$13')}
),
leased AS (
  INSERT INTO ${s}.claims (id, environment_id, lease_until, alone, run_ids)
  SELECT $3::uuid, (SELECT id FROM environment), coalesce($1::timestamptz, now()) + make_interval(secs => $6::float8 / 1000), $10::boolean AND cardinality(c.ids) = 1, c.ids
  FROM (SELECT array_agg(id) AS ids FROM claimed) c
  WHERE c.ids IS NOT NULL
),
debited AS (
  UPDATE ${s}.limit_counters c SET held = c.held + d.n
  FROM (SELECT g.gate, count(*)::int AS n FROM claimed CROSS JOIN LATERAL unnest(claimed.gates) AS g(gate) WHERE claimed.gates IS NOT NULL GROUP BY g.gate) d
  WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = d.gate AND c.shard = 0
),
filled AS (
  SELECT r.gate FROM ranked r LEFT JOIN claimed c ON c.id = r.id
  GROUP BY r.gate HAVING min(r.held) + count(c.id) >= min(r.capacity)
),
blocked AS (
  UPDATE ${s}.runs r SET blocked_on = d.gate
  FROM (
    SELECT f.id, f.place, min(w.gate) AS gate FROM wanted w JOIN filled x ON x.gate = w.gate JOIN verdicts v ON v.id = w.id AND NOT v.admitted JOIN fitting f ON f.id = w.id
    GROUP BY f.id, f.place
  ) d
  WHERE r.id = d.id AND r.ctid = d.place AND r.status = 'pending'
  RETURNING r.id
),
removed AS (
  DELETE FROM ${s}.ready y
  WHERE y.ctid = ANY (CASE
    WHEN (SELECT count(*) FROM claimed) = (SELECT count(*) FROM fitting) THEN ARRAY(SELECT f.spot FROM fitting f)
    ELSE ARRAY(SELECT f.spot FROM fitting f WHERE f.id IN (SELECT c.id FROM claimed c UNION ALL SELECT b.id FROM blocked b))
  END)
)
SELECT c.id, c.seq, c.visit, c.lane_id, c.step, c.failures, c.losses, c.max_attempts, c.payload_bytes, c.input, c.state, c.lane, c.extras FROM claimed c
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
export const recoverClaim = defineStatement<{
  readonly claimId: string
  readonly satellites: number
  readonly knownLanes: readonly number[]
}>(
  'recover_claim',
  (s) => `
WITH claimed AS MATERIALIZED (
  SELECT r.* FROM ${s}.claims k CROSS JOIN LATERAL unnest(k.run_ids) AS x(run_id) JOIN ${s}.runs r ON r.id = x.run_id
  WHERE k.id = $1::uuid AND r.claimed_by = k.id AND r.status = 'running'
)
SELECT ${claimedColumns(s, '$2', '$3')}
FROM claimed c
`,
  (p) => [p.claimId, p.satellites, p.knownLanes],
)
