/** Slots and tokens of gates outside the claim: counters made, slots given back and kept, and those handed over to who waits. */
import {
  MINT_LOCK_CLASS,
  MINTED_AT_ONCE,
  policyOf,
  slotsAsked,
  slotsLeft,
  someBlocked,
  tokensAsked,
  tokensAt,
  tokensGiven,
  whenTokens,
  wholeTokens,
} from './gate-arithmetic.ts'
import { type SettledParams, settled } from './settle-outcomes.ts'
import { defineStatement } from './statement.ts'
import { intoWindow } from './window.ts'

export interface MintGatesParams {
  readonly environment: string
  readonly gates: readonly string[]
}

/**
 * Makes the counters of gates that have none, so that the first claim of a run finds them and admits at once. Under a lock that is tried and
 * not waited for: who is making the same counter may hold it for as long as a caller's transaction lasts. What is not made here the claim
 * makes.
 */
export const mintGates = defineStatement<MintGatesParams>(
  'mint_gates',
  (s) => `
WITH environment AS (SELECT id FROM ${s}.environments WHERE name = $1::text),
missing AS MATERIALIZED (
  SELECT e.id AS environment_id, g.gate, x.shard FROM environment e CROSS JOIN (SELECT DISTINCT gate FROM unnest($2::text[]) AS u(gate)) g ${policyOf(s, 'e.id', 'g.gate')}
  CROSS JOIN LATERAL generate_series(0, p.shards - 1) AS x(shard)
  WHERE (SELECT true FROM ${s}.limit_counters c WHERE c.environment_id = e.id AND c.gate = g.gate AND c.shard = x.shard) IS NULL
  ORDER BY g.gate, x.shard LIMIT ${MINTED_AT_ONCE}
)
INSERT INTO ${s}.limit_counters (environment_id, gate, shard)
SELECT m.environment_id, m.gate, m.shard FROM missing m WHERE pg_try_advisory_xact_lock(${MINT_LOCK_CLASS}, hashtext(m.gate))
ON CONFLICT DO NOTHING
`,
  (p) => [p.environment, p.gates],
)

/**
 * Gives back the slots of runs that left `running` in this batch and do not keep them, once each: the counter first, who inherits it in a
 * later statement. What was claimed and not started gets its tokens back. Where there is a rate beside the slots, who waits is looked at
 * by `promote_gates`.
 */
export const releaseGates = defineStatement<SettledParams & { readonly now: string | null }>(
  'release_gates',
  (s) => `
WITH ${settled(s, '$2')},
freed AS (
  SELECT x.environment_id, g.gate, coalesce(x.gate_shards[g.n], 0) AS shard, sum(coalesce(x.gate_units[g.n], 1))::int AS n,
    sum(CASE WHEN x.outcome = 'release' THEN coalesce(x.gate_units[g.n], 1) ELSE 0 END)::int AS unused
  FROM settled x CROSS JOIN LATERAL unnest(x.gates) WITH ORDINALITY AS g(gate, n)
  WHERE x.gates IS NOT NULL AND x.status <> 'running' AND (x.held_gates IS NULL OR g.gate <> ALL (x.held_gates)) GROUP BY 1, 2, 3
),
counters AS MATERIALIZED (
  SELECT c.environment_id, c.gate, c.shard FROM ${s}.limit_counters c JOIN freed f ON f.environment_id = c.environment_id AND f.gate = c.gate AND f.shard = c.shard
  ORDER BY c.gate, c.shard FOR UPDATE OF c
)
UPDATE ${s}.limit_counters c
SET held = greatest(c.held - f.n, 0),
  available = CASE WHEN p.burst IS NULL OR f.unused = 0 THEN c.available ELSE ${tokensGiven('(SELECT coalesce($1::timestamptz, now()))', 'f.unused')} END,
  refilled_at = CASE WHEN p.burst IS NULL OR f.unused = 0 THEN c.refilled_at ELSE greatest(c.refilled_at, (SELECT coalesce($1::timestamptz, now()))) END,
  due_at = CASE WHEN p.burst IS NULL OR p.concurrency IS NULL AND f.unused = 0 THEN c.due_at ELSE least(c.due_at, (SELECT coalesce($1::timestamptz, now()))) END
FROM freed f ${policyOf(s, 'f.environment_id', 'f.gate')} CROSS JOIN counters k
WHERE c.environment_id = f.environment_id AND c.gate = f.gate AND c.shard = f.shard AND k.environment_id = f.environment_id AND k.gate = f.gate AND k.shard = f.shard
`,
  (p) => [p.now, p.ids],
)

