/** Outcomes as the worker commits them, and claims as it asks for them, so that a test says itself which request meets which. */
import { toCall } from '../../src/core/definition.ts'
import { randomUuid } from '../../src/core/ids.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import type { ClaimedRun, ClaimRequest, CommittedOutcome, NewRun } from '../../src/core/store.ts'
import { LaneMemory, type StoreContext } from '../../src/db/context.ts'
import { released } from '../../src/worker/committed.ts'
import type { TestEngine } from '../support/engine.ts'

export function claimRequest(engine: TestEngine, request: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    claimId: randomUuid(),
    definitions: engine.registry.definitions,
    queues: null,
    limit: 100,
    maxBytes: 8_388_608,
    leaseMs: 30_000,
    laneCursor: 0,
    alone: true,
    besides: [],
    peek: false,
    ...request,
  }
}

/** Takes what is due, in the order of the ids. */
export async function claim(engine: TestEngine, request: Partial<ClaimRequest> = {}): Promise<readonly ClaimedRun[]> {
  const { runs } = await engine.store.claim(claimRequest(engine, request))
  return [...runs].sort((left, right) => (left.id < right.id ? -1 : 1))
}

/** Takes the one run that is due. */
export async function claimOne(engine: TestEngine, request: Partial<ClaimRequest> = {}): Promise<ClaimedRun> {
  const runs = await claim(engine, request)
  if (runs.length !== 1 || !runs[0]) throw new Error(`claimed ${runs.length} runs, expected 1`)
  return runs[0]
}

export function finishes(run: ClaimedRun, result: string | null = null): CommittedOutcome {
  return { ...released(run), kind: 'done', status: 'completed', result }
}

export function fails(run: ClaimedRun): CommittedOutcome {
  return { ...released(run), kind: 'fail', status: 'failed', error: JSON.stringify({ code: 'failed', message: 'failed' }) }
}

export function retries(run: ClaimedRun, delayMs = 0): CommittedOutcome {
  return { ...released(run), kind: 'retry', status: 'pending', delayMs }
}

export function moves(run: ClaimedRun, step: string, delayMs = 0): CommittedOutcome {
  return { ...released(run), kind: 'next', status: 'pending', step, delayMs }
}

/** Commits the step and stays in hand. */
export function goesOn(run: ClaimedRun, step: string): CommittedOutcome {
  return { ...released(run), kind: 'continue', status: 'running', step }
}

export function waits(run: ClaimedRun, names: readonly string[], timeoutMs: number | null = null): CommittedOutcome {
  return { ...released(run), kind: 'wait', status: 'waiting', awaits: names, delayMs: timeoutMs }
}

/** Waits again for what it was shown too, to gather several names. */
export function gathers(run: ClaimedRun, names: readonly string[]): CommittedOutcome {
  return { ...waits(run, names), keeps: true }
}

export function joins(
  run: ClaimedRun,
  children: readonly NewRun[],
  need: number | null = null,
  options: { readonly failFast?: boolean; readonly cancelsStragglers?: boolean; readonly deadlineMs?: number | undefined } = {},
): CommittedOutcome {
  const { failFast = false, cancelsStragglers = false, deadlineMs = null } = options
  const join = { children, need, failFast, cancelsStragglers }
  return { ...released(run), kind: 'join', status: 'waiting', delayMs: deadlineMs, join }
}

export interface ChildOptions {
  readonly id?: string
  readonly key?: string
  readonly input?: unknown
}

export async function child(engine: TestEngine, definition: string, { id, key, input }: ChildOptions = {}): Promise<NewRun> {
  const call = toCall({ definition, version: 0, input, options: key === undefined ? {} : { key } })
  return toNewRun({ ...call, version: undefined }, { registry: engine.registry, tenant: 'default', id })
}

export function children(engine: TestEngine, definition: string, count: number): Promise<readonly NewRun[]> {
  return Promise.all(Array.from({ length: count }, () => child(engine, definition)))
}

export function flush(engine: TestEngine, outcomes: readonly CommittedOutcome[], next: ClaimRequest | null = null) {
  return engine.store.flush({ outcomes, endedClaims: [] }, next)
}

/** What the statements of this engine are made with, for tests that send them one by one. */
export function contextOf(engine: TestEngine, now: string | null = null): StoreContext {
  return { database: engine.database, schema: 'pawl', environment: engine.environment, now: () => now, lanes: new LaneMemory() }
}

/** An id whose order is chosen: ids are locked in this order. */
export function orderedId(order: number, group: number): string {
  return `${String(order).padStart(8, '0')}-0000-7000-8000-${String(group).padStart(12, '0')}`
}
