/**
 * The part of a claim that admits runs with gates, as CTEs: which of the runs that it has locked may start, and what that leaves of each
 * counter. It is worked out for all of them at once; what only a denial needs is behind a one-time filter. All of it is empty for runs
 * without gates.
 */
import { FIRST_COUNTER } from './claim-open-gates.ts'
import {
  hasRoom,
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
export const SHARDS_PER_CLAIM = 3
/** What nobody asks unless a run was denied. */
const IF_DENIED = '(SELECT true FROM verdicts v WHERE NOT v.admitted LIMIT 1)'

/** Who waits for more units of a gate than its counters have left, and comes before all that are behind him. `room`: a CTE with a row per counter. */
export const heads = (s: string, room: string) => `
heads AS MATERIALIZED (
  SELECT p.gate, h.priority, h.available_at, h.position
  FROM (SELECT gate, concurrency, burst, shards, max(slots) AS slots, max(whole_tokens) AS tokens FROM ${room} GROUP BY gate, concurrency, burst, shards) p
  CROSS JOIN LATERAL (
    SELECT coalesce(r.gate_units[array_position(r.gates, p.gate)], 1) AS units, r.priority, r.available_at, r.position FROM ${s}.runs r
    WHERE r.blocked_on = p.gate AND r.environment_id = ${ENVIRONMENT} ORDER BY r.priority, r.available_at, r.position LIMIT 1
  ) h
  WHERE h.units > 1 AND (${slotsAsked('h.units')} > p.slots OR ${tokensAsked('h.units')} > p.tokens)
)`

/**
 * What the counters are asked for, and what they have. A counter that others hold is passed over: it proves nothing. A run that changed after
 * the snapshot asks for nothing: it will not be claimed, and takes no room from those behind it.
 *
 * A shard counts for what it has of both, slots and tokens, so that one place in line is the same for both. Not so (`apart`) where the heaviest run asks
 * unlike amounts of them, being heavier than all that a shard can have of one, and this shard has them: it comes first, so that the next in line always fits it.
 */
const asking = (s: string) => `
wanted AS MATERIALIZED (
  SELECT x.id, x.place, x.turn, x.priority, x.available_at, x.position, x.gate_shards, x.gate, x.n, cardinality(x.gates) AS of_gates,
    coalesce(x.gate_units[x.n], 1) AS units, coalesce(x.gate = ANY (x.held_gates), false) AS kept
  FROM (
    SELECT y.*, array_position(y.gates, y.gate) AS n
    FROM (
      SELECT f.id, f.place, f.turn, r.*, unnest(r.gates) AS gate FROM fitting f
      CROSS JOIN LATERAL (SELECT x.gates, x.gate_units, x.held_gates, x.gate_shards, x.priority, x.available_at, x.position FROM ${s}.runs x WHERE x.ctid = f.place AND x.id = f.id LIMIT 1) r
      WHERE cardinality(f.gates) BETWEEN 1 AND 1000000
    ) y
  ) x
),
needed AS MATERIALIZED (
  SELECT w.gate, w.most, p.* FROM (SELECT gate, max(units) AS most FROM wanted GROUP BY gate) w ${policyOf(s, ENVIRONMENT, 'w.gate')}
),
room AS MATERIALIZED (
  SELECT x.*, sum(x.slots) OVER shards - x.slots AS slots_before, sum(x.whole_tokens) OVER shards - x.whole_tokens AS tokens_before
  FROM (
    SELECT p.*, c.shard, c.held, CASE WHEN c.apart THEN c.slots ELSE least(c.slots, c.whole_tokens + 0 * c.slots) END AS slots,
      CASE WHEN c.apart THEN c.whole_tokens ELSE least(c.whole_tokens, c.slots + 0 * c.whole_tokens) END AS whole_tokens
    FROM needed p
    CROSS JOIN LATERAL (
      SELECT c.*, p.shards = 1 OR c.slots_asked <> c.tokens_asked AND coalesce(c.slots >= c.slots_asked AND c.whole_tokens >= c.tokens_asked, false) AS apart
      FROM (
        SELECT c.shard, c.held, ${slotsLeft} AS slots, ${wholeTokens(`(${tokensAt(NOW)})`)} AS whole_tokens,
          ${slotsAsked('p.most')} AS slots_asked, ${tokensAsked('p.most')} AS tokens_asked
        FROM ${s}.limit_counters c
        WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate
        ORDER BY coalesce((${slotsLeft}) < ${slotsAsked('p.most')}, false) OR coalesce((${tokensAt(NOW)}) < ${tokensAsked('p.most')}, false), ${FIRST_COUNTER}
        LIMIT ${SHARDS_PER_CLAIM}
        FOR UPDATE OF c SKIP LOCKED
      ) c
    ) c
  ) x
  WINDOW shards AS (PARTITION BY x.gate ORDER BY greatest(x.slots, x.whole_tokens) DESC, x.shard ROWS UNBOUNDED PRECEDING)
),${heads(s, 'room')}`

/** Who is admitted, in the order of the claim: to the shard in which all it asks for is left. */
const judging = `
ranked AS MATERIALIZED (
  SELECT a.id, a.place, a.turn, a.gate, a.n, a.of_gates, a.units, a.slots, a.tokens, a.behind, r.shard, a.kept OR r.shard IS NOT NULL AS fits,
    CASE WHEN a.kept THEN coalesce(a.gate_shards[a.n], 0) ELSE r.shard END AS takes
  FROM (
    SELECT w.*, sum(w.slots) OVER before AS slots_sum, sum(w.tokens) OVER before AS tokens_sum,
      EXISTS (SELECT FROM heads h WHERE h.gate = w.gate AND (w.priority, w.available_at, w.position) > (h.priority, h.available_at, h.position)) AS behind
    FROM (
      SELECT w.*, CASE WHEN w.kept THEN 0 ELSE ${slotsAsked('w.units')} END AS slots, CASE WHEN w.kept THEN 0 ELSE ${tokensAsked('w.units')} END AS tokens
      FROM wanted w JOIN needed p ON p.gate = w.gate
    ) w
    WINDOW before AS (PARTITION BY w.gate ORDER BY w.turn ROWS UNBOUNDED PRECEDING)
  ) a
  LEFT JOIN room r ON r.gate = a.gate AND NOT a.kept AND NOT a.behind
    AND (a.slots = 0 OR a.slots_sum - a.slots >= coalesce(r.slots_before, 0) AND (r.slots IS NULL OR a.slots_sum <= r.slots_before + r.slots))
    AND (a.tokens = 0 OR a.tokens_sum - a.tokens >= r.tokens_before AND a.tokens_sum <= r.tokens_before + r.whole_tokens)
),
verdicts AS MATERIALIZED (
  SELECT r.id, r.fits AS admitted, CASE WHEN r.takes > 0 THEN '{' || r.takes || '}' END AS shards FROM ranked r WHERE r.of_gates = 1
  UNION ALL
  SELECT r.id, bool_and(r.fits), CASE WHEN bool_or(r.takes > 0) THEN array_agg(r.takes ORDER BY r.n)::text END FROM ranked r WHERE r.of_gates > 1 GROUP BY r.id
)`

/** Ahead of the update that claims. */
export const admitting = (s: string) => `${asking(s)},${judging}`

/** Which counter of each gate a claimed run holds; null when it is the first of each. */
export const SHARDS_TAKEN = `CASE WHEN c.gates IS NOT NULL THEN
    (ARRAY(SELECT v.shards FROM verdicts v))[array_position(ARRAY(SELECT v.id FROM verdicts v), c.id)]::smallint[] END`

/** Gates whose slots a claimed run had kept until now. */
export const GATES_KEPT = `CASE WHEN (SELECT true FROM wanted w WHERE w.kept LIMIT 1) THEN (SELECT array_agg(w.gate) FROM wanted w WHERE w.id = c.id AND w.kept) END`

/**
 * Behind the update that claims: what was really claimed is debited, and who does not fit what that leaves is blocked. Only a claim that
 * holds a counter and saw it full may block a run on it. Somebody holds the slots then and hands over when he gives them back, which comes
 * after this claim since it needs the row; and for tokens there is `due_at`. A gate some of whose counters are missing blocks nobody: they
 * are made ahead of the next claim.
 */
export const debiting = (s: string) => `
taken AS MATERIALIZED (
  SELECT r.gate, r.shard, sum(r.units)::int AS held, sum(r.slots)::int AS slots, sum(r.tokens)::int AS tokens
  FROM claimed c JOIN ranked r ON r.id = c.id WHERE r.shard IS NOT NULL GROUP BY r.gate, r.shard
),
missing AS MATERIALIZED (
  SELECT p.gate FROM needed p
  WHERE ${IF_DENIED} AND p.gate IN (SELECT a.gate FROM ranked a WHERE NOT a.fits)
    AND (SELECT count(*) FROM ${s}.limit_counters c WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard < p.shards) < p.shards
),
remaining AS MATERIALIZED (
  SELECT r.gate, r.concurrency, r.burst, r.ms_per_token, r.shards, array_agg(r.shard) AS seen, max(r.slots - coalesce(t.slots, 0)) AS slots,
    max(r.whole_tokens - coalesce(t.tokens, 0)) AS tokens, sum(r.held + coalesce(t.held, 0)) AS held
  FROM room r LEFT JOIN taken t ON t.gate = r.gate AND t.shard = r.shard WHERE ${IF_DENIED} GROUP BY r.gate, r.concurrency, r.burst, r.ms_per_token, r.shards
),
elsewhere AS MATERIALIZED (
  SELECT x.gate, x.slots, x.tokens FROM (SELECT DISTINCT a.gate, a.slots, a.tokens FROM ranked a WHERE NOT a.fits) x JOIN remaining p ON p.gate = x.gate
  WHERE p.shards > 1 AND (p.gate IN (SELECT m.gate FROM missing m) OR EXISTS (
    SELECT FROM ${s}.limit_counters c
    WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard < p.shards AND c.shard <> ALL (p.seen)
      AND ${hasRoom('x.slots', 'x.tokens', NOW)}))
),
blocked AS (
  UPDATE ${s}.runs r SET blocked_on = d.gate
  FROM (
    SELECT DISTINCT ON (a.id) a.id, a.place, a.turn, a.gate, CASE WHEN a.tokens > m.tokens OR a.behind AND a.tokens > 0 THEN a.tokens END AS tokens
    FROM ranked a JOIN remaining m ON m.gate = a.gate JOIN verdicts v ON v.id = a.id AND NOT v.admitted
    WHERE NOT a.fits AND (a.gate, a.slots, a.tokens) NOT IN (SELECT x.gate, x.slots, x.tokens FROM elsewhere x) AND (a.slots > m.slots OR a.tokens > m.tokens OR a.behind AND (m.held > 0 OR a.tokens > 0))
    ORDER BY a.id, a.gate
  ) d
  WHERE r.id = d.id AND r.ctid = d.place AND r.status = 'pending'
  RETURNING r.id, r.lane_id, d.gate, d.turn, d.tokens
),
awaited AS (
  SELECT b.gate, (array_agg(b.tokens ORDER BY b.turn))[1] AS tokens FROM blocked b WHERE b.tokens IS NOT NULL GROUP BY b.gate
),
debited AS (
  UPDATE ${s}.limit_counters c
  SET held = c.held + p.taken,
    available = CASE WHEN p.burst IS NULL THEN c.available ELSE ${tokensTaken(NOW, 'p.tokens')} END,
    refilled_at = CASE WHEN p.burst IS NULL THEN c.refilled_at ELSE greatest(c.refilled_at, ${NOW}) END,
    due_at = CASE WHEN p.awaited IS NULL THEN c.due_at ELSE least(c.due_at, ${whenTokens(NOW, `p.awaited - ((${tokensAt(NOW)}) - p.tokens)`)}) END
  FROM (
    SELECT r.gate, r.concurrency, r.burst, r.ms_per_token, r.shards, r.shard, coalesce(t.held, 0) AS taken, coalesce(t.tokens, 0) AS tokens, w.tokens AS awaited
    FROM room r LEFT JOIN taken t ON t.gate = r.gate AND t.shard = r.shard LEFT JOIN awaited w ON w.gate = r.gate
    WHERE t.gate IS NOT NULL OR w.gate IS NOT NULL
  ) p
  WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard = p.shard
)`
