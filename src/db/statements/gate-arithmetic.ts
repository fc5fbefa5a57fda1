/**
 * What a counter of a gate admits, as SQL over `c`, a row of `limit_counters`, and `p`, what `policyOf` found for its gate. Shards split
 * slots and tokens to the last one; a shard beyond those that the policy has admits nothing and is credited all the same.
 */

/** Advisory locks (held by a transaction, never by a session) on the making of counters; any number that nobody else uses. */
export const MINT_LOCK_CLASS = 7_252_028
/** Counters that one statement makes at most: each takes a lock, and locks are few. */
export const MINTED_AT_ONCE = 128
/** Tokens are doubles: what is missing to a whole one by less than this is arithmetic, not policy. */
const TOKEN_DUST = '0.000001'

/**
 * The policy of a gate as a lateral join named `p`: one row. A gate of no limit is exclusive. `ms_per_token` is of one shard.
 */
export const policyOf = (s: string, environment: string, gate: string) => `
  CROSS JOIN LATERAL (
    SELECT CASE WHEN count(l.name) = 0 THEN 1 ELSE min(l.concurrency) END AS concurrency, min(l.burst) AS burst, min(l.ms_per_token * l.shards) AS ms_per_token,
      coalesce(min(l.shards), 1)::int AS shards
    FROM ${s}.limits l WHERE l.environment_id = ${environment} AND l.name = split_part(${gate}, E'\\x1f', 1)
  ) p`

/**
 * Whether somebody is blocked on a gate: true, or null. In the order of `runs_blocked_idx`, which is what answers it then: without one, statistics
 * that know of many blocked runs have the table read.
 */
export const someBlocked = (s: string, gate: string, environment: string) => `(
    SELECT true FROM ${s}.runs r WHERE r.blocked_on = ${gate} AND r.environment_id = ${environment} ORDER BY r.priority, r.available_at, r.position LIMIT 1)`

const shareOf = (amount: string) =>
  `CASE WHEN ${amount} IS NULL THEN NULL WHEN c.shard >= p.shards THEN 0 ELSE ${amount} / p.shards + (c.shard < ${amount} % p.shards)::int END`

/** Slots of this counter in all; null: no limit. */
export const capacity = shareOf('p.concurrency')
const bucket = shareOf('p.burst')

/** Tokens in this counter's bucket at that instant; null: no rate. */
export const tokensAt = (now: string) => `
  CASE WHEN p.burst IS NULL THEN NULL ELSE least(${bucket}::float8, coalesce(
    c.available + greatest(extract(epoch FROM ${now} - c.refilled_at)::float8 * 1000, 0) / p.ms_per_token, ${bucket})) END`

/** Free slots; null: no limit. */
export const slotsLeft = `CASE WHEN p.concurrency IS NULL THEN NULL ELSE greatest(${capacity} - c.held, 0) END`
/** Whole tokens; what is nearly one is one. */
export const wholeTokens = (tokens: string) => `floor(${tokens} + ${TOKEN_DUST})::int`

/** True of a counter that has so many slots and so many tokens; of what its limit does not count it has enough. */
export const hasRoom = (slots: string, tokens: string, now: string) =>
  `coalesce((${slotsLeft}) >= ${slots}, true) AND coalesce(${wholeTokens(`(${tokensAt(now)})`)} >= ${tokens}, true)`

/** What is left once so many are taken: dust is forgiven, more than there is violates a constraint. */
export const tokensTaken = (now: string, taken: string) =>
  `greatest((${tokensAt(now)}) - ${taken}, least((${tokensAt(now)}) - ${taken} + ${TOKEN_DUST}, 0))`

/** What is there once so many have been given back. */
export const tokensGiven = (now: string, given: string) => `least((${tokensAt(now)}) + ${given}, ${bucket})`

/** What units come to: more than a shard can ever give is all that it has. */
export const slotsAsked = (units: string) =>
  `CASE WHEN p.concurrency IS NULL THEN 0 ELSE least(${units}, greatest(p.concurrency / p.shards, 1)) END`
export const tokensAsked = (units: string) =>
  `CASE WHEN p.burst IS NULL THEN 0 ELSE least(${units}, greatest(p.burst / p.shards, 1)) END`

/** When so many tokens more will be there: whole milliseconds, never before. */
export const whenTokens = (now: string, missing: string) =>
  `${now} + make_interval(secs => ceil(greatest(${missing}, 0) * p.ms_per_token - 0.001) / 1000)`
