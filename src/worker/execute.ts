import type { AnyDefinition } from '../core/definition.ts'
import type { Duration } from '../core/duration.ts'
import { isPawlError } from '../core/errors.ts'
import { type Eventual, isThenable, whenReady } from '../core/eventual.ts'
import { parseInput } from '../core/new-run.ts'
import type { RunError } from '../core/outcome.ts'
import type { Registry } from '../core/registry.ts'
import { parseOptional } from '../core/schema.ts'
import type { ClaimedRun, CommittedOutcome } from '../core/store.ts'
import { ended, mismatched } from './committed.ts'
import { attemptOf, createContext, type HandlerSurroundings } from './context.ts'
import { settle } from './settle.ts'
import type { SettleParams, StepResult } from './settle-params.ts'

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
  readonly findRuns: SettleParams['findRuns']
}

/**
 * Runs one step and gives its outcome, ready to be committed: at once where neither handler nor schemas give a promise. Never throws and
 * never takes longer than the step's timeout.
 */
export function executeStep(params: ExecuteParams): Eventual<CommittedOutcome> {
  const { run, definition, abort, surroundings, remainingMs, heartbeat, random, registry, findRuns } = params
  const startedAt = performance.now()
  const values: { input: unknown; state: unknown } = { input: run.input, state: run.state }
  const contextFor = (failure?: { readonly error: RunError; readonly thrown: unknown }) =>
    createContext({ run, definition, ...values, abortSignal: abort.signal, surroundings, remainingMs, heartbeat, failure })
  // noted, not read off what was thrown: that may be anything, and not to be looked at
  let misfit: string | undefined
  const refused = (message: string): never => {
    misfit = message
    throw new Error(message)
  }
  const call = (): unknown => {
    const step = definition.steps[run.step]
    if (step === undefined) return refused(`"${definition.name}" version ${definition.version} has no step "${run.step}".`)
    const readInput = () => parseInput(definition, pristine(definition, run.input))
    const readState = () => parseState(definition, pristine(definition, run.state))
    return whenReady(fitting(readInput, refused), (input) =>
      whenReady(fitting(readState, refused), (state) => {
        values.input = input
        values.state = state
        return step(contextFor())
      }),
    )
  }
  const end = (result: StepResult): Eventual<CommittedOutcome> => {
    // told to stop, it did: how does not matter
    if (result.kind === 'thrown' && isPawlError(abort.signal.reason, 'cancelled')) return ended(run, 'cancelled')
    if (misfit !== undefined) return mismatched(run, misfit)
    const elapsedMs = performance.now() - startedAt
    return settle({ run, definition, registry, result, elapsedMs, contextFor, random, findRuns })
  }
  const stuck = (): void => warnOfStuck(params)
  const result = attempt(call)
  return result.kind === 'promised'
    ? withinTimeout(result.work, { timeoutMs: definition.timeoutMs, abort, stuck }).then(end)
    : end(result)
}

/** A stored value that its schema refuses fitted when it was stored: by other code. What a validator throws besides is a failure of the step. */
function fitting(read: () => unknown, refused: (message: string) => never): unknown {
  const look = (error: unknown): never => {
    if (isPawlError(error, 'invalid_input') || isPawlError(error, 'invalid_state')) return refused(error.message)
    throw error
  }
  try {
    const value = read()
    return value instanceof Promise ? value.catch(look) : value
  } catch (error) {
    return look(error)
  }
}

function warnOfStuck({ run, abort, surroundings }: ExecuteParams): void {
  const { id, definition, step } = run
  const facts = { run: id, definition, step, attempt: attemptOf(run), reason: String(abort.signal.reason) }
  surroundings.logger.warn('pawl: a handler goes on though its signal was aborted', facts)
}

/**
 * What a machine's handler is given is its own: the next step may follow in this invocation, and must see what is stored, not what this
 * one did to its values.
 */
function pristine(definition: AnyDefinition, value: unknown): unknown {
  return definition.kind === 'machine' && typeof value === 'object' ? structuredClone(value) : value
}

function parseState(definition: AnyDefinition, state: unknown): unknown {
  return definition.kind === 'machine' ? parseOptional(definition.state, state, { code: 'invalid_state', field: 'state' }) : state
}

/** Whatever the handler gives: an object whose `then` throws is a failure of the step, like everything else in it. */
function attempt(call: () => unknown): StepResult | { readonly kind: 'promised'; readonly work: Promise<unknown> } {
  try {
    const value = call()
    return isThenable(value) ? { kind: 'promised', work: Promise.resolve(value) } : { kind: 'returned', value }
  } catch (thrown) {
    return { kind: 'thrown', thrown }
  }
}

/** How long a handler may go on after its signal was aborted before that is said, in milliseconds. */
const STUCK_AFTER_MS = 1_000

/**
 * A handler against its timeout: one that does not stop is left behind, its outcome is not waited for. `stuck` is called once for a
 * handler that goes on although it was told to stop, whoever told it.
 */
function withinTimeout(
  work: Promise<unknown>,
  { timeoutMs, abort, stuck }: { readonly timeoutMs: number; readonly abort: AbortController; readonly stuck: () => void },
): Promise<StepResult> {
  return new Promise((resolve) => {
    let watch: ReturnType<typeof setTimeout> | undefined
    const onAbort = (): void => {
      watch ??= setTimeout(stuck, STUCK_AFTER_MS)
    }
    abort.signal.addEventListener('abort', onAbort)
    const timer = setTimeout(() => {
      const thrown = new Error(`The step took longer than its timeout of ${timeoutMs} ms.`)
      abort.abort(thrown)
      resolve({ kind: 'thrown', thrown, code: 'timeout' })
    }, timeoutMs)
    const end = (result: StepResult): void => {
      clearTimeout(timer)
      clearTimeout(watch)
      abort.signal.removeEventListener('abort', onAbort)
      resolve(result)
    }
    work.then(
      (value) => end({ kind: 'returned', value }),
      (thrown: unknown) => end({ kind: 'thrown', thrown }),
    )
  })
}