/**
 * Runs that went on or parked in this batch keep their slots meanwhile: ahead of `release_gates`, which passes them over. A gate of a rate
 * alone has none to keep.
 */
export const keepGates = defineStatement<SettledParams>(
  'keep_gates',
  (s) => `
WITH ${settled(s, '$1')}
UPDATE ${s}.runs r SET held_gates = k.gates
FROM (
  SELECT x.id, array_agg(g.gate ORDER BY g.gate) AS gates FROM settled x CROSS JOIN LATERAL unnest(x.gates) AS g(gate) ${policyOf(s, 'x.environment_id', 'g.gate')}
  WHERE x.status IN ('pending', 'waiting') AND p.concurrency IS NOT NULL GROUP BY x.id
) k
WHERE r.id = ANY ($1::uuid[]) AND r.id = k.id
`,
  (p) => [p.ids],
)

export interface SwitchGatesParams extends SettledParams {
  /** The gates of each from now on, and their units; null: none, and one each. Parallel to the ids. */
  readonly gates: readonly (string | null)[]
  readonly units: readonly (string | null)[]
}

/** Gives runs that went on or parked in this batch other gates: behind `release_gates`, which gives back the old ones. */
export const switchGates = defineStatement<SwitchGatesParams>(
  'switch_gates',
  (s) => `
WITH ${settled(s, '$1')}
UPDATE ${s}.runs r SET gates = string_to_array(i.gates, E'\\x1e'), gate_units = string_to_array(i.units, ',')::int[], gate_shards = NULL, held_gates = NULL
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS i(id, gates, units)
WHERE r.id = ANY (ARRAY(SELECT x.id FROM settled x WHERE x.status IN ('pending', 'waiting'))) AND i.id = r.id
`,
  (p) => [p.ids, p.gates, p.units],
)

/**
 * Gives back what runs that have ended otherwise than by an outcome (cancelled while they waited) had kept. Asked in a way that
 * `runs_held_gates_idx` does not answer: they are found by their ids. Counters are locked in the order that all others keep.
 */
export const releaseKept = defineStatement<SettledParams & { readonly now: string | null }>(
  'release_kept',
  (s) => `
WITH kept AS MATERIALIZED (
  SELECT r.id, r.environment_id, r.gates, r.gate_units, r.gate_shards, r.held_gates FROM ${s}.runs r
  WHERE r.id = ANY ($2::uuid[]) AND coalesce(cardinality(r.held_gates), 0) > 0 AND r.finished_at IS NOT NULL FOR NO KEY UPDATE OF r
),
let_go AS (UPDATE ${s}.runs r SET held_gates = NULL WHERE r.id = ANY (ARRAY(SELECT k.id FROM kept k))),
freed AS (
  SELECT x.environment_id, g.gate, coalesce(x.gate_shards[g.n], 0) AS shard, sum(coalesce(x.gate_units[g.n], 1))::int AS n
  FROM kept x CROSS JOIN LATERAL unnest(x.gates) WITH ORDINALITY AS g(gate, n) WHERE g.gate = ANY (x.held_gates) GROUP BY 1, 2, 3
),
counters AS MATERIALIZED (
  SELECT c.environment_id, c.gate, c.shard, f.n FROM freed f JOIN ${s}.limit_counters c ON c.environment_id = f.environment_id AND c.gate = f.gate AND c.shard = f.shard
  ORDER BY c.gate, c.shard FOR UPDATE OF c
)
UPDATE ${s}.limit_counters c
SET held = greatest(c.held - k.n, 0), due_at = CASE WHEN c.refilled_at IS NULL THEN c.due_at ELSE least(c.due_at, (SELECT coalesce($1::timestamptz, now()))) END
FROM counters k WHERE c.environment_id = k.environment_id AND c.gate = k.gate AND c.shard = k.shard
`,
  (p) => [p.now, p.ids],
)

