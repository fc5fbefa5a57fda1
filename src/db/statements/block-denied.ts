/** What lies behind runs that their gates deny, in bulk: so many leave the window ahead of a claim that it need not do so a few at a time. */
import { heads, SHARDS_PER_CLAIM } from './claim-gates.ts'
import { hasRoom, policyOf, slotsAsked, slotsLeft, tokensAsked, tokensAt, whenTokens, wholeTokens } from './gate-arithmetic.ts'
import { defineStatement } from './statement.ts'

const NOW = '(SELECT coalesce($1::timestamptz, now()))'
const ENVIRONMENT = '(SELECT id FROM environment)'
/** Gates that are looked at: each is locked. */
const GATES_AT_ONCE = 500
/** Rows of the window that are looked at, at most. */
export const DENIED_AT_ONCE = 5_000

export interface BlockDeniedParams {
  readonly now: string | null
  readonly environment: string
  /** Where runs were denied. */
  readonly lanes: readonly number[]
  /** Rows of the window to look at in each lane; 5,000 over all lanes at most. */
  readonly limit: number
}

/** The front of the window, which is read and not locked, what it asks for, and some counters of each gate. */
const looking = (s: string) => `
front AS MATERIALIZED (
  SELECT c.*
  FROM unnest($3::int[]) AS l(lane_id)
  CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT y.ctid AS spot, r.ctid AS place, r.id, y.priority, y.available_at, y.position, r.gates, r.gate_units, r.held_gates
      FROM ${s}.ready y JOIN ${s}.runs r ON r.id = y.run_id
      WHERE y.lane_id = l.lane_id
      ORDER BY y.priority, y.available_at, y.position
      LIMIT (SELECT $4::int)
    ) x LIMIT ${DENIED_AT_ONCE}
  ) c
  LIMIT ${DENIED_AT_ONCE}
),
wanted AS MATERIALIZED (
  SELECT f.spot, f.place, f.id, f.priority, f.available_at, f.position, g.gate, coalesce(f.gate_units[g.n], 1) AS units
  FROM front f CROSS JOIN LATERAL unnest(f.gates) WITH ORDINALITY AS g(gate, n)
  WHERE f.gates IS NOT NULL AND (f.held_gates IS NULL OR g.gate <> ALL (f.held_gates))
),
needed AS MATERIALIZED (
  SELECT w.gate, p.* FROM (SELECT gate FROM wanted GROUP BY gate ORDER BY count(*) DESC, gate LIMIT ${GATES_AT_ONCE}) w ${policyOf(s, ENVIRONMENT, 'w.gate')}
),
room AS MATERIALIZED (
  SELECT p.*, c.shard, c.held, c.slots, c.tokens, ${wholeTokens('c.tokens')} AS whole_tokens
  FROM needed p
  CROSS JOIN LATERAL (
    SELECT c.shard, c.held, ${slotsLeft} AS slots, ${tokensAt(NOW)} AS tokens FROM ${s}.limit_counters c
    WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard < p.shards
    ORDER BY c.held DESC, c.shard LIMIT ${SHARDS_PER_CLAIM} FOR UPDATE OF c SKIP LOCKED
  ) c
),
ajar AS (SELECT * FROM room r WHERE coalesce(r.slots > 0, true) AND coalesce(r.whole_tokens > 0, true)),${heads(s, 'ajar')}`

/**
 * Whom a gate denies: there is no room for what he asks in the counters that are locked here, or somebody heavier waits ahead of him, for what others hold or for
 * tokens; and there is none in the others either, all of which are there.
 */
const denying = (s: string) => `
seen AS MATERIALIZED (
  SELECT p.gate, p.concurrency, p.burst, p.ms_per_token, p.shards, array_agg(p.shard) AS seen, sum(p.held) AS held
  FROM room p GROUP BY p.gate, p.concurrency, p.burst, p.ms_per_token, p.shards
),
asked AS MATERIALIZED (
  SELECT x.gate, x.units, p.held, ${tokensAsked('x.units')} AS tokens,
    EXISTS (SELECT FROM ajar r WHERE r.gate = x.gate AND coalesce(r.slots >= ${slotsAsked('x.units')}, true) AND coalesce(r.whole_tokens >= ${tokensAsked('x.units')}, true)) AS fits
  FROM (SELECT DISTINCT w.gate, w.units FROM wanted w) x JOIN seen p ON p.gate = x.gate
  WHERE p.shards = 1 OR NOT EXISTS (
      SELECT FROM ${s}.limit_counters c
      WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = x.gate AND c.shard < p.shards AND c.shard <> ALL (p.seen)
        AND ${hasRoom(slotsAsked('x.units'), tokensAsked('x.units'), NOW)}
    ) AND (SELECT count(*) FROM ${s}.limit_counters c WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = x.gate AND c.shard < p.shards) = p.shards
),
denied AS MATERIALIZED (
  SELECT DISTINCT ON (w.id) w.id, w.place, w.spot, w.gate, a.tokens
  FROM wanted w JOIN asked a ON a.gate = w.gate AND a.units = w.units
  WHERE NOT a.fits OR (
    (a.held > 0 OR a.tokens > 0)
    AND EXISTS (SELECT FROM heads h WHERE h.gate = w.gate AND (w.priority, w.available_at, w.position) > (h.priority, h.available_at, h.position)))
  ORDER BY w.id, w.gate LIMIT ${DENIED_AT_ONCE}
)`

/**
 * Takes runs out of the claim window that would be denied one claim after another: all that a gate has no room for among the first of those lanes. Sent
 * ahead of a claim, once most of what the one before looked at was denied. By the rules of the claim: only who holds a counter and saw it full
 * blocks on it, nobody is waited for, and rows are written where they were read. Answers how many left, and of which lanes.
 */
export const blockDenied = defineStatement<BlockDeniedParams>(
  'block_denied',
  (s) => `
WITH environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $2::text),${looking(s)},${denying(s)},
locked AS MATERIALIZED (
  SELECT d.* FROM denied d
  CROSS JOIN LATERAL (
    SELECT r.id FROM ${s}.runs r WHERE r.ctid = d.place AND r.id = d.id AND r.status = 'pending' LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED
  ) r
),
blocked AS (
  UPDATE ${s}.runs r SET blocked_on = k.gate FROM locked k WHERE r.ctid = k.place AND r.id = k.id AND r.status = 'pending'
  RETURNING k.spot, k.gate, k.tokens, r.lane_id, r.priority, r.available_at, r.position
),
removed AS (
  DELETE FROM ${s}.ready y WHERE y.ctid = ANY (ARRAY(SELECT b.spot FROM blocked b))
),
awaited AS (
  SELECT b.gate, (array_agg(b.tokens ORDER BY b.priority, b.available_at, b.position))[1] AS tokens FROM blocked b WHERE b.tokens > 0 GROUP BY b.gate
),
noted AS (
  UPDATE ${s}.limit_counters c SET due_at = least(c.due_at, ${whenTokens(NOW, `p.awaited - (${tokensAt(NOW)})`)})
  FROM (SELECT r.*, w.tokens AS awaited FROM awaited w JOIN room r ON r.gate = w.gate) p
  WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard = p.shard
)
SELECT count(*)::int AS blocked, array_agg(DISTINCT b.lane_id) AS lanes FROM blocked b
`,
  (p) => [p.now, p.environment, p.lanes, p.limit],
)
