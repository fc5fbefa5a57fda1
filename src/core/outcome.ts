import type { Parameter } from './database.ts'
import type { Deadlines } from './deadlines.ts'
import { type Duration, toMs } from './duration.ts'
import { describe, notAllowed, PawlError } from './errors.ts'
import { type MessageOptions, type StepMessage, toMessages } from './messages.ts'
import { checkAwaited, checkCalls, checkCommit, checkNeed, oneOf } from './outcome-checks.ts'
import { type RunError, shorten, toRunError } from './run-error.ts'
import { type CheckedLimits, checkLimitsOption, type LimitsOption } from './slots.ts'
import { type EndOf, eventTopic, type RunTarget } from './topics.ts'

export { isNonRetryable, NonRetryableError, nonRetryable, type RunError, type TerminalCause, toRunError } from './run-error.ts'

/** One SQL statement of the user, committed together with the step's outcome: never a callback, so it works over HTTP too. */
export interface CommitStatement {
  readonly sql: string
  readonly params?: readonly Parameter[] | undefined
}

/** A child to be spawned, made by `definition.with(input)`. `R` is what it will give. */
export interface Call<R = unknown> {
  readonly definition: string
  readonly version: number
  readonly input: unknown
  readonly key: string | undefined
  readonly onConflict: 'keep' | 'reschedule' | undefined
  readonly queue: string | undefined
  readonly delayMs: number | undefined
  readonly at: string | undefined
  readonly priority: number | undefined
  readonly maxAttempts: number | undefined
  readonly tags: readonly string[] | undefined
  readonly headers: Readonly<Record<string, string>> | undefined
  readonly deadlines: Deadlines | undefined
  readonly outlivesParent: boolean | undefined
  readonly __result?: R
}

declare const outcomeTypes: unique symbol

/** What a step ends with. Opaque: made by the functions of the context only. */
export interface Outcome<N extends string, R, E> {
  readonly [outcomeTypes]: readonly [N, R, E]
}

/** Found on every outcome at run time, and on nothing else; registered, so that two copies of the library agree. */
const outcomeMark: unique symbol = Symbol.for('pawl.outcome')

interface Marked {
  readonly [outcomeMark]: true
  readonly commit: readonly CommitStatement[] | undefined
  readonly messages: readonly StepMessage[] | undefined
}

export type NextOutcome = Marked & {
  readonly kind: 'next'
  readonly limits: CheckedLimits | undefined
  readonly step: string
  /** The new state; `undefined` leaves it as it is. */
  readonly state: unknown
  readonly delayMs: number
  /** True: do not go on inside this claim, let others have a turn. */
  readonly yield: boolean
}
export type WaitOutcome = Marked & {
  readonly kind: 'wait'
  readonly limits: CheckedLimits | undefined
  /** Signals by name, events as their topics. */
  readonly names: readonly string[]
  /** Other runs whose ends are waited for. */
  readonly ends: readonly RunTarget[]
  readonly step: string
  readonly state: unknown
  readonly timeoutMs: number | undefined
  /** What the step was shown stays in the inbox as far as it is waited for again. */
  readonly keep: boolean
}
export type JoinOutcome = Marked & {
  readonly kind: 'join'
  readonly limits: CheckedLimits | undefined
  readonly calls: readonly Call[]
  readonly step: string
  readonly state: unknown
  /** Children that must have ended well (`any`: one; a number: that many) or, for `all`, ended at all. */
  readonly need: 'all' | 'any' | number
  readonly failFast: boolean
  readonly cancelsStragglers: boolean
  readonly deadlineMs: number | undefined
}
export type DoneOutcome = Marked & { readonly kind: 'done'; readonly result: unknown }
export type FailOutcome = Marked & { readonly kind: 'fail'; readonly error: RunError }
/** Counts as a failed attempt. `at` (an instant) or `afterMs` replaces the backoff; neither leaves it to the policy. */
export type RetryOutcome = Marked & {
  readonly kind: 'retry'
  readonly afterMs: number | undefined
  readonly at: string | undefined
  readonly reason: string | undefined
}
/** Later, without counting an attempt. `at` goes before `forMs`, which is 0 then. */
export type SnoozeOutcome = Marked & { readonly kind: 'snooze'; readonly forMs: number; readonly at: string | undefined }
export type DiscardOutcome = Marked & { readonly kind: 'discard'; readonly reason: string }
/** Whether the step had its effect is not known: the run waits for a decision. */
export type UncertainOutcome = Marked & { readonly kind: 'uncertain'; readonly reason: string; readonly evidence: unknown }

export type RuntimeOutcome =
  | NextOutcome
  | WaitOutcome
  | JoinOutcome
  | DoneOutcome
  | FailOutcome
  | RetryOutcome
  | SnoozeOutcome
  | DiscardOutcome
  | UncertainOutcome

export function isOutcome(value: unknown): value is RuntimeOutcome {
  return typeof value === 'object' && value !== null && outcomeMark in value
}