/** Runs handed over by one gate at once. */
const HEIRS_AT_ONCE = 1_000
/** How many more a late hand-over looks at, so that a line of paused ones is not moved a few at a time. */
const LATE_HEIRS = 100

/**
 * Who comes next on `room.gate`, in order, as far as `room.n` units go, and none is heavier than `room.best`, what the
 * fullest of the counters can take (`room.whole` is the heaviest there is): nobody overtakes a heavy one that has to wait. One whose queue or
 * definition is paused takes none of them: it waits for the resumption in the window from now on, and is in nobody's way.
 */
const heirsOf = (s: string, lock: string, more = 0) => `
    SELECT y.id, y.units FROM (
      SELECT x.id, least(x.weight, room.most) AS units, sum(least(x.weight, room.most)) OVER (ORDER BY x.priority, x.available_at, x.position ROWS UNBOUNDED PRECEDING) AS up_to,
        max(x.weight) OVER (ORDER BY x.priority, x.available_at, x.position ROWS UNBOUNDED PRECEDING) AS heaviest FROM (
        SELECT r.id, r.priority, r.available_at, r.position, CASE WHEN (SELECT l.paused FROM ${s}.lanes l WHERE l.id = r.lane_id) THEN 0
          ELSE least(coalesce(r.gate_units[array_position(r.gates, room.gate)], 1), room.whole) END AS weight FROM ${s}.runs r
        WHERE r.blocked_on = room.gate AND r.environment_id = room.environment_id ORDER BY r.priority, r.available_at, r.position
        LIMIT ${more === 0 ? `least(greatest(room.n, 0), ${HEIRS_AT_ONCE})` : `CASE WHEN room.n > 0 THEN least(room.n + ${more}, ${HEIRS_AT_ONCE}) ELSE 0 END`} ${lock}
      ) x
    ) y WHERE y.up_to <= room.n AND y.heaviest <= room.best`

/**
 * Written by id: an heir that changed after the snapshot (a signal came) is an heir all the same. That it is still blocked is asked in a
 * way that `runs_blocked_idx` does not answer, which would be read to its end.
 */
const freeing = (s: string) => `
freed AS (
  UPDATE ${s}.runs r SET blocked_on = NULL
  WHERE r.id = ANY (ARRAY(SELECT h.id FROM heirs h)) AND coalesce(r.blocked_on, '') <> ''
  RETURNING r.id, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold, r.status
),
windowed AS (
  ${intoWindow(s, 'freed', `x.hold IS NULL AND x.status = 'pending'`)}
  ON CONFLICT DO NOTHING
)`

export interface HandOverParams {
  readonly environment: string
  /** Gates that may have room. */
  readonly gates: readonly string[]
}

const handingOver = (s: string, lock: string, more = 0) => `
WITH room AS (
  SELECT c.environment_id, c.gate, sum(${slotsLeft})::int AS n, max(${slotsLeft}) AS best, greatest(min(p.concurrency / p.shards), 1) AS most, greatest(min(p.concurrency / p.shards), 1) AS whole
  FROM ${s}.environments e JOIN ${s}.limit_counters c ON c.environment_id = e.id AND c.gate = ANY ($2::text[]) ${policyOf(s, 'c.environment_id', 'c.gate')}
  WHERE e.name = $1::text AND p.burst IS NULL
  GROUP BY c.environment_id, c.gate HAVING ${someBlocked(s, 'c.gate', 'c.environment_id')}
),
heirs AS MATERIALIZED (
  SELECT w.id, w.units, room.gate FROM room CROSS JOIN LATERAL (${heirsOf(s, lock, more)}
  ) w
),
${freeing(s)}
SELECT room.gate FROM room
WHERE (SELECT true FROM heirs h WHERE h.gate = room.gate AND h.units = 0 LIMIT 1)
  OR (SELECT count(*) FROM heirs h WHERE h.gate = room.gate) < (SELECT count(*) FROM (${heirsOf(s, '', more)}
  ) w)
`

