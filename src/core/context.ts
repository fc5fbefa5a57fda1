import type { Definition, ResultOf } from './definition.ts'
import type { Duration } from './duration.ts'
import type { Logger } from './logger.ts'
import type { RunHeaders } from './names.ts'
import type {
  Awaitable,
  Call,
  CommitOption,
  JoinGoal,
  NextPatch,
  Outcome,
  OutcomeFunctions,
  RetryOption,
  RunError,
  SnoozeTime,
  UncertainReport,
  WaitGoal,
} from './outcome.ts'
import type { Env, Services } from './register.ts'
import type { Out, Schema } from './schema.ts'

/** The run that a handler works for. */
export interface RunInfo {
  readonly id: string
  readonly definition: string
  readonly version: number
  readonly queue: string
  readonly key: string | undefined
  readonly tenant: string
  readonly tags: readonly string[]
  readonly headers: RunHeaders
  readonly parentId: string | undefined
}

export type SignalMap = Readonly<Record<string, Schema>>

export type SignalOf<G extends SignalMap> = {
  [K in keyof G & string]: { readonly id: string; readonly name: K; readonly payload: Out<G[K]>; readonly receivedAt: string }
}[keyof G & string]

/** The signals and events that ended the wait, oldest first. */
export interface Inbox<G extends SignalMap> {
  readonly all: readonly SignalOf<G>[]
  /** The oldest one of that name. */
  first<K extends keyof G & string>(name: K): Extract<SignalOf<G>, { name: K }> | undefined
}

export interface ReceivedSignal {
  readonly id: string
  readonly name: string
  readonly payload: unknown
  readonly receivedAt: string
}

export interface RuntimeInbox {
  readonly all: readonly ReceivedSignal[]
  first(name: string): ReceivedSignal | undefined
}

const EMPTY_INBOX: RuntimeInbox = Object.freeze({ all: Object.freeze([]), first: () => undefined })

/** An inbox over signals given oldest first. */
export function createInbox(all: readonly ReceivedSignal[]): RuntimeInbox {
  if (all.length === 0) return EMPTY_INBOX
  return { all, first: (name) => all.find((signal) => signal.name === name) }
}

/** How a child stands, or another run that was waited for; what it gave, once it has ended. */
export type ChildResult<R> = { readonly id: string; readonly definition: string; readonly key: string | undefined } & (
  | { readonly status: 'completed'; readonly result: R }
  | { readonly status: 'failed' | 'cancelled' | 'discarded'; readonly error: RunError }
  /** It has not ended: the deadline came first, or fewer were needed. */
  | { readonly status: 'pending' | 'running' | 'waiting' | 'uncertain'; readonly error?: undefined }
)

/** What is left of the invocation. */
export interface StepBudget {
  remainingMs(): number
}

/** What every handler is given. Everything may be destructured. */
export interface BaseContext<I> {
  readonly run: RunInfo
  readonly input: I
  /** Which try of this visit it is, from 1. */
  readonly attempt: number
  /** Fires at the step's deadline, when the run is lost or cancelled, and when the invocation ends. */
  readonly abortSignal: AbortSignal
  /** The same over all attempts of one visit, another for the next visit: pass it on with every effect. */
  readonly idempotencyKey: string
  /** Rises with every claim of the run: an external store that keeps the highest one can refuse a late writer. */
  readonly fence: number
  readonly budget: StepBudget
  readonly env: Env
  readonly services: Services
  readonly logger: Logger
  /** Extends the lease (by the definition's own length unless told). Rejects with `lost_ownership` when it has lapsed. */
  heartbeat(extendBy?: Duration): Promise<void>
}

/** Outcomes that every handler may end with. */
export interface BaseOutcomes<E> {
  /** Ends the run as failed, now. */
  fail(error: E | string, options?: CommitOption): Outcome<never, never, E>
  /** Tries this step again, counting an attempt; fails when none is left. */
  retry(options?: RetryOption): Outcome<never, never, never>
  /** Comes back to this step later, counting no attempt. */
  snooze(time: SnoozeTime, options?: CommitOption): Outcome<never, never, never>
  /** Ends the run as discarded: it was not worth doing. */
  discard(reason: string, options?: CommitOption): Outcome<never, never, never>
  /**
   * It cannot be told whether the effect of this step happened. The run waits, as `uncertain`, for a decision (`resolve`), and runs by
   * itself no more; what is given here is kept with it.
   */
  uncertain(report: UncertainReport, options?: CommitOption): Outcome<never, never, never>
}

/** What a job's handler is given. Returning a value is `done(value)`. */
export interface JobContext<I, R, E> extends BaseContext<I>, BaseOutcomes<E> {
  /** Ends the run as completed, with statements of yours in the same commit. */
  done<const X extends R>(result: X, options?: CommitOption): Outcome<never, X, never>
}

/** What a machine's step is given. */
export interface StepContext<St, G extends SignalMap, N extends string, R, E, I = unknown, P = unknown>
  extends BaseContext<P>,
    BaseOutcomes<E> {
  /** This machine, for recursion: naming the const inside its own initialiser does not typecheck. */
  readonly self: Definition<I, R>
  readonly state: St
  readonly signals: Inbox<G>
  /** True when the wait or the join that led here ran out of time: a recorded fact, never an empty inbox. */
  readonly timedOut: boolean
  /**
   * The children that `join` was entered with, in the order of its calls, or the runs whose ends were waited for, as they ended; of one
   * definition, typed. One that has not ended has its status as it is.
   */
  children<C extends Definition<unknown, unknown>>(of: C): readonly ChildResult<ResultOf<C>>[]
  children(): readonly ChildResult<unknown>[]
  /** Commits the state and enters another step. */
  next(to: N, patch?: NextPatch<St>): Outcome<N, R, E>
  /**
   * Parks until one of the signals or events is in the inbox (it may be there already), one of the runs has ended (it may have already), or
   * the timeout is over. Of each event a run is told once: waiting for it again waits for the next one of that name.
   */
  waitFor(names: Awaitable<keyof G & string> | readonly Awaitable<keyof G & string>[], goal: WaitGoal<N, St>): Outcome<N, R, E>
  /** Spawns the children and parks until enough of them have ended, in one commit. No children: goes on at once. Late children change nothing. */
  join(calls: readonly Call[], goal: JoinGoal<N, St>): Outcome<N, R, E>
  /** Ends the run as completed. */
  done(result: R, options?: CommitOption): Outcome<N, R, E>
}

/** What `onError` is given besides. */
export interface ErrorFacts<N extends string> {
  readonly error: RunError
  /** What was thrown, when it was thrown in this invocation. */
  readonly thrown: unknown
  /** The step that failed. */
  readonly step: N
}

/** The context as the worker builds it: one shape for jobs and machines. Its functions must not need `this`. */
export interface StepContextRuntime extends OutcomeFunctions {
  readonly self: Definition<unknown, unknown>
  readonly run: RunInfo
  readonly step: string
  readonly input: unknown
  readonly state: unknown
  readonly attempt: number
  readonly signals: RuntimeInbox
  readonly timedOut: boolean
  children(of?: Definition<unknown, unknown>): readonly ChildResult<unknown>[]
  readonly abortSignal: AbortSignal
  readonly idempotencyKey: string
  readonly fence: number
  readonly budget: StepBudget
  readonly env: unknown
  readonly services: unknown
  readonly logger: Logger
  heartbeat(extendBy?: Duration): Promise<void>
  /** Set for `onError` only. */
  readonly error?: RunError | undefined
  readonly thrown?: unknown
}