export interface CommitOption extends MessageOptions {
  /** Statements of yours, committed with the outcome or not at all. */
  readonly commit?: readonly CommitStatement[] | undefined
}
export interface NextPatch<St> extends CommitOption, LimitsOption {
  readonly state?: St | undefined
  readonly delay?: Duration | undefined
  readonly yield?: boolean | undefined
}
export interface WaitGoal<N, St> extends CommitOption, LimitsOption {
  readonly goto: N
  readonly timeout?: Duration | undefined
  readonly state?: St | undefined
  /**
   * A step that waits again is done with the signals it was shown. `keep: true` leaves those it waits for again in the inbox, to gather
   * several names before going on: it is woken by new ones only, and shown all. Default false.
   */
  readonly keep?: boolean | undefined
}
export interface JoinGoal<N, St> extends CommitOption, LimitsOption {
  readonly goto: N
  /**
   * `all` (default): every child has ended, however. `any` or a number: one of them, or that many, ended well; when too many have ended otherwise
   * for that to come true, the step is entered with what there is. More than there are children: `invalid_outcome`. A child that is a duplicate is not
   * counted, and without any child the step is entered at once, whatever is needed.
   */
  readonly need?: 'all' | 'any' | number | undefined
  /** `collect` (default) goes by `need`. `fail-fast`: the step is entered as soon as one child has ended otherwise than well. */
  readonly onChildFailure?: 'collect' | 'fail-fast' | undefined
  /** How long to wait. Then the step is entered with `timedOut`, and `children()` says how each of them stands. Default: as long as it takes. */
  readonly deadline?: Duration | undefined
  /** What becomes of children that have not ended when the step that follows is through: `leave` (default) or `cancel`, with children of theirs. */
  readonly stragglers?: 'leave' | 'cancel' | undefined
  readonly state?: St | undefined
}
export interface RetryOption extends CommitOption {
  readonly after?: Duration | undefined
  /** An instant; a past one is now. */
  readonly at?: Date | string | undefined
  readonly reason?: string | undefined
}
/** What a handler reports that cannot tell whether its effect happened. */
export interface UncertainReport {
  /** For whoever decides: what is not known. */
  readonly reason: string
  /** What may help to decide: any JSON. What cannot be stored is left out, and that is said. */
  readonly evidence?: unknown
}
/** What a step may wait for: a signal or an event by its name, or the end of another run. */
export type Awaitable<N extends string> = N | EndOf
export type SnoozeTime = Duration | { readonly until: Date | string }

/** The functions of a context that make outcomes, erased. They check their arguments and throw `invalid_outcome`. */
export interface OutcomeFunctions {
  next(to: string, patch?: NextPatch<unknown>): NextOutcome
  waitFor(names: Awaitable<string> | readonly Awaitable<string>[], goal: WaitGoal<string, unknown>): WaitOutcome
  join(calls: readonly Call[], goal: JoinGoal<string, unknown>): JoinOutcome
  done(result?: unknown, options?: CommitOption): DoneOutcome
  fail(error: unknown, options?: CommitOption): FailOutcome
  retry(options?: RetryOption): RetryOutcome
  snooze(time: SnoozeTime, options?: CommitOption): SnoozeOutcome
  discard(reason: string, options?: CommitOption): DiscardOutcome
  uncertain(report: UncertainReport, options?: CommitOption): UncertainOutcome
}

/** The outcome functions of one definition. Made once per definition: they depend on its step and signal names only. */
export function makeOutcomeFunctions(names: {
  readonly definition: string
  readonly steps: ReadonlySet<string>
  readonly signals: ReadonlySet<string>
  readonly events: ReadonlySet<string>
}): OutcomeFunctions {
  const checkStep = (step: unknown, field: string): string => oneOf(step, names.steps, `${names.definition}: ${field}`)
  const known = new Set([...names.signals, ...names.events])
  const toName = (name: unknown): string => {
    const one = oneOf(name, known, `${names.definition}: waitFor`)
    return names.events.has(one) ? eventTopic(one) : one
  }
  return Object.freeze({
    next: (to, patch = {}) => ({
      ...mark('next', patch),
      step: checkStep(to, 'next'),
      state: patch.state,
      delayMs: patch.delay === undefined ? 0 : toMs(patch.delay, 'next.delay', AS_OUTCOME),
      yield: patch.yield === true,
      limits: checkLimitsOption(patch.limits, 'next.limits'),
    }),
    waitFor: (wanted, goal) => ({
      ...mark('wait', goal),
      ...checkAwaited(Array.isArray(wanted) ? wanted : [wanted], toName),
      step: checkStep(goal?.goto, 'waitFor.goto'),
      state: goal.state,
      timeoutMs: goal.timeout === undefined ? undefined : toMs(goal.timeout, 'waitFor.timeout', AS_OUTCOME),
      keep: goal.keep === true,
      limits: checkLimitsOption(goal.limits, 'waitFor.limits'),
    }),
    join: (calls, goal) => ({
      ...mark('join', goal),
      calls: checkCalls(calls),
      step: checkStep(goal?.goto, 'join.goto'),
      state: goal.state,
      need: checkNeed(goal.need ?? 'all', calls.length),
      failFast: oneOf(goal.onChildFailure ?? 'collect', CHILD_FAILURE, 'join.onChildFailure') === 'fail-fast',
      cancelsStragglers: oneOf(goal.stragglers ?? 'leave', STRAGGLERS, 'join.stragglers') === 'cancel',
      deadlineMs: goal.deadline === undefined ? undefined : toMs(goal.deadline, 'join.deadline', AS_OUTCOME),
      limits: checkLimitsOption(goal.limits, 'join.limits'),
    }),
    done,
    fail,
    retry,
    snooze,
    discard,
    uncertain,
  } satisfies OutcomeFunctions)
}

