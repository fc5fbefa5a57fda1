import {
  DEFAULT_MAX_SNOOZES,
  DEFAULT_PRIORITY,
  DEFAULT_QUEUE,
  DEFAULT_TIMEOUT_MS,
  DEFAULT_VERSION,
  LEASE_GRACE_MS,
  MAX_ATTEMPTS,
  MAX_PRIORITY,
  MAX_REPLAYS,
  MAX_TIMEOUT_MS,
  MAX_VERSION,
  MIN_LEASE_MS,
  MIN_PRIORITY,
  MIN_TIMEOUT_MS,
} from './bounds.ts'
import type { StepContextRuntime } from './context.ts'
import { type DeadlineOptions, type Deadlines, toDeadlines } from './deadlines.ts'
import { type Duration, toMs } from './duration.ts'
import { type ErrorCode, notAllowed, PawlError } from './errors.ts'
import type { LimitUse } from './limit.ts'
import { checkHeaders, checkInteger, checkKey, checkName, checkTags } from './names.ts'
import { type Call, type OutcomeFunctions, toInstant } from './outcome.ts'
import { type DeclaredRetention, type RetentionOption, retentionOf, toDeclaredRetention } from './retention.ts'
import { type RetryOptions, type RetryPolicy, toRetryPolicy } from './retry.ts'
import { isSchema, type Schema } from './schema.ts'
import type { Holding } from './store.ts'
import type { Trigger } from './trigger.ts'
import { toKeyHolding, toUniquePolicy, type UniquenessOptions, type UniquePolicy } from './unique.ts'

/** Where a definition keeps what the engine runs; registered, so that two copies of the library agree. */
export const definitionRuntime: unique symbol = Symbol.for('pawl.definition')

/** Code registered under a name and a version. `I` is what spawn takes, `R` what a completed run gives. */
export interface Definition<I, R> {
  readonly kind: 'job' | 'machine'
  readonly name: string
  readonly version: number
  /** A call of this very version, to be spawned as a child. Its input is checked when it is spawned. */
  with(input: I, options?: ChildOptions): Call<R>
  readonly [definitionRuntime]: AnyDefinition
  readonly __types?: { readonly input: I; readonly result: R }
}

export type InputOf<D> = D extends Definition<infer I, unknown> ? I : never
export type ResultOf<D> = D extends Definition<unknown, infer R> ? R : never

/** The deadlines of the definition hold where the call says nothing. */
export interface CallOptions extends DeadlineOptions {
  /**
   * When another run has the key or what makes this one unique: `keep` leaves it as it is, `reschedule` gives one that has not started
   * the `delay` or `at` of this call (none: at once). Default: what the definition says, else `keep`.
   */
  readonly onConflict?: 'keep' | 'reschedule' | undefined
  readonly key?: string | undefined
  readonly queue?: string | undefined
  readonly delay?: Duration | undefined
  /** An instant, in place of `delay`; a past one is now. */
  readonly at?: Date | string | undefined
  readonly priority?: number | undefined
  readonly maxAttempts?: number | undefined
  readonly tags?: readonly string[] | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
}

export interface ChildOptions extends CallOptions {
  /** It goes on when its parent is cancelled. Default false: it is cancelled too. */
  readonly outlivesParent?: boolean | undefined
}

/** A handler, erased. It may return a promise or not. */
export type RuntimeStep = (context: StepContextRuntime) => unknown

