import { admitting, debiting, GATES_KEPT, SHARDS_TAKEN } from './claim-gates.ts'
import {
  charging,
  IS_ADMITTED,
  LEFT_AS_SHUT,
  LEFT_TO_OTHERS,
  OPEN_SHARDS,
  opening,
  WHETHER_SPECIAL,
  WITHOUT_COUNTERS,
} from './claim-open-gates.ts'
import { claimedColumns } from './claimed-columns.ts'
import { atPlaces } from './places.ts'
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
  /** Which runs with gates are taken: none; those whose gates are wide open; those that their gates admit, and the others are blocked. */
  readonly admits: 'ungated' | 'open' | 'all'
}

/** What a claim does about gates, as parts of its text. */
interface GateWords {
  readonly columns: string
  readonly admitting: readonly string[]
  /** Of `f`, a run that it has locked. */
  readonly admitted: string
  readonly setting: string
  /** Gates whose slots it had kept until now. */
  readonly kept: string
  readonly debiting: readonly string[]
  /** Runs that leave the window without being claimed. */
  readonly removing: string
  readonly blocked: string
  readonly stayed: string
  readonly passed: string
  readonly missing: string
  /** Lanes of those that are blocked. */
  readonly crowded: string
}

const UNGATED = (): GateWords => ({
  columns: '',
  admitting: [],
  admitted: 'f.gates IS NULL',
  setting: '',
  kept: 'NULL::text[]',
  debiting: [],
  removing: '',
  blocked: '0',
  stayed: '(SELECT count(*)::int FROM fitting f WHERE f.gates IS NOT NULL)',
  passed: '0',
  missing: 'NULL::jsonb',
  crowded: 'NULL::jsonb',
})

const OPEN = (s: string): GateWords => ({
  ...UNGATED(),
  columns: `, ${WHETHER_SPECIAL} AS special`,
  admitting: [opening(s)],
  admitted: IS_ADMITTED,
  setting: `, gate_shards = ${OPEN_SHARDS}`,
  debiting: [charging(s)],
  stayed: LEFT_AS_SHUT,
  passed: LEFT_TO_OTHERS,
  missing: WITHOUT_COUNTERS,
})

const ALL = (s: string): GateWords => ({
  ...UNGATED(),
  admitting: [admitting(s)],
  admitted: 'f.gates IS NULL OR f.id IN (SELECT v.id FROM verdicts v WHERE v.admitted)',
  setting: `, held_gates = NULL, gate_shards = ${SHARDS_TAKEN}`,
  kept: GATES_KEPT,
  debiting: [debiting(s)],
  removing: ' UNION ALL SELECT b.id FROM blocked b',
  blocked: '(SELECT count(*)::int FROM blocked)',
  stayed: '0',
  passed: '(SELECT count(*)::int FROM fitting) - (SELECT count(*)::int FROM claimed) - (SELECT count(*)::int FROM blocked)',
  missing: '(SELECT jsonb_agg(m.gate) FROM missing m)',
  crowded: '(SELECT jsonb_agg(DISTINCT b.lane_id) FROM blocked b)',
})

/** Then they are served in turn; one alone needs no more than the order. */
const MANY_TENANTS = '(SELECT min(w.tenant) <> max(w.tenant) FROM walk w)'

