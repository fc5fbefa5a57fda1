import type { AnyDefinition } from '../core/definition.ts'
import type { Duration } from '../core/duration.ts'
import { PawlError } from '../core/errors.ts'
import { type Eventual, isThenable, whenReady } from '../core/eventual.ts'
import { parseInput } from '../core/new-run.ts'
import type { RunError } from '../core/outcome.ts'
import type { Registry } from '../core/registry.ts'
import { parseOptional } from '../core/schema.ts'
import type { ClaimedRun, CommittedOutcome } from '../core/store.ts'
import { createContext, type HandlerSurroundings } from './context.ts'
import { type StepResult, settle } from './settle.ts'

export interface ExecuteParams {
  readonly run: ClaimedRun
  readonly definition: AnyDefinition
  readonly registry: Registry
  readonly surroundings: HandlerSurroundings
  /** Fires when the run is lost or cancelled, or the invocation ends. */
  readonly abort: AbortController
  readonly remainingMs: () => number
  readonly heartbeat: (extendBy?: Duration) => Promise<void>
  readonly random: () => number
}

/**
 * Runs one step and gives its outcome, ready to be committed: at once where neither handler nor schemas give a promise. Never throws and
 * never takes longer than the step's timeout.
 */
export function executeStep(params: ExecuteParams): Eventual<CommittedOutcome> {
  const { run, definition, abort, surroundings, remainingMs, heartbeat, random, registry } = params
  const startedAt = performance.now()
  const values: { input: unknown; state: unknown } = { input: run.input, state: run.state }
  const contextFor = (failure?: { readonly error: RunError; readonly thrown: unknown }) =>
    createContext({ run, definition, ...values, abortSignal: abort.signal, surroundings, remainingMs, heartbeat, failure })
  const call = (): unknown => {
    const step = definition.steps[run.step]
    if (step === undefined)
      throw new PawlError('invalid_state', `"${definition.name}" version ${definition.version} has no step "${run.step}".`)
    return whenReady(parseInput(definition, run.input), (input) =>
      whenReady(parseState(definition, run.state), (state) => {
        values.input = input
        values.state = state
        return step(contextFor())
      }),
    )
  }
  const end = (result: StepResult): Eventual<CommittedOutcome> =>
    settle({ run, definition, registry, result, elapsedMs: performance.now() - startedAt, contextFor, random })
  const result = attempt(call)
  if (result.kind === 'thrown' || !isThenable(result.value)) return end(result)
  return withinTimeout(result.value, definition.timeoutMs, abort).then(end)
}

function parseState(definition: AnyDefinition, state: unknown): unknown {
  return definition.kind === 'machine' ? parseOptional(definition.state, state, { code: 'invalid_state', field: 'state' }) : state
}

function attempt(call: () => unknown): StepResult {
  try {
    return { kind: 'returned', value: call() }
  } catch (thrown) {
    return { kind: 'thrown', thrown }
  }
}

/** A handler against its timeout: one that does not stop is left behind, its outcome is not waited for. */
function withinTimeout(work: PromiseLike<unknown>, timeoutMs: number, abort: AbortController): Promise<StepResult> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      const thrown = new Error(`The step took longer than its timeout of ${timeoutMs} ms.`)
      abort.abort(thrown)
      resolve({ kind: 'thrown', thrown, code: 'timeout' })
    }, timeoutMs)
    const end = (result: StepResult): void => {
      clearTimeout(timer)
      resolve(result)
    }
    work.then(
      (value) => end({ kind: 'returned', value }),
      (thrown: unknown) => end({ kind: 'thrown', thrown }),
    )
  })
}
