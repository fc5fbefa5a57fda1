/**
 * The part of a claim that admits runs with gates, as CTEs: which of the runs that it has locked may start, and what that leaves of each
 * counter. All of it is empty, and costs nothing, for runs without gates.
 */
import {
  MINT_LOCK_CLASS,
  MINTED_AT_ONCE,
  policyOf,
  slotsAsked,
  slotsLeft,
  tokensAsked,
  tokensAt,
  tokensTaken,
  whenTokens,
  wholeTokens,
} from './gate-arithmetic.ts'

const NOW = '(SELECT coalesce($1::timestamptz, now()))'
const ENVIRONMENT = '(SELECT id FROM environment)'
/** Counters of one sharded gate that a claim takes at most, so that those beside it find some too. */
const SHARDS_PER_CLAIM = 3

/** What the counters are asked for, and what they have. A counter that others hold is passed over: it proves nothing. */
const asking = (s: string) => `
wanted AS MATERIALIZED (
  SELECT f.id, f.turn, g.gate, g.n, coalesce(r.gate_units[g.n], 1) AS units, coalesce(g.gate = ANY (r.held_gates), false) AS kept, coalesce(r.gate_shards[g.n], 0) AS kept_shard,
    r.priority, r.available_at, r.position
  FROM fitting f
  CROSS JOIN LATERAL (SELECT x.gates, x.gate_units, x.held_gates, x.gate_shards, x.priority, x.available_at, x.position FROM ${s}.runs x WHERE x.ctid = f.place AND x.id = f.id LIMIT 1) r
  CROSS JOIN LATERAL unnest(r.gates) WITH ORDINALITY AS g(gate, n)
  WHERE cardinality(f.gates) BETWEEN 1 AND 1000000
),
needed AS MATERIALIZED (
  SELECT w.gate, p.* FROM (SELECT DISTINCT gate FROM wanted) w ${policyOf(s, ENVIRONMENT, 'w.gate')}
),
missing AS MATERIALIZED (
  SELECT p.gate, x.shard FROM needed p CROSS JOIN LATERAL generate_series(0, p.shards - 1) AS x(shard)
  WHERE NOT EXISTS (SELECT FROM ${s}.limit_counters c WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard = x.shard)
  ORDER BY p.gate, x.shard LIMIT ${MINTED_AT_ONCE}
),
minted AS (
  INSERT INTO ${s}.limit_counters (environment_id, gate, shard)
  SELECT ${ENVIRONMENT}, m.gate, m.shard FROM missing m
  WHERE pg_try_advisory_xact_lock(${MINT_LOCK_CLASS}, hashtext(m.gate))
  ON CONFLICT DO NOTHING
  RETURNING 1
),
grabbed AS MATERIALIZED (
  SELECT p.gate, c.shard, c.held, c.slots, ${wholeTokens('c.tokens')} AS whole_tokens
  FROM needed p
  CROSS JOIN LATERAL (
    SELECT c.shard, c.held, ${slotsLeft} AS slots, ${tokensAt(NOW)} AS tokens
    FROM ${s}.limit_counters c
    WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate
    ORDER BY coalesce((${slotsLeft}) < 1, false) OR coalesce((${tokensAt(NOW)}) < 1, false), mod(c.shard + mod(hashtext($3::uuid::text), 512) + 512, p.shards)
    LIMIT ${SHARDS_PER_CLAIM}
    FOR UPDATE OF c SKIP LOCKED
  ) c
),
room AS MATERIALIZED (
  SELECT x.*, sum(x.slots) OVER shards - x.slots AS slots_before, sum(x.whole_tokens) OVER shards - x.whole_tokens AS tokens_before
  FROM (
    SELECT g.gate, g.shard, g.held, CASE WHEN p.shards > 1 THEN least(g.slots, g.whole_tokens + 0 * g.slots) ELSE g.slots END AS slots,
      CASE WHEN p.shards > 1 THEN least(g.whole_tokens, g.slots + 0 * g.whole_tokens) ELSE g.whole_tokens END AS whole_tokens
    FROM grabbed g JOIN needed p ON p.gate = g.gate
  ) x
  WINDOW shards AS (PARTITION BY x.gate ORDER BY x.shard ROWS UNBOUNDED PRECEDING)
),
heads AS MATERIALIZED (
  SELECT g.gate, h.*, ${slotsAsked('h.units')} > g.slots OR ${tokensAsked('h.units')} > g.tokens AS waits
  FROM (SELECT gate, max(slots) AS slots, max(whole_tokens) AS tokens FROM room GROUP BY gate) g
  JOIN needed p ON p.gate = g.gate
  CROSS JOIN LATERAL (
    SELECT coalesce(r.gate_units[array_position(r.gates, g.gate)], 1) AS units, r.priority, r.available_at, r.position FROM ${s}.runs r
    WHERE r.blocked_on = g.gate AND r.environment_id = ${ENVIRONMENT} ORDER BY r.priority, r.available_at, r.position LIMIT 1
  ) h
  WHERE h.units > 1
)`