/**
 * Puts runs blocked on a gate with room back into the claim window, in order, no more than there is room for. Never waits: behind a
 * flush, whose counters are locked by then, it would wait against the order of locks. Answers the gates for which an heir was passed
 * over because somebody held its row (a claim that began before it was blocked does, for as long as it lasts), or was paused, so that room is
 * left: `handOverLate` is for them.
 * Gates with a rate are not among them: `promote_gates` sees to those.
 */
export const handOver = defineStatement<HandOverParams>(
  'hand_over',
  (s) => handingOver(s, 'FOR NO KEY UPDATE OF r SKIP LOCKED'),
  (p) => [p.environment, p.gates],
)

/** The same in a batch of its own, which has nothing locked and so waits for the heirs. */
export const handOverLate = defineStatement<HandOverParams>(
  'hand_over_late',
  (s) => handingOver(s, 'FOR NO KEY UPDATE OF r', LATE_HEIRS),
  (p) => [p.environment, p.gates],
)

/**
 * Has gates with a rate looked at again that have room and somebody blocked on it: who was promoted for those tokens, and whom the next one's
 * turn was reckoned behind, will not take them. `promote_gates` does the rest. One of no rate is left to the hand-over.
 */
export const callRates = defineStatement<HandOverParams & { readonly now: string | null }>(
  'call_rates',
  (s) => `
WITH clock AS (SELECT coalesce($1::timestamptz, now()) AS at),
open AS MATERIALIZED (
  SELECT c.environment_id, c.gate, c.shard FROM ${s}.environments e CROSS JOIN clock
  JOIN ${s}.limit_counters c ON c.environment_id = e.id AND c.gate = ANY ($3::text[]) ${policyOf(s, 'c.environment_id', 'c.gate')}
  WHERE e.name = $2::text AND p.burst IS NOT NULL AND ${wholeTokens(`(${tokensAt('clock.at')})`)} > 0 AND coalesce(${slotsLeft} > 0, true)
    AND ${someBlocked(s, 'c.gate', 'c.environment_id')}
  ORDER BY c.gate, c.shard FOR UPDATE OF c
)
UPDATE ${s}.limit_counters c SET due_at = least(c.due_at, clock.at) FROM open o, clock
WHERE c.environment_id = o.environment_id AND c.gate = o.gate AND c.shard = o.shard
`,
  (p) => [p.now, p.environment, p.gates],
)

export interface PromoteGatesParams {
  readonly now: string | null
  readonly environment: string
  /** Most counters to look at, those due first. */
  readonly limit: number
}

/** A gate whose next run was held by somebody is looked at again so much later, in milliseconds. */
const AGAIN_AFTER_MS = 10

/** The heaviest run that so much of a shard admits: one that weighs more than all it can have takes all it can have. */
const WHOLE = 'greatest(p.concurrency / p.shards, p.burst / p.shards, 1)'
const heaviest = (left: string, amount: string) =>
  `CASE WHEN ${left} >= greatest(${amount} / p.shards, 1) THEN ${WHOLE} ELSE ${left} END`

/**
 * Moves runs blocked on a rate back into the window, in order, as many as there are tokens (and slots, where the limit has both), and
 * notes when the next one can be admitted, by a counter that has all it asks for. Tokens are charged by the claim, not here. Without slots it
 * is left to who gives them back: he waits for this counter, and has it looked at again.
 */
