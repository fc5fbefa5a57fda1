import { type ChildResult, createInbox, type ReceivedSignal, type StepContextRuntime } from '../core/context.ts'
import { type AnyDefinition, type Definition, runtimeOf } from '../core/definition.ts'
import type { Duration } from '../core/duration.ts'
import type { Logger } from '../core/logger.ts'
import type { RunError } from '../core/outcome.ts'
import type { ClaimedRun, JoinedChild } from '../core/store.ts'
import { awaitedRunOf, eventOf } from '../core/topics.ts'

/** What the host hands to every handler. Never the engine's own database. */
export interface HandlerSurroundings {
  readonly env: unknown
  readonly services: unknown
  readonly logger: Logger
}

export interface CreateContextParams {
  readonly run: ClaimedRun
  readonly definition: AnyDefinition
  /** The input as the schema gives it. */
  readonly input: unknown
  readonly state: unknown
  readonly abortSignal: AbortSignal
  readonly surroundings: HandlerSurroundings
  readonly remainingMs: () => number
  readonly heartbeat: (extendBy?: Duration) => Promise<void>
  readonly failure?: { readonly error: RunError; readonly thrown: unknown } | undefined
}

/** What a handler is given. Everything in it may be destructured. */
export function createContext(params: CreateContextParams): StepContextRuntime {
  const { run, definition, surroundings, remainingMs, heartbeat, failure } = params
  // every member by its name: spreading the functions in makes an object that grows by each of the members that follow
  const { next, waitFor, join, done, fail, retry, snooze, discard, uncertain } = definition.outcomes
  return {
    next,
    waitFor,
    join,
    done,
    fail,
    retry,
    snooze,
    discard,
    uncertain,
    self: definition.self,
    run: {
      id: run.id,
      definition: run.definition,
      version: run.version,
      queue: run.queue,
      key: run.key ?? undefined,
      tenant: run.tenant,
      tags: run.tags,
      headers: run.headers,
      parentId: run.parentId ?? undefined,
    },
    step: run.step,
    input: params.input,
    state: params.state,
    attempt: attemptOf(run),
    signals: createInbox(presentedSignals(run)),
    timedOut: run.timedOut,
    children: (of?: Definition<unknown, unknown>) => childResults(run, of),
    abortSignal: params.abortSignal,
    idempotencyKey: idempotencyKeyOf(run),
    fence: run.seq,
    budget: { remainingMs },
    env: surroundings.env,
    services: surroundings.services,
    logger: surroundings.logger,
    heartbeat,
    error: failure?.error,
    thrown: failure?.thrown,
  }
}

/** Which try of this visit it is, from 1. */
export function attemptOf(run: ClaimedRun): number {
  return run.failures + run.losses + 1
}

/** The same over all attempts of one visit, another when the run comes back to the same step. */
export function idempotencyKeyOf(run: ClaimedRun): string {
  return `${run.id}:${run.visit}`
}

/** The signals and events that ended the wait: those of its names. Anything else stays in the inbox, unseen and unconsumed. */
function presentedSignals(run: ClaimedRun): readonly ReceivedSignal[] {
  if (run.inbox.length === 0) return []
  return run.inbox
    .filter(({ name }) => run.awaits.includes(name) && awaitedRunOf(name) === undefined)
    .map(({ id, name, payload, receivedAt }) => ({
      id,
      name: eventOf(name) ?? name,
      payload,
      receivedAt: new Date(receivedAt).toISOString(),
    }))
}

/** Those of a join, or the runs that were waited for and have ended. */
function childResults(run: ClaimedRun, of: Definition<unknown, unknown> | undefined): readonly ChildResult<unknown>[] {
  const name = of === undefined ? undefined : runtimeOf(of).name
  const ends = run.inbox.filter((entry) => run.awaits.includes(entry.name) && awaitedRunOf(entry.name) !== undefined)
  // what the engine has put into the inbox is the end of a run as it tells it
  const all = [...run.children, ...ends.map(({ payload }) => payload as Ended)]
  return all.filter((child) => name === undefined || child.definition === name).map(toChildResult)
}

type Ended = Omit<JoinedChild, 'index'>

function toChildResult(child: Ended): ChildResult<unknown> {
  const base = { id: child.id, definition: child.definition, key: child.key ?? undefined }
  if (child.status === 'completed') return { ...base, status: 'completed', result: child.result }
  if (child.status === 'failed' || child.status === 'cancelled' || child.status === 'discarded') {
    return {
      ...base,
      status: child.status,
      error: child.error ?? { code: child.status, message: `The child was ${child.status}.` },
    }
  }
  return { ...base, status: child.status }
}