/** A definition as the engine runs it: validated, defaults filled in, types erased. */
export interface AnyDefinition {
  readonly kind: 'job' | 'machine'
  readonly name: string
  readonly version: number
  readonly queue: string
  /** The first step; `run` for jobs. */
  readonly initial: string
  /** Has no prototype: `steps[name]` is a step or undefined. */
  readonly steps: Readonly<Record<string, RuntimeStep>>
  readonly input: Schema | undefined
  /** Of machines only. */
  readonly state: Schema | undefined
  /** Has no prototype. */
  readonly signals: Readonly<Record<string, Schema>>
  /** Has no prototype. */
  readonly events: Readonly<Record<string, Schema>>
  readonly output: Schema | undefined
  readonly error: Schema | undefined
  readonly onError: RuntimeStep | undefined
  readonly retry: RetryPolicy
  /** As the user wrote it: what it leaves out comes from the defaults of `createPawl`. */
  readonly declaredRetry: RetryOptions | undefined
  readonly timeoutMs: number
  readonly leaseMs: number
  readonly deadlines: Deadlines | undefined
  readonly priority: number
  readonly maxSnoozes: number
  /** Attempts abandoned by their host that are replayed before the run is uncertain. Undefined: the engine's own cap, and it fails. */
  readonly maxReplays: number | undefined
  readonly onTimeout: OnTimeout
  readonly declaredRetention: DeclaredRetention
  readonly tags: readonly string[]
  readonly key: ((input: unknown) => string | undefined) | undefined
  /** Undefined: a key is held while its run lives. */
  readonly keyHolding: Holding | undefined
  readonly unique: UniquePolicy | undefined
  readonly concurrencyKey: ((input: unknown) => string | undefined) | undefined
  readonly limits: readonly LimitUse<unknown>[]
  readonly triggers: readonly Trigger<unknown>[]
  /** The first state of a machine, from the parsed input; when absent the state is the input. */
  readonly initialState: ((input: unknown) => unknown) | undefined
  /** By version: the state of this version, from the state of that one. */
  readonly upgrade: Readonly<Record<number, (state: unknown) => unknown>>
  readonly outcomes: OutcomeFunctions
  readonly self: Definition<unknown, unknown>
}

/**
 * What becomes of an attempt whose host went away while it ran. `replay` (default): it is tried again, and a run that was lost three times
 * while it was alone fails as `lost`. `hold`: nobody knows whether the effect happened, so the run is `uncertain` at once and waits for a
 * decision. `{ replay: n }`: `n` abandoned attempts of one visit are replayed, the next makes the run uncertain.
 */
export type OnAbandoned = 'replay' | 'hold' | { readonly replay: number }

/**
 * What a step that takes longer than its timeout leads to. `retry` (default): a failed attempt like any other. `fail`: the end, with the
 * cause `timeout`. `uncertain`: the run waits for a decision. Both of the latter are not asked of `onError`.
 */
export type OnTimeout = 'retry' | 'fail' | 'uncertain'

/** What jobs and machines have in common. `P` is the parsed input, `S` the input as sent. */
export interface CommonOptions<P, S> extends UniquenessOptions<P>, DeadlineOptions {
  /** From 1, default 1. Versions live side by side; the latest is spawned unless told. */
  readonly version?: number | undefined
  /** Default `default`. */
  readonly queue?: string | undefined
  /** Default: 10 attempts, see `DEFAULT_RETRY`. */
  readonly retry?: RetryOptions | undefined
  /** Longest time of one step. Default 15 s. */
  readonly timeout?: Duration | undefined
  /** How long a claim lasts without a heartbeat. Default: timeout + 15 s. */
  readonly lease?: Duration | undefined
  /** Lower goes first. Default 0. */
  readonly priority?: number | undefined
  /** The business identity of a run: at most one live run has it (more: `keyScope`), and it is an address for signals. */
  readonly key?: ((input: P) => string | undefined) | undefined
  /** Runs with the same value run one at a time. */
  readonly concurrencyKey?: ((input: P) => string | undefined) | undefined
  readonly limits?: readonly LimitUse<P>[] | undefined
  readonly tags?: readonly string[] | undefined
  /** How long ended runs are kept, from their end on. Default: what the queue says, or completed 7 days, others 30 days. */
  readonly retention?: RetentionOption
  readonly triggers?: readonly Trigger<S>[] | undefined
  /** Snoozes of one run before it ends. Default 1,000. */
  readonly maxSnoozes?: number | undefined
  /** Default `replay`. Agreed when the run is spawned. */
  readonly onAbandoned?: OnAbandoned | undefined
  /** Default `retry`. */
  readonly onTimeout?: OnTimeout | undefined
}

export type CommonFields = Pick<
  AnyDefinition,
  | 'name'
  | 'version'
  | 'queue'
  | 'retry'
  | 'declaredRetry'
  | 'timeoutMs'
  | 'leaseMs'
  | 'deadlines'
  | 'priority'
  | 'maxSnoozes'
  | 'maxReplays'
  | 'onTimeout'
  | 'declaredRetention'
  | 'tags'
  | 'key'
  | 'keyHolding'
  | 'unique'
  | 'concurrencyKey'
  | 'limits'
  | 'triggers'
