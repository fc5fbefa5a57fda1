/**
 * The part of a claim that admits runs through gates that are wide open, as CTEs: nobody waits there, and one counter has room for all that
 * this claim asks of it. That is the usual case, and needs no ranking. A run with a gate that is anything else stays where it is, and the next
 * claim asks all gates (`claim-gates.ts`); so does one that weighs more than one unit or has kept a slot, and whoever asks the same gate.
 */
import { hasRoom, policyOf, someBlocked, tokensTaken } from './gate-arithmetic.ts'

const NOW = '(SELECT coalesce($1::timestamptz, now()))'
const ENVIRONMENT = '(SELECT id FROM environment)'

/** Of a candidate `r`: what it takes to see that it is not an ordinary run. */
export const WHETHER_SPECIAL = 'r.gate_units IS NOT NULL OR r.held_gates IS NOT NULL'

/**
 * The emptiest one, so that claims side by side spread over the counters and none waits where another gives back. Of those that are alike the one that
 * this transaction has written already, as it gave back what it had taken there: it is its own, and written once more for nothing.
 */
export const FIRST_COUNTER = `c.held, coalesce(c.xmin = pg_current_xact_id_if_assigned()::xid, false) DESC, mod(c.shard + mod(hashtext($3::uuid::text), 512) + 512, p.shards)`

/**
 * Ahead of the update that claims. A counter that others hold is passed over: it proves nothing, and if it was that, the gate is not `shut`. Nor is
 * one that has no counters yet.
 */
export const opening = (s: string) => {
  const fits = hasRoom('d.n', 'd.n', NOW)
  const counters = `${s}.limit_counters c WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = d.gate`
  return `
demand AS MATERIALIZED (
  SELECT d.*, p.* FROM (
    SELECT u.gate, sum(s.n)::int AS n, bool_or(s.special) AS special
    FROM (SELECT f.gates, count(*) AS n, bool_or(f.special) AS special FROM fitting f WHERE f.gates IS NOT NULL GROUP BY f.gates) s
    CROSS JOIN LATERAL unnest(s.gates) AS u(gate) GROUP BY u.gate
  ) d ${policyOf(s, ENVIRONMENT, 'd.gate')}
),
open AS MATERIALIZED (
  SELECT d.gate, c.shard, d.burst, d.ms_per_token, d.shards
  FROM demand d CROSS JOIN LATERAL (SELECT d.concurrency, d.burst, d.ms_per_token, d.shards) p
  CROSS JOIN LATERAL (SELECT c.shard FROM ${counters} AND ${fits} ORDER BY ${FIRST_COUNTER} LIMIT 1 FOR UPDATE OF c SKIP LOCKED) c
  WHERE NOT d.special AND ${someBlocked(s, 'd.gate', ENVIRONMENT)} IS NULL
),
others AS MATERIALIZED (
  SELECT d.gate, (SELECT count(*) FROM ${counters} AND c.shard < d.shards) < d.shards AS missing,
    d.special OR ${someBlocked(s, 'd.gate', ENVIRONMENT)} OR NOT EXISTS (SELECT FROM ${counters} AND ${fits}) AS shut
  FROM demand d CROSS JOIN LATERAL (SELECT d.concurrency, d.burst, d.ms_per_token, d.shards) p
  WHERE (SELECT count(*) FROM open) < (SELECT count(*) FROM demand) AND d.gate NOT IN (SELECT o.gate FROM open o)
)`
}

const LEFT =
  '(SELECT count(*)::int FROM fitting f WHERE f.gates IS NOT NULL) - (SELECT count(*)::int FROM claimed c WHERE c.gates IS NOT NULL)'
const IS_SHUT = '(SELECT true FROM others o WHERE o.shut AND NOT o.missing LIMIT 1)'
/** Runs left where they are: because a gate is not wide open, or because others hold its counter just now. */
export const LEFT_AS_SHUT = `CASE WHEN ${IS_SHUT} THEN ${LEFT} ELSE 0 END`
export const LEFT_TO_OTHERS = `CASE WHEN ${IS_SHUT} THEN 0 ELSE ${LEFT} END`
export const WITHOUT_COUNTERS = '(SELECT jsonb_agg(o.gate) FROM others o WHERE o.missing)'

/** Of a run `f` that a claim has locked. Its gates are not looked at where all are open. */
export const IS_ADMITTED =
  'f.gates IS NULL OR (SELECT count(*) FROM open) = (SELECT count(*) FROM demand) OR f.gates <@ ARRAY(SELECT o.gate FROM open o)'

const shardOf = (gate: string) => `(ARRAY(SELECT o.shard FROM open o))[array_position(ARRAY(SELECT o.gate FROM open o), ${gate})]`

/** Which counter of each gate a claimed run holds; null when it is the first of each. */
export const OPEN_SHARDS = `CASE WHEN c.gates IS NULL OR (SELECT max(o.shard) FROM open o) = 0 THEN NULL
    WHEN cardinality(c.gates) = 1 THEN ARRAY[${shardOf('c.gates[1]')}] ELSE ARRAY(SELECT ${shardOf('u.gate')} FROM unnest(c.gates) AS u(gate)) END`

/** Behind the update that claims: what was really claimed is debited. */
export const charging = (s: string) => `
debited AS (
  UPDATE ${s}.limit_counters c
  SET held = c.held + p.n,
    available = CASE WHEN p.burst IS NULL THEN c.available ELSE ${tokensTaken(NOW, 'p.n')} END,
    refilled_at = CASE WHEN p.burst IS NULL THEN c.refilled_at ELSE greatest(c.refilled_at, ${NOW}) END
  FROM (
    SELECT o.*, t.n FROM open o
    JOIN (
      SELECT u.gate, sum(s.n)::int AS n FROM (SELECT c.gates, count(*) AS n FROM claimed c WHERE c.gates IS NOT NULL GROUP BY c.gates) s
      CROSS JOIN LATERAL unnest(s.gates) AS u(gate) GROUP BY u.gate
    ) t ON t.gate = o.gate
  ) p
  WHERE c.environment_id = ${ENVIRONMENT} AND c.gate = p.gate AND c.shard = p.shard
)`
