import type { AnyDefinition } from '../core/definition.ts'
import type { Duration } from '../core/duration.ts'
import { PawlError } from '../core/errors.ts'
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

/** Runs one step and gives its outcome, ready to be committed. Never throws and never takes longer than the step's timeout. */
export async function executeStep(params: ExecuteParams): Promise<CommittedOutcome> {
  const { run, definition, abort, surroundings, remainingMs, heartbeat, random, registry } = params
  const startedAt = performance.now()
  const values: { input: unknown; state: unknown } = { input: run.input, state: run.state }
  const contextFor = (failure?: { readonly error: RunError; readonly thrown: unknown }) =>
    createContext({ run, definition, ...values, abortSignal: abort.signal, surroundings, remainingMs, heartbeat, failure })
  const call = async (): Promise<unknown> => {
    const step = definition.steps[run.step]
    if (step === undefined)
      throw new PawlError('invalid_state', `"${definition.name}" version ${definition.version} has no step "${run.step}".`)
    values.input = await parseInput(definition, run.input)
    if (definition.kind === 'machine')
      values.state = await parseOptional(definition.state, run.state, { code: 'invalid_state', field: 'state' })
    return step(contextFor())
  }
  const result = await withinTimeout(call, definition.timeoutMs, abort)
  const elapsedMs = performance.now() - startedAt
  return settle({ run, definition, registry, result, elapsedMs, contextFor, random })
}

/** A handler against its timeout: one that does not stop is left behind, its outcome is not waited for. */
function withinTimeout(call: () => Promise<unknown>, timeoutMs: number, abort: AbortController): Promise<StepResult> {
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
    call().then(
      (value) => end({ kind: 'returned', value }),
      (thrown: unknown) => end({ kind: 'thrown', thrown }),
    )
  })
}