>

/** Validates what jobs and machines have in common and fills in the defaults. Throws `invalid_configuration`. */
export function toCommonFields(
  options: CommonOptions<never, unknown> & { readonly name: string },
  kind: 'job' | 'machine',
): CommonFields {
  const name = checkName(options.name, { field: `${kind}.name` })
  const field = (member: string): string => `${kind} "${name}".${member}`
  const timeoutMs =
    options.timeout === undefined
      ? DEFAULT_TIMEOUT_MS
      : toMs(options.timeout, field('timeout'), { minMs: MIN_TIMEOUT_MS, maxMs: MAX_TIMEOUT_MS })
  const {
    version = DEFAULT_VERSION,
    queue = DEFAULT_QUEUE,
    priority = DEFAULT_PRIORITY,
    maxSnoozes = DEFAULT_MAX_SNOOZES,
  } = options
  const declaredRetention = toDeclaredRetention(options.retention, field('retention'))
  const retentionMs = retentionOf(declaredRetention, undefined)
  const holdings = { options, kind, field, retentionMs: Math.min(retentionMs.completed, retentionMs.failed) }
  return {
    name,
    version: checkInteger(version, { field: field('version'), min: 1, max: MAX_VERSION }),
    queue: checkName(queue, { field: field('queue') }),
    retry: toRetryPolicy(options.retry, field('retry')),
    declaredRetry: options.retry,
    timeoutMs,
    leaseMs:
      options.lease === undefined ? timeoutMs + LEASE_GRACE_MS : toMs(options.lease, field('lease'), { minMs: MIN_LEASE_MS }),
    deadlines: toDeadlines(options, field(''), 'invalid_configuration'),
    priority: checkInteger(priority, { field: field('priority'), min: MIN_PRIORITY, max: MAX_PRIORITY }),
    maxSnoozes: checkInteger(maxSnoozes, { field: field('maxSnoozes'), min: 0, max: MAX_ATTEMPTS }),
    maxReplays: toMaxReplays(options.onAbandoned, field('onAbandoned')),
    onTimeout: toOnTimeout(options.onTimeout, field('onTimeout')),
    declaredRetention,
    tags: checkTags(options.tags ?? [], { field: field('tags') }),
    key: checkFunction(options.key, field('key')),
    keyHolding: toKeyHolding(options.keyScope, holdings),
    unique: toUniquePolicy(holdings),
    concurrencyKey: checkFunction(options.concurrencyKey, field('concurrencyKey')),
    limits: checkLimits(options.limits ?? [], field('limits')),
    triggers: checkTriggers(options.triggers ?? [], field('triggers')),
  }
}

function toMaxReplays(option: OnAbandoned | undefined, field: string): number | undefined {
  if (option === undefined || option === 'replay') return undefined
  if (option === 'hold') return 0
  if (typeof option === 'object' && option !== null) {
    return checkInteger(option.replay, { field: `${field}.replay`, min: 0, max: MAX_REPLAYS })
  }
  throw notAllowed('invalid_configuration', { field, got: option, allowed: 'replay, hold or { replay: n }' })
}

function toOnTimeout(option: OnTimeout = 'retry', field: string): OnTimeout {
  if (option === 'retry' || option === 'fail' || option === 'uncertain') return option
  throw notAllowed('invalid_configuration', { field, got: option, allowed: 'retry, fail or uncertain' })
}

/** The types of the parameters are the user's, checked by the compiler where the definition is written; the engine erases them. */
export function checkFunction<F>(
  value: ((...args: never) => F) | undefined,
  field: string,
): ((argument: unknown) => F) | undefined {
  if (value === undefined) return undefined
  if (typeof value !== 'function') throw notAllowed('invalid_configuration', { field, got: value, allowed: 'a function' })
  return value as (argument: unknown) => F
}

export function checkSchema(value: Schema | undefined, field: string): Schema | undefined {
  if (value === undefined || isSchema(value)) return value
  throw notAllowed('invalid_configuration', { field, got: value, allowed: 'a Standard Schema' })
}

