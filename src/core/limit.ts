import { MAX_LIMIT_AMOUNT, MAX_LIMIT_SHARDS } from './bounds.ts'
import { type Duration, toMs } from './duration.ts'
import { notAllowed } from './errors.ts'
import { checkInteger, checkName } from './names.ts'

export interface LimitOptions {
  /** Runs that may hold the limit at once, per partition. */
  readonly concurrency?: number | undefined
  /**
   * Steps that may start: `count` per `per`, with a bucket of `burst` (default: `count`), per partition. Each step that is started is
   * charged, retries too, when it is claimed; what was claimed and given back unstarted is refunded. The database's clock refills.
   */
  readonly rate?: { readonly count: number; readonly per: Duration; readonly burst?: number | undefined } | undefined
  /**
   * Counters that share the slots and tokens of one partition out among them, so that many invocations need not take turns at one
   * row. Default 1, at most 64; no more than there are slots or tokens of a burst. Never more is admitted than without.
   */
  readonly shards?: number | undefined
}

/** The validated policy. At least one of the two is there. */
export interface LimitPolicy {
  readonly concurrency: number | undefined
  readonly rate: { readonly count: number; readonly perMs: number; readonly burst: number } | undefined
  readonly shards: number
}

/**
 * A limit as a definition uses it: whole, or one per partition; `weight` units are taken at once. When a limit is lowered below the
 * weight of runs that are there already, such a run takes the whole limit.
 */
export interface LimitUse<I> {
  readonly name: string
  readonly policy: LimitPolicy
  readonly weight: number
  /** Partition of a run by its input; `undefined` when the limit is one for all. A method, so that it compares bivariantly. */
  partition(input: I): string | undefined
}

export interface Limit extends LimitUse<unknown> {
  /**
   * The limit kept apart for each value of `key`: `perCustomer.by((input: { customer: string }) => input.customer)`. Weight
   * default 1. The annotation is checked against the definition's input; the compiler cannot infer it through this call,
   * and without one the parameter is not checked.
   */
  // biome-ignore lint/suspicious/noExplicitAny: a lambda inside a call inside a literal is typed before the literal's schema is known
  by<I = any>(key: (input: I) => string, options?: { readonly weight?: number | undefined }): LimitUse<I>
  /** The whole limit, taking `weight` units for each run. */
  weighing(weight: number): LimitUse<unknown>
}

/**
 * A named limit, to be listed in the `limits` of definitions. One name has one policy everywhere; `createPawl` refuses two.
 * Throws `invalid_configuration`.
 */
export function limit(name: string, options: LimitOptions): Limit {
  checkName(name, { field: 'limit.name' })
  const policy = toLimitPolicy(options, `limit "${name}"`)
  const use = (weight: number | undefined): LimitUse<unknown> => ({
    name,
    policy,
    weight: checkWeight(weight ?? 1, policy, name),
    partition: () => undefined,
  })
  return {
    ...use(1),
    by: (key, byOptions) => ({ ...use(byOptions?.weight), partition: (input) => key(input) }),
    weighing: (weight) => use(weight),
  }
}

function toLimitPolicy(options: LimitOptions, field: string): LimitPolicy {
  const { concurrency, rate, shards = 1 } = options
  if (concurrency === undefined && rate === undefined) {
    throw notAllowed('invalid_configuration', { field, got: 'neither', allowed: 'concurrency, rate or both' })
  }
  return {
    concurrency:
      concurrency === undefined
        ? undefined
        : checkInteger(concurrency, { field: `${field}.concurrency`, min: 1, max: MAX_LIMIT_AMOUNT }),
    rate: rate === undefined ? undefined : toRate(rate, `${field}.rate`),
    shards: checkInteger(shards, {
      field: `${field}.shards`,
      min: 1,
      max: Math.min(MAX_LIMIT_SHARDS, concurrency ?? MAX_LIMIT_SHARDS, rate?.burst ?? rate?.count ?? MAX_LIMIT_SHARDS),
    }),
  }
}

function toRate(rate: NonNullable<LimitOptions['rate']>, field: string): LimitPolicy['rate'] {
  const count = checkInteger(rate.count, { field: `${field}.count`, min: 1, max: MAX_LIMIT_AMOUNT })
  const burst = checkInteger(rate.burst ?? count, { field: `${field}.burst`, min: 1, max: MAX_LIMIT_AMOUNT })
  return { count, perMs: toMs(rate.per, `${field}.per`, { minMs: 1 }), burst }
}

/**
 * A weight above what the limit can ever give would wait for ever, so it is refused where it is written. It is taken from one shard, so
 * it must fit the least of them.
 */
function checkWeight(weight: number, policy: LimitPolicy, name: string): number {
  const whole = Math.min(policy.concurrency ?? MAX_LIMIT_AMOUNT, policy.rate?.burst ?? MAX_LIMIT_AMOUNT)
  const max = Math.floor(whole / policy.shards)
  return checkInteger(weight, { field: `limit "${name}".weight`, min: 1, max })
}

/** True when two policies are the same. */
export function equalPolicies(left: LimitPolicy, right: LimitPolicy): boolean {
  return (
    left.concurrency === right.concurrency &&
    left.rate?.count === right.rate?.count &&
    left.rate?.perMs === right.rate?.perMs &&
    left.rate?.burst === right.rate?.burst &&
    left.shards === right.shards
  )
}