const CHILD_FAILURE: ReadonlySet<string> = new Set(['collect', 'fail-fast'])
const STRAGGLERS: ReadonlySet<string> = new Set(['leave', 'cancel'])
const AS_OUTCOME = { code: 'invalid_outcome' } as const

function mark<K extends RuntimeOutcome['kind']>(kind: K, options: CommitOption | undefined): Marked & { readonly kind: K } {
  return { [outcomeMark]: true, kind, commit: checkCommit(options?.commit), messages: toMessages(options) }
}

function done(result?: unknown, options?: CommitOption): DoneOutcome {
  return { ...mark('done', options), result }
}

function fail(error: unknown, options?: CommitOption): FailOutcome {
  return { ...mark('fail', options), error: toFailure(error) }
}

function retry(options: RetryOption = {}): RetryOutcome {
  return {
    ...mark('retry', options),
    afterMs: options.after === undefined ? undefined : toMs(options.after, 'retry.after', AS_OUTCOME),
    at: options.at === undefined ? undefined : toInstant(options.at, 'retry.at'),
    reason: options.reason === undefined ? undefined : shorten(options.reason),
  }
}

function snooze(time: SnoozeTime, options?: CommitOption): SnoozeOutcome {
  if (typeof time === 'object' && time !== null) {
    return { ...mark('snooze', options), forMs: 0, at: toInstant(time.until, 'snooze.until') }
  }
  return { ...mark('snooze', options), forMs: toMs(time, 'snooze', AS_OUTCOME), at: undefined }
}

function discard(reason: string, options?: CommitOption): DiscardOutcome {
  return { ...mark('discard', options), reason: shorten(String(reason)) }
}

function uncertain(report: UncertainReport, options?: CommitOption): UncertainOutcome {
  const reason: unknown = report?.reason
  if (typeof reason !== 'string' || reason === '') {
    throw notAllowed('invalid_outcome', { field: 'uncertain.reason', got: reason, allowed: 'a text' })
  }
  return { ...mark('uncertain', options), reason: shorten(reason), evidence: report.evidence }
}

/** An RFC 3339 instant in UTC with milliseconds, of a Date or of a text that Date understands. */
export function toInstant(
  value: unknown,
  field: string,
  code: 'invalid_outcome' | 'invalid_request' = 'invalid_outcome',
): string {
  const date = value instanceof Date ? value : typeof value === 'string' ? new Date(value) : undefined
  const ms = date?.getTime()
  // years 1 to 9999: what RFC 3339 can write and timestamptz reads
  if (date && ms !== undefined && ms >= -62_135_596_800_000 && ms < 253_402_300_800_000) return date.toISOString()
  throw notAllowed(code, { field, got: value, allowed: 'a Date or an RFC 3339 instant' })
}

function toFailure(error: unknown): RunError {
  if (typeof error === 'string') return { code: 'failed', message: shorten(error) }
  if (error instanceof Error) return { ...toRunError(error), code: 'failed' }
  const message = (error as { message?: unknown } | null | undefined)?.message
  return { code: 'failed', message: typeof message === 'string' ? shorten(message) : 'failed', data: error }
}

const KINDS: ReadonlySet<string> = new Set<RuntimeOutcome['kind']>([
  'next',
  'wait',
  'join',
  'done',
  'fail',
  'retry',
  'snooze',
  'discard',
  'uncertain',
])

/** An outcome of another copy of the library, whose kinds may be newer, is a failure of the step like any other thing it cannot end with. */
function checkKind(outcome: RuntimeOutcome): RuntimeOutcome {
  if (KINDS.has(outcome.kind)) return outcome
  throw notAllowed('invalid_outcome', { field: 'outcome', got: outcome.kind, allowed: `one of ${[...KINDS].join(', ')}` })
}

/** What the engine goes by: the outcome returned, or for a job `done` with whatever else it returned. Throws `invalid_outcome`. */
export function toOutcome(kind: 'job' | 'machine', returned: unknown): RuntimeOutcome {
  if (isOutcome(returned)) return checkKind(returned)
  if (kind === 'job') return done(returned)
  throw new PawlError('invalid_outcome', `A step must return an outcome (next, waitFor, join, done…), got ${describe(returned)}.`)
}