export const promoteGates = defineStatement<PromoteGatesParams>(
  'promote_gates',
  (s) => `
WITH environment AS MATERIALIZED (SELECT id, (SELECT coalesce($1::timestamptz, now())) AS now FROM ${s}.environments WHERE name = $2::text),
due AS MATERIALIZED (
  SELECT c.gate FROM ${s}.limit_counters c
  WHERE c.environment_id = (SELECT id FROM environment) AND c.due_at IS NOT NULL AND c.due_at <= (SELECT now FROM environment)
  ORDER BY c.due_at LIMIT (SELECT $3::int) FOR UPDATE OF c SKIP LOCKED
),
counters AS MATERIALIZED (
  SELECT c.* FROM ${s}.limit_counters c
  WHERE c.environment_id = (SELECT id FROM environment) AND c.gate = ANY (ARRAY(SELECT DISTINCT d.gate FROM due d)) ORDER BY c.gate, c.shard FOR UPDATE OF c SKIP LOCKED
),
room AS MATERIALIZED (
  SELECT r.*, least(coalesce(least(r.slots, r.tokens), ${HEIRS_AT_ONCE}), ${HEIRS_AT_ONCE}) AS n
  FROM (
    SELECT c.environment_id, c.gate, min(c.shard) AS shard, sum(${slotsLeft})::int AS slots, sum(${wholeTokens(`(${tokensAt('e.now')})`)})::int AS tokens,
      max((${tokensAt('e.now')}) - ${wholeTokens(`(${tokensAt('e.now')})`)}) AS part, p.concurrency, p.burst, p.ms_per_token, p.shards,
      greatest(least(p.concurrency / p.shards, p.burst / p.shards), 1) AS most, ${WHOLE} AS whole,
      max(least(${heaviest(slotsLeft, 'p.concurrency')}, ${heaviest(wholeTokens(`(${tokensAt('e.now')})`), 'p.burst')})) AS best
    FROM environment e CROSS JOIN counters c ${policyOf(s, 'c.environment_id', 'c.gate')}
    GROUP BY c.environment_id, c.gate, p.concurrency, p.burst, p.ms_per_token, p.shards
  ) r
),
heirs AS MATERIALIZED (
  SELECT w.id, w.units, room.gate FROM room CROSS JOIN LATERAL (${heirsOf(s, 'FOR NO KEY UPDATE OF r SKIP LOCKED')}
  ) w
),
${freeing(s)},
following AS MATERIALIZED (
  SELECT p.*, h.units, coalesce((SELECT sum(x.units) FROM heirs x WHERE x.gate = p.gate), 0)::int AS taken,
    (SELECT min(${tokensAsked('h.units')} - (${tokensAt('e.now')})) FROM counters c
      WHERE c.environment_id = p.environment_id AND c.gate = p.gate AND coalesce(${slotsLeft} >= ${slotsAsked('h.units')}, true)) AS missing
  FROM environment e CROSS JOIN room p LEFT JOIN LATERAL (
    SELECT coalesce(r.gate_units[array_position(r.gates, p.gate)], 1) AS units FROM ${s}.runs r
    WHERE r.blocked_on = p.gate AND r.environment_id = p.environment_id AND r.id <> ALL (ARRAY(SELECT x.id FROM heirs x WHERE x.gate = p.gate))
    ORDER BY r.priority, r.available_at, r.position LIMIT 1
  ) h ON true
),
noted AS (
  UPDATE ${s}.limit_counters c
  SET due_at = CASE WHEN p.units IS NULL OR c.shard <> p.shard OR p.missing IS NULL OR coalesce(${slotsAsked('p.units')} > p.slots - p.taken, false) THEN NULL
    ELSE greatest(${whenTokens('e.now', `greatest(${tokensAsked('p.units')} - (p.tokens - p.taken) - p.part, p.missing)`)}, e.now + interval '${AGAIN_AFTER_MS} ms') END
  FROM following p, environment e, counters k
  WHERE c.environment_id = p.environment_id AND c.gate = p.gate AND k.gate = c.gate AND k.shard = c.shard
)
SELECT count(*)::int AS promoted FROM freed
`,
  (p) => [p.now, p.environment, p.limit],
)