/** Who is admitted, in the order of the claim: to the shard in which all it asks for is left. */
const judging = `
asked AS MATERIALIZED (
  SELECT w.*, sum(w.slots) OVER before AS slots_sum, sum(w.tokens) OVER before AS tokens_sum,
    EXISTS (SELECT FROM heads h WHERE h.gate = w.gate AND h.waits AND (w.priority, w.available_at, w.position) > (h.priority, h.available_at, h.position)) AS behind
  FROM (
    SELECT w.*, CASE WHEN w.kept THEN 0 ELSE ${slotsAsked('w.units')} END AS slots, CASE WHEN w.kept THEN 0 ELSE ${tokensAsked('w.units')} END AS tokens
    FROM wanted w JOIN needed p ON p.gate = w.gate
  ) w
  WINDOW before AS (PARTITION BY w.gate ORDER BY w.turn ROWS UNBOUNDED PRECEDING)
),
ranked AS MATERIALIZED (
  SELECT a.id, a.turn, a.gate, a.n, a.units, a.kept, a.kept_shard, a.slots, a.tokens, a.behind, r.shard, a.kept OR r.shard IS NOT NULL AS fits
  FROM asked a LEFT JOIN room r ON r.gate = a.gate AND NOT a.kept AND NOT a.behind
    AND (a.slots = 0 OR a.slots_sum - a.slots >= coalesce(r.slots_before, 0) AND (r.slots IS NULL OR a.slots_sum <= r.slots_before + r.slots))
    AND (a.tokens = 0 OR a.tokens_sum - a.tokens >= r.tokens_before AND a.tokens_sum <= r.tokens_before + r.whole_tokens)
),
verdicts AS MATERIALIZED (
  SELECT r.id, bool_and(r.fits) AS admitted, array_agg(CASE WHEN r.kept THEN r.kept_shard ELSE r.shard END::smallint ORDER BY r.n) AS shards FROM ranked r GROUP BY r.id
)`

/** Ahead of the update that claims. */
export const admitting = (s: string) => `${asking(s)},${judging}`

/** Which counter of each gate a claimed run holds; null when it is the first of each. */
export const SHARDS_TAKEN = `CASE WHEN c.gates IS NULL THEN NULL ELSE (
    SELECT CASE WHEN 0 = ALL (v.shards) THEN NULL ELSE v.shards END FROM verdicts v WHERE v.id = c.id) END`

/**
 * Behind the update that claims: what was really claimed is debited, and who does not fit what that leaves is blocked. Only a claim that
 * holds a counter and saw it full may block a run on it. Somebody holds the slots then and hands over when he gives them back, which comes
 * after this claim since it needs the row; and for tokens there is `due_at`.
 */
export const debiting = (s: string) => `
taken AS MATERIALIZED (
  SELECT r.gate, r.shard, sum(r.units)::int AS held, sum(r.slots)::int AS slots, sum(r.tokens)::int AS tokens
  FROM claimed c JOIN ranked r ON r.id = c.id WHERE r.shard IS NOT NULL GROUP BY r.gate, r.shard
),
remaining AS MATERIALIZED (
  SELECT m.gate, m.slots, m.tokens, m.held, p.shards > 1 AND EXISTS (
    SELECT FROM ${s}.limit_counters c
    WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = m.gate AND c.shard < p.shards AND c.shard <> ALL (m.shards)
      AND coalesce((${slotsLeft}) > 0, true) AND coalesce(${wholeTokens(`(${tokensAt(NOW)})`)} > 0, true)) AS elsewhere
  FROM (
    SELECT r.gate, array_agg(r.shard) AS shards, max(r.slots - coalesce(t.slots, 0)) AS slots, max(r.whole_tokens - coalesce(t.tokens, 0)) AS tokens,
      sum(r.held + coalesce(t.held, 0)) AS held
    FROM room r LEFT JOIN taken t ON t.gate = r.gate AND t.shard = r.shard GROUP BY r.gate
  ) m JOIN needed p ON p.gate = m.gate
),
blocked AS (
  UPDATE ${s}.runs r SET blocked_on = d.gate
  FROM (
    SELECT f.id, f.place, min(a.gate) AS gate
    FROM ranked a JOIN remaining m ON m.gate = a.gate JOIN verdicts v ON v.id = a.id AND NOT v.admitted JOIN fitting f ON f.id = a.id
    WHERE NOT a.fits AND NOT m.elsewhere AND (a.slots > m.slots OR a.tokens > m.tokens OR a.behind AND (m.held > 0 OR a.tokens > 0))
    GROUP BY f.id, f.place
  ) d
  WHERE r.id = d.id AND r.ctid = d.place AND r.status = 'pending'
  RETURNING r.id, r.blocked_on AS gate
),
awaited AS MATERIALIZED (
  SELECT b.gate, (array_agg(a.tokens ORDER BY a.turn))[1] AS tokens
  FROM blocked b JOIN ranked a ON a.id = b.id AND a.gate = b.gate JOIN remaining m ON m.gate = b.gate
  WHERE a.tokens > m.tokens OR a.behind AND a.tokens > 0 GROUP BY b.gate
),
debited AS (
  UPDATE ${s}.limit_counters c
  SET held = c.held + u.held,
    available = CASE WHEN p.burst IS NULL THEN c.available ELSE ${tokensTaken(NOW, 'u.tokens')} END,
    refilled_at = CASE WHEN p.burst IS NULL THEN c.refilled_at ELSE greatest(c.refilled_at, ${NOW}) END,
    due_at = CASE WHEN u.awaited IS NULL THEN c.due_at ELSE least(c.due_at, ${whenTokens(NOW, `u.awaited - ((${tokensAt(NOW)}) - u.tokens)`)}) END
  FROM (
    SELECT g.gate, g.shard, coalesce(t.held, 0) AS held, coalesce(t.tokens, 0) AS tokens, w.tokens AS awaited
    FROM grabbed g LEFT JOIN taken t ON t.gate = g.gate AND t.shard = g.shard LEFT JOIN awaited w ON w.gate = g.gate
    WHERE t.gate IS NOT NULL OR w.gate IS NOT NULL
  ) u JOIN needed p ON p.gate = u.gate
  WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = u.gate AND c.shard = u.shard
)`
