import { MAX_ATTEMPTS, MAX_DURATION_MS } from './bounds.ts'
import { type Duration, toMs } from './duration.ts'
import { notAllowed } from './errors.ts'
import { checkInteger } from './names.ts'

/** Called after a failed attempt (1-based) with what was thrown; its value is used as it is, without jitter. */
export type BackoffFunction = (attempt: number, error: unknown) => Duration

/**
 * How long to wait after failed attempt n (1-based), before jitter:
 * `fixed`: base · `linear`: base + (n − 1) × step, at most max · `exponential`: base × factor^(n − 1), at most max ·
 * `none`: never again, whatever `maxAttempts` says · a function: what it returns.
 * `jitter` j (0..1, default 0) takes away up to that part: the delay lies evenly in [delay × (1 − j), delay].
 */
export type BackoffOptions =
  | { readonly kind: 'none' }
  | { readonly kind: 'fixed'; readonly base: Duration; readonly jitter?: number | undefined }
  | {
      readonly kind: 'linear'
      readonly base: Duration
      /** Default: the base. */
      readonly step?: Duration | undefined
      readonly max?: Duration | undefined
      readonly jitter?: number | undefined
    }
  | {
      readonly kind: 'exponential'
      readonly base: Duration
      /** Default 2. */
      readonly factor?: number | undefined
      readonly max?: Duration | undefined
      readonly jitter?: number | undefined
    }
  | BackoffFunction

/** Retry as a user writes it. `'none'`: one attempt, really. */
export type RetryOptions = 'none' | { readonly maxAttempts?: number | undefined; readonly backoff?: BackoffOptions | undefined }

export type Backoff =
  | { readonly kind: 'none' }
  | { readonly kind: 'fixed'; readonly baseMs: number; readonly jitter: number }
  | { readonly kind: 'linear'; readonly baseMs: number; readonly stepMs: number; readonly maxMs: number; readonly jitter: number }
  | {
      readonly kind: 'exponential'
      readonly baseMs: number
      readonly factor: number
      readonly maxMs: number
      readonly jitter: number
    }
  | { readonly kind: 'custom'; readonly delay: BackoffFunction }

/** Retry as the engine uses it: validated, in milliseconds. */
export interface RetryPolicy {
  /** Attempts of one visit in all, the first included. */
  readonly maxAttempts: number
  readonly backoff: Backoff
}

/**
 * The default: 10 attempts, exponential from 5 s by 3 to 1 h, without jitter.
 * | after attempt | 1 | 2 | 3 | 4 | 5 | 6 | 7, 8, 9 |
 * | delay | 5 s | 15 s | 45 s | 135 s | 405 s | 1,215 s | 3,600 s |
 */
export const DEFAULT_RETRY: RetryPolicy = {
  maxAttempts: 10,
  backoff: { kind: 'exponential', baseMs: 5_000, factor: 3, maxMs: 3_600_000, jitter: 0 },
}

/** The policy of a definition; what is left out comes from `defaults`. Throws `invalid_configuration`. */
export function toRetryPolicy(
  options: RetryOptions | undefined,
  field: string,
  defaults: RetryPolicy = DEFAULT_RETRY,
): RetryPolicy {
  if (options === undefined) return defaults
  if (options === 'none') return { maxAttempts: 1, backoff: { kind: 'none' } }
  if (typeof options !== 'object' || options === null) {
    throw notAllowed('invalid_configuration', { field, got: options, allowed: '"none" or { maxAttempts, backoff }' })
  }
  const { maxAttempts = defaults.maxAttempts, backoff } = options
  return {
    maxAttempts: checkInteger(maxAttempts, { field: `${field}.maxAttempts`, min: 1, max: MAX_ATTEMPTS }),
    backoff: backoff === undefined ? defaults.backoff : toBackoff(backoff, `${field}.backoff`),
  }
}

function toBackoff(options: BackoffOptions, field: string): Backoff {
  if (typeof options === 'function') return { kind: 'custom', delay: options }
  switch (options?.kind) {
    case 'none':
      return { kind: 'none' }
    case 'fixed':
      return { kind: 'fixed', baseMs: toMs(options.base, `${field}.base`), jitter: toJitter(options.jitter, field) }
    case 'linear': {
      const baseMs = toMs(options.base, `${field}.base`)
      const stepMs = options.step === undefined ? baseMs : toMs(options.step, `${field}.step`)
      return { kind: 'linear', baseMs, stepMs, maxMs: toMax(options.max, field), jitter: toJitter(options.jitter, field) }
    }
    case 'exponential': {
      const factor = toFactor(options.factor ?? 2, field)
      const baseMs = toMs(options.base, `${field}.base`)
      return { kind: 'exponential', baseMs, factor, maxMs: toMax(options.max, field), jitter: toJitter(options.jitter, field) }
    }
    default:
      throw notAllowed('invalid_configuration', {
        field: `${field}.kind`,
        got: (options as { kind?: unknown } | null | undefined)?.kind,
        allowed: 'none, fixed, linear, exponential or a function',
      })
  }
}

function toMax(max: Duration | undefined, field: string): number {
  return max === undefined ? MAX_DURATION_MS : toMs(max, `${field}.max`)
}

function toJitter(jitter: number | undefined, field: string): number {
  if (jitter === undefined) return 0
  if (typeof jitter === 'number' && jitter >= 0 && jitter <= 1) return jitter
  throw notAllowed('invalid_configuration', { field: `${field}.jitter`, got: jitter, allowed: 'a number from 0 to 1' })
}

function toFactor(factor: number, field: string): number {
  if (typeof factor === 'number' && factor >= 1 && factor <= 100) return factor
  throw notAllowed('invalid_configuration', { field: `${field}.factor`, got: factor, allowed: 'a number from 1 to 100' })
}

/**
 * Milliseconds to wait after `attempt` (1-based) failed with `error`, or `undefined` when no attempt is left.
 * `random` gives a number in [0, 1). Throws what a custom function throws, and `invalid_configuration` for what it returns.
 */
export function nextDelayMs(policy: RetryPolicy, attempt: number, random: () => number, error?: unknown): number | undefined {
  const { backoff, maxAttempts } = policy
  if (attempt >= maxAttempts) return undefined
  switch (backoff.kind) {
    case 'none':
      return undefined
    case 'fixed':
      return withJitter(backoff.baseMs, backoff.jitter, random)
    case 'linear':
      return withJitter(Math.min(backoff.baseMs + (attempt - 1) * backoff.stepMs, backoff.maxMs), backoff.jitter, random)
    case 'exponential':
      return withJitter(Math.min(backoff.baseMs * backoff.factor ** (attempt - 1), backoff.maxMs), backoff.jitter, random)
    case 'custom':
      return toMs(backoff.delay(attempt, error), 'retry.backoff')
  }
}

function withJitter(delayMs: number, jitter: number, random: () => number): number {
  return Math.round(jitter === 0 ? delayMs : delayMs * (1 - jitter * random()))
}
