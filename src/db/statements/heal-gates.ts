/**
 * Upkeep of counters, a page of them at a time: `environments.gate_cursor` is where the last page ended. In one batch: lock the page, set it
 * right, find who was forgotten, delete what is idle, move on.
 */
import { capacity, policyOf, someBlocked, tokensAt } from './gate-arithmetic.ts'
import { defineStatement } from './statement.ts'

export interface GatePageParams {
  readonly now: string | null
  readonly environment: string
  /** Counters of one page. */
  readonly limit: number
}

const params = (p: GatePageParams) => [p.now, p.environment, p.limit]

const page = (s: string) => `
environment AS MATERIALIZED (SELECT id, gate_cursor, coalesce($1::timestamptz, now()) AS now FROM ${s}.environments WHERE name = $2::text),
page AS MATERIALIZED (
  SELECT c.ctid AS place, c.gate, c.shard FROM ${s}.limit_counters c
  WHERE c.environment_id = (SELECT id FROM environment) AND c.gate > coalesce((SELECT gate_cursor FROM environment), '')
  ORDER BY c.gate, c.shard LIMIT (SELECT $3::int)
)`
const ON_PAGE = 'c.ctid = ANY (ARRAY(SELECT x.place FROM page x)) AND c.xmax = pg_current_xact_id()::xid'

/** Whoever takes or gives a slot holds the row, so the next snapshot has them all. */
export const lockGates = defineStatement<GatePageParams>(
  'lock_gates',
  (s) => `
WITH ${page(s)}
SELECT FROM ${s}.limit_counters c WHERE c.ctid = ANY (ARRAY(SELECT x.place FROM page x)) FOR UPDATE SKIP LOCKED
`,
  params,
)

/**
 * Sets the counters that the statement before has locked (`xmax` is ours) to what the runs in hand, and those that keep their slots, really
 * hold: it reads what is in hand, and nothing else. A rate on which somebody is blocked is looked at again.
 */
export const healGates = defineStatement<GatePageParams>(
  'heal_gates',
  (s) => `
WITH ${page(s)},
holders AS (
  SELECT r.gates, r.gate_units, r.gate_shards, r.gates AS held
  FROM ${s}.claims c CROSS JOIN LATERAL unnest(c.run_ids) AS x(run_id)
  CROSS JOIN LATERAL (SELECT y.status, y.claimed_by, y.gates, y.gate_units, y.gate_shards FROM ${s}.runs y WHERE y.id = x.run_id LIMIT 1) r
  WHERE c.environment_id = (SELECT id FROM environment) AND r.status = 'running' AND r.claimed_by = c.id AND r.gates IS NOT NULL
  UNION ALL
  SELECT r.gates, r.gate_units, r.gate_shards, r.held_gates FROM ${s}.runs r
  WHERE r.environment_id = (SELECT id FROM environment) AND r.held_gates IS NOT NULL AND r.status <> 'running' AND r.finished_at IS NULL
),
truth AS MATERIALIZED (
  SELECT g.gate, coalesce(h.gate_shards[g.n], 0) AS shard, sum(coalesce(h.gate_units[g.n], 1))::int AS held
  FROM holders h CROSS JOIN LATERAL unnest(h.gates) WITH ORDINALITY AS g(gate, n) WHERE g.gate = ANY (h.held) GROUP BY 1, 2
),
found AS MATERIALIZED (
  SELECT x.gate, x.shard, coalesce(t.held, 0) AS held, p.burst IS NOT NULL AND ${someBlocked(s, 'x.gate', '(SELECT id FROM environment)')} IS NOT NULL AS awaited
  FROM page x LEFT JOIN truth t ON t.gate = x.gate AND t.shard = x.shard ${policyOf(s, '(SELECT id FROM environment)', 'x.gate')}
)
UPDATE ${s}.limit_counters c SET held = f.held, due_at = CASE WHEN f.awaited THEN least(c.due_at, (SELECT now FROM environment)) ELSE c.due_at END
FROM found f
WHERE ${ON_PAGE} AND f.gate = c.gate AND f.shard = c.shard AND (c.held <> f.held OR f.awaited AND coalesce(c.due_at > (SELECT now FROM environment), true))
`,
  params,
)

/**
 * Gates of the page that somebody is blocked on: each a probe. `is_short`: some of its counters are not there, since its limit has been given more
 * shards, and what is held fits those that are: made, they let in no more than the limit has.
 */
export const readBlockedGates = defineStatement<GatePageParams>(
  'read_blocked_gates',
  (s) => `
WITH ${page(s)}
SELECT x.gate, (
    SELECT count(*) FILTER (WHERE c.shard < p.shards) < p.shards AND coalesce(sum(c.held) <= sum(${capacity}), true)
    FROM ${s}.limit_counters c WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = x.gate) AS is_short
FROM (SELECT DISTINCT gate FROM page) x ${policyOf(s, '(SELECT id FROM environment)', 'x.gate')}
WHERE ${someBlocked(s, 'x.gate', '(SELECT id FROM environment)')}
`,
  params,
)

/**
 * Deletes locked counters that say what a new one would: nobody holds or awaits anything, and the bucket is full. Blocking needs the
 * row, so nobody can be blocked on it unseen; who comes later has it made again. Then turns the page: the next begins before the last
 * gate of this one, whose other shards may be there.
 */
export const dropIdleGates = defineStatement<GatePageParams>(
  'drop_idle_gates',
  (s) => `
WITH ${page(s)},
idle AS MATERIALIZED (
  SELECT c.ctid AS place FROM ${s}.limit_counters c ${policyOf(s, 'c.environment_id', 'c.gate')} CROSS JOIN environment e
  WHERE ${ON_PAGE} AND c.held = 0 AND c.due_at IS NULL AND (p.burst IS NULL OR (${tokensAt('e.now')}) >= p.burst / p.shards)
    AND ${someBlocked(s, 'c.gate', 'c.environment_id')} IS NULL
),
gone AS (DELETE FROM ${s}.limit_counters c WHERE c.ctid = ANY (ARRAY(SELECT i.place FROM idle i)) RETURNING 1),
reached AS (SELECT count(*) AS n, max(x.gate) AS last FROM page x)
UPDATE ${s}.environments e
SET gate_cursor = CASE WHEN r.n >= (SELECT $3::int) THEN coalesce((SELECT max(x.gate) FROM page x WHERE x.gate < r.last), r.last) END
FROM reached r WHERE e.name = $2::text AND (e.gate_cursor IS NOT NULL OR r.n >= (SELECT $3::int))
`,
  params,
)