/** What lies in the window of lanes that may be served, as much as was asked for: locked, and in the order in which it is taken. */
const window = (
  s: string,
  columns: string,
) => `environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $2::text),
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
fronts AS MATERIALIZED (
  SELECT l.tenant, y.*
  FROM walk l
  CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT r.lane_id, r.priority, r.available_at, r.position FROM ${s}.ready r
      WHERE r.lane_id = l.lane_id ORDER BY r.priority, r.available_at, r.position LIMIT (SELECT $7::int)
    ) x LIMIT 200
  ) y
  WHERE l.tenant IS NOT NULL
),
quotas AS MATERIALIZED (
  SELECT ranked.lane_id, count(*)::int AS quota
  FROM (
    (SELECT h.lane_id FROM fronts h WHERE NOT ${MANY_TENANTS} ORDER BY h.priority, h.available_at, h.position LIMIT (SELECT $7::int))
    UNION ALL
    (SELECT h.lane_id FROM fronts h WHERE ${MANY_TENANTS}
      ORDER BY row_number() OVER (PARTITION BY h.tenant ORDER BY h.priority, h.available_at, h.position), h.priority, h.available_at, h.position LIMIT (SELECT $7::int))
  ) ranked
  GROUP BY ranked.lane_id
),
candidates AS (
  SELECT c.*
  FROM walk l
  CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT y.ctid AS spot, r.ctid AS place, r.id, y.priority, y.available_at, y.position, r.payload_bytes, r.gates${columns}
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
  SELECT z.spot, z.place, z.id, z.gates, z.turn${columns === '' ? '' : ', z.special'}
  FROM (
    SELECT c.*, row_number() OVER turn AS turn, sum(c.payload_bytes) OVER turn AS bytes
    FROM candidates c
    WINDOW turn AS (ORDER BY c.priority, c.available_at, c.position ROWS UNBOUNDED PRECEDING)
  ) z
  WHERE z.turn = 1 OR z.bytes <= (SELECT $8::bigint)
)`

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
 * written where they were locked: one that changed after the snapshot is elsewhere by then, and is left as it is. A counter that is not
 * there is not made here, where it could not be seen: the claim says so, and `mint_gates` comes ahead of the next one.
 *
 * There are three texts, since most of what the one for gates takes is being set up: one for runs without gates, one that admits through gates
 * that are wide open, and one that ranks, denies and blocks. The first two leave what they cannot admit where it is.
 *
 * Last may come a row without an id, of what the claim was besides: `seq` runs blocked (`lane` their lanes), `visit` runs left because their gates were not asked or not wide open, `failures` those
 * left because others hold a counter, `extras` the gates without all their counters, and the lane to go on behind (`lane_id`) when there are more with work than one claim opens.
 */
const claimText = (wordsOf: (s: string) => GateWords) => (s: string) => {
  const words = wordsOf(s)
  const withs = [
    window(s, words.columns),
    ...words.admitting,
    `
claimed AS (
  UPDATE ${s}.runs c
  SET status = 'running', seq = c.seq + 1, claimed_by = $3::uuid, updated_at = coalesce($1::timestamptz, now())${words.setting}
  WHERE ${atPlaces('c', 'fitting', words.admitted)} AND c.status = 'pending'
  RETURNING ${claimedColumns(s, '$12', '$13', words.kept)}
)`,
    `
leased AS (
  INSERT INTO ${s}.claims (id, environment_id, lease_until, alone, run_ids)
  SELECT $3::uuid, (SELECT id FROM environment), coalesce($1::timestamptz, now()) + make_interval(secs => $6::float8 / 1000), $10::boolean AND cardinality(c.ids) = 1, c.ids
  FROM (SELECT array_agg(id) AS ids FROM claimed) c
  WHERE c.ids IS NOT NULL
)`,
    ...words.debiting,
    `
removed AS (
  DELETE FROM ${s}.ready y
  WHERE y.ctid = ANY (CASE
    WHEN (SELECT count(*) FROM claimed) = (SELECT count(*) FROM fitting) THEN ARRAY(SELECT f.spot FROM fitting f)
    ELSE ARRAY(SELECT f.spot FROM fitting f WHERE f.id IN (SELECT c.id FROM claimed c${words.removing}))
  END)
)`,
  ]
  return `
WITH RECURSIVE ${withs.join(',')}
SELECT c.id, c.seq, c.visit, c.lane_id, c.step, c.failures, c.losses, c.max_attempts, c.payload_bytes, c.input, c.state, c.gates, c.lane, c.extras FROM claimed c
UNION ALL
SELECT NULL, x.blocked, x.stayed, CASE WHEN w.opened >= 64 THEN w.lane_id ELSE 0 END, NULL, x.passed, 0, 0, 0, NULL, NULL, NULL, ${words.crowded}, x.missing
FROM (SELECT ${words.blocked} AS blocked, ${words.stayed} AS stayed, ${words.passed} AS passed, ${words.missing} AS missing) x,
  (SELECT max(lane_id) AS lane_id, max(opened) AS opened FROM walk) w
WHERE x.blocked > 0 OR x.stayed > 0 OR x.passed > 0 OR w.opened >= 64 OR x.missing IS NOT NULL
`
}

const claimParams = (p: ClaimRunsParams) => [
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
]

const claims = {
  ungated: defineStatement<ClaimRunsParams>('claim_runs', claimText(UNGATED), claimParams),
  open: defineStatement<ClaimRunsParams>('claim_open_gates', claimText(OPEN), claimParams),
  all: defineStatement<ClaimRunsParams>('claim_gated_runs', claimText(ALL), claimParams),
}

export const claimRuns = (schema: string, p: ClaimRunsParams) => claims[p.admits](schema, p)

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