function checkLimits(limits: readonly LimitUse<never>[], field: string): readonly LimitUse<unknown>[] {
  const allowed = 'a list of limits made by limit(), each name once'
  const areLimits = Array.isArray(limits) && limits.every((use) => typeof use?.partition === 'function')
  if (!areLimits || new Set(limits.map((use) => use.name)).size !== limits.length) {
    throw notAllowed('invalid_configuration', { field, got: limits, allowed })
  }
  return limits as readonly LimitUse<unknown>[]
}

function checkTriggers(triggers: readonly Trigger<unknown>[], field: string): readonly Trigger<unknown>[] {
  const areTriggers =
    Array.isArray(triggers) && triggers.every((trigger) => trigger?.kind === 'cron' || trigger?.kind === 'webhook')
  if (areTriggers) return triggers
  throw notAllowed('invalid_configuration', { field, got: triggers, allowed: 'a list of cron() and webhook()' })
}

/** What every firing of a schedule spawns is known when the definition is made, so it is checked then (if the validator is synchronous). */
export function checkCronInputs(triggers: readonly Trigger<unknown>[], input: Schema | undefined, field: string): void {
  if (input === undefined) return
  for (const trigger of triggers) {
    if (trigger.kind !== 'cron') continue
    const result = input['~standard'].validate(trigger.input)
    if (result instanceof Promise || !result.issues) continue
    const detail = `${field}: the input of cron "${trigger.expression}" does not match: ${result.issues[0]?.message}.`
    throw new PawlError('invalid_configuration', detail, { field: `${field}.triggers` })
  }
}

/** An object without prototype, so that `record[name]` never finds `constructor` or the like. */
export function bareRecord<T>(entries: Iterable<readonly [string, T]>): Readonly<Record<string, T>> {
  const record: Record<string, T> = Object.create(null)
  for (const [name, value] of entries) record[name] = value
  return Object.freeze(record)
}

export interface ToCallParams {
  readonly definition: string
  readonly version: number
  readonly input: unknown
  readonly options: ChildOptions | undefined
  /** Code of errors. Default `invalid_request`. */
  readonly code?: ErrorCode
}

/** A call with its options validated. The input is not looked at. */
export function toCall<R>(params: ToCallParams): Call<R> {
  const { definition, version, input, options = {}, code = 'invalid_request' } = params
  const { key, onConflict, queue, delay, at, priority, maxAttempts, tags, headers, outlivesParent } = options
  if (delay !== undefined && at !== undefined)
    throw notAllowed(code, { field: 'delay', got: 'delay and at', allowed: 'one of them' })
  if (onConflict !== undefined && onConflict !== 'keep' && onConflict !== 'reschedule')
    throw notAllowed(code, { field: 'onConflict', got: onConflict, allowed: '"keep" or "reschedule"' })
  return {
    definition,
    version,
    input,
    onConflict,
    key: key === undefined ? undefined : checkKey(key, { field: 'key', code }),
    queue: queue === undefined ? undefined : checkName(queue, { field: 'queue', code }),
    delayMs: delay === undefined ? undefined : toMs(delay, 'delay', { code }),
    at: at === undefined ? undefined : toInstant(at, 'at', 'invalid_request'),
    priority:
      priority === undefined
        ? undefined
        : checkInteger(priority, { field: 'priority', code, min: MIN_PRIORITY, max: MAX_PRIORITY }),
    maxAttempts:
      maxAttempts === undefined
        ? undefined
        : checkInteger(maxAttempts, { field: 'maxAttempts', code, min: 1, max: MAX_ATTEMPTS }),
    tags: tags === undefined ? undefined : checkTags(tags, { field: 'tags', code }),
    headers: headers === undefined ? undefined : checkHeaders(headers, { field: 'headers', code }),
    deadlines: toDeadlines(options, '', code),
    outlivesParent: outlivesParent === undefined ? undefined : checkBoolean(outlivesParent, 'outlivesParent', code),
  }
}

function checkBoolean(value: boolean, field: string, code: ErrorCode): boolean {
  if (typeof value === 'boolean') return value
  throw notAllowed(code, { field, got: value, allowed: 'true or false' })
}

/** What the engine runs for a definition made by `job` or `machine`. */
export function runtimeOf(definition: Definition<unknown, unknown>): AnyDefinition {
  return definition[definitionRuntime]
}

export function isDefinition(value: unknown): value is Definition<unknown, unknown> {
  return typeof value === 'object' && value !== null && definitionRuntime in value
}
