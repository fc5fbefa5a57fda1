/** From what a handler returned or threw to an outcome that can be committed. All that is the user's runs inside the guard here. */
import { allOf } from '../core/all-of.ts'
import { MAX_PAYLOAD_BYTES } from '../core/bounds.ts'
import type { AnyDefinition } from '../core/definition.ts'
import { isPawlError } from '../core/errors.ts'
import { type Eventual, whenReady } from '../core/eventual.ts'
import { type StoredJson, toStored } from '../core/json.ts'
import { toNewRun } from '../core/new-run.ts'
import {
  type CommitStatement,
  type DiscardOutcome,
  type DoneOutcome,
  type FailOutcome,
  isNonRetryable,
  type JoinOutcome,
  type NextOutcome,
  type RunError,
  type RuntimeOutcome,
  type TerminalCause,
  toOutcome,
  toRunError,
  type UncertainOutcome,
  type WaitOutcome,
} from '../core/outcome.ts'
import { nextDelayMs } from '../core/retry.ts'
import { parse, parseOptional } from '../core/schema.ts'
import { gatesFrom } from '../core/slots.ts'
import type { CommittedOutcome, NewRun, OutcomeKind } from '../core/store.ts'
import { attemptOf } from './context.ts'
import type { SettleParams } from './settle-params.ts'
import { awaitsOf, withMessages } from './settle-topics.ts'

/** Errors that come again however often the step is tried: a result or error that cannot be stored ends the run at once. */
const UNSTORABLE = ['invalid_result', 'invalid_error', 'payload_too_large'] as const

/** Always gives an outcome: whatever goes wrong on the way is a failure of the step. */
export function settle(params: SettleParams): Eventual<CommittedOutcome> {
  const { result } = params
  if (result.kind === 'thrown') return settleFailure(params, result.thrown, result.code)
  const asFailure = (error: unknown) => settleFailure(params, error, undefined)
  try {
    const returned = toOutcome(params.definition.kind, result.value)
    const outcome = withMessages(params, returned, toCommitted(params, returned))
    return outcome instanceof Promise ? outcome.catch(asFailure) : outcome
  } catch (error) {
    return asFailure(error)
  }
}

async function settleFailure(params: SettleParams, thrown: unknown, code: string | undefined): Promise<CommittedOutcome> {
  const error = toRunError(thrown, code)
  if (UNSTORABLE.some((unstorable) => isPawlError(thrown, unstorable))) return failed(params, error, 'unstorable')
  if (isNonRetryable(thrown)) return failed(params, error, 'declined')
  const { onError, onTimeout } = params.definition
  if (code === 'timeout' && onTimeout === 'fail') return failed(params, error, 'timeout')
  if (code === 'timeout' && onTimeout === 'uncertain') return uncertain(params, error, { evidence: null, commit: undefined })
  if (onError === undefined) return byPolicy(params, error, thrown)
  try {
    const decision = await onError(params.contextFor({ error, thrown }))
    if (decision === undefined) return byPolicy(params, error, thrown)
    const returned = toOutcome('machine', decision)
    return await withMessages(params, returned, toCommitted(params, returned, error))
  } catch (second) {
    const own = toRunError(second)
    if (UNSTORABLE.some((unstorable) => isPawlError(second, unstorable))) return failed(params, own, 'unstorable')
    return isNonRetryable(second) ? failed(params, own, 'declined') : byPolicy(params, own, second)
  }
}

function byPolicy(params: SettleParams, error: RunError, thrown: unknown): CommittedOutcome {
  const { run, definition } = params
  try {
    const policy = { ...definition.retry, maxAttempts: run.maxAttempts }
    const delayMs = nextDelayMs(policy, run.failures + 1, params.random, thrown)
    return delayMs === undefined ? failed(params, error, 'exhausted') : retried(params, error, { delayMs })
  } catch (broken) {
    // the user's own backoff function threw
    return failed(params, toRunError(broken), 'declined')
  }
}

interface Parts {
  readonly status: CommittedOutcome['status']
  readonly step?: string | null
  readonly state?: StoredJson | null
  readonly result?: string | null
  readonly error?: RunError | null
  readonly delayMs?: number | null
  readonly until?: number | null
  readonly awaits?: readonly string[] | null
  readonly join?: CommittedOutcome['join']
  readonly keeps?: boolean
  readonly slots?: CommittedOutcome['slots']
  readonly yields?: boolean
  readonly commit?: readonly CommitStatement[] | undefined
  readonly uncertainty?: string | null
}

function committed(params: SettleParams, kind: OutcomeKind, parts: Parts): CommittedOutcome {
  const { run } = params
  return {
    run,
    kind,
    status: parts.status,
    step: parts.step ?? null,
    state: parts.state?.text ?? null,
    payloadBytes: parts.state ? parts.state.bytes : null,
    result: parts.result ?? null,
    error: parts.error ? JSON.stringify(parts.error) : null,
    delayMs: parts.delayMs ?? null,
    until: parts.until ?? null,
    awaits: parts.awaits ?? null,
    join: parts.join ?? null,
    elapsedMs: params.elapsedMs,
    attempt: attemptOf(run),
    keeps: parts.keeps ?? false,
    ...(parts.slots && { slots: parts.slots }),
    yields: parts.yields ?? false,
    messages: [],
    commit: parts.commit ?? [],
    uncertainty: parts.uncertainty ?? null,
    mismatch: null,
  }
}

function failed(params: SettleParams, error: RunError, cause: TerminalCause): CommittedOutcome {
  return committed(params, 'fail', { status: 'failed', error: { ...error, cause } })
}

function retried(params: SettleParams, error: RunError | undefined, due: Due): CommittedOutcome {
  return committed(params, 'retry', { status: 'pending', error: error ?? null, ...due })
}

/** `error`: what the handler threw, when the outcome is the decision of `onError`. */
function toCommitted(params: SettleParams, outcome: RuntimeOutcome, error?: RunError): Eventual<CommittedOutcome> {
  const { run, definition } = params
  const { commit } = outcome
  switch (outcome.kind) {
    case 'done':
      return toDone(params, outcome)
    case 'fail':
      return toFail(params, outcome)
    case 'discard':
      return discarded(params, outcome)
    case 'uncertain':
      return uncertain(params, { code: 'uncertain', message: outcome.reason }, outcome)
    case 'retry':
      return retryOutcome(params, outcome, error)
    case 'snooze': {
      if (run.snoozes >= definition.maxSnoozes) {
        return failed(
          params,
          { code: 'snooze_limit', message: `The run has snoozed ${run.snoozes} times, which is its limit.` },
          'snooze_limit',
        )
      }
      return committed(params, 'snooze', { status: 'pending', ...dueAt(outcome.at, outcome.forMs), commit })
    }
    default:
      return toProgress(params, outcome)
  }
}

function discarded(params: SettleParams, { reason, commit }: DiscardOutcome): CommittedOutcome {
  const error: RunError = { code: 'discarded', message: reason, cause: 'discarded' }
  return committed(params, 'discard', { status: 'discarded', error, commit })
}

/** Whatever its evidence is: a report that failed for that would be tried again, which is what it warns of. */
function uncertain(
  params: SettleParams,
  error: RunError,
  { evidence, commit }: Pick<UncertainOutcome, 'evidence' | 'commit'>,
): CommittedOutcome {
  const uncertainty = JSON.stringify({ by: 'handler', reason: error.message, evidence: toEvidence(evidence) })
  return committed(params, 'uncertain', { status: 'uncertain', error, uncertainty, commit })
}

function toEvidence(evidence: unknown): unknown {
  try {
    const { text } = toStored(evidence, { field: 'evidence', maxBytes: MAX_PAYLOAD_BYTES, code: 'invalid_error' })
    return JSON.parse(text)
  } catch (error) {
    return { notStored: toRunError(error).message }
  }
}

function toDone(params: SettleParams, { result, commit }: DoneOutcome): Eventual<CommittedOutcome> {
  return whenReady(parseOptional(params.definition.output, result, AS_RESULT), (value) =>
    committed(params, 'done', { status: 'completed', result: toStored(value, AS_RESULT).text, commit }),
  )
}

async function toFail(params: SettleParams, { error, commit }: FailOutcome): Promise<CommittedOutcome> {
  const own = await errorOf(params.definition, error)
  return committed(params, 'fail', { status: 'failed', error: { ...own, cause: 'declined' }, commit })
}

/** Outcomes that move a machine on: the new state is checked and stored with them. */
function toProgress(params: SettleParams, outcome: NextOutcome | WaitOutcome | JoinOutcome): Eventual<CommittedOutcome> {
  return whenReady(stateOf(params.definition, outcome.state), (state) => toProgressWith(params, outcome, state))
}

function toProgressWith(
  params: SettleParams,
  outcome: NextOutcome | WaitOutcome | JoinOutcome,
  state: StoredJson | null,
): Eventual<CommittedOutcome> {
  const { step, commit } = outcome
  const { limits } = outcome
  const slots = limits === undefined || limits === 'keep' ? limits : gatesFrom(limits, params.run, params.registry.limits)
  switch (outcome.kind) {
    case 'next':
      return committed(params, 'next', {
        status: 'pending',
        step,
        state,
        delayMs: outcome.delayMs,
        yields: outcome.yield,
        slots,
        commit,
      })
    case 'wait': {
      const { keep: keeps, timeoutMs } = outcome
      return whenReady(awaitsOf(params, outcome), (awaits) =>
        committed(params, 'wait', { status: 'waiting', step, state, delayMs: timeoutMs ?? null, awaits, keeps, slots, commit }),
      )
    }
    case 'join':
      return childrenOf(params, outcome).then((children) => {
        const { failFast, cancelsStragglers } = outcome
        const join = { children, need: neededOf(outcome), failFast, cancelsStragglers }
        return committed(params, 'join', {
          status: 'waiting',
          step,
          state,
          delayMs: outcome.deadlineMs ?? null,
          join,
          slots,
          commit,
        })
      })
  }
}

function retryOutcome(
  params: SettleParams,
  outcome: Extract<RuntimeOutcome, { kind: 'retry' }>,
  error: RunError | undefined,
): CommittedOutcome {
  const reason = error ?? { code: 'retry', message: outcome.reason ?? 'The handler asked to be tried again.' }
  if (outcome.afterMs === undefined && outcome.at === undefined) return byPolicy(params, reason, undefined)
  if (params.run.failures + 1 >= params.run.maxAttempts) return failed(params, reason, 'exhausted')
  return retried(params, reason, dueAt(outcome.at, outcome.afterMs ?? 0))
}

type Due = { readonly delayMs: number } | { readonly until: number }

/** An instant goes to the database as it is: only its clock says how far away that is. */
function dueAt(at: string | undefined, delayMs: number): Due {
  return at === undefined ? { delayMs } : { until: Date.parse(at) }
}

const AS_RESULT = { field: 'result', maxBytes: MAX_PAYLOAD_BYTES, code: 'invalid_result' } as const

async function errorOf(definition: AnyDefinition, error: RunError): Promise<RunError> {
  if (error.data === undefined) return error
  const data = definition.error
    ? await parse(definition.error, error.data, { code: 'invalid_error', field: 'error' })
    : error.data
  toStored(data, { field: 'error', maxBytes: MAX_PAYLOAD_BYTES, code: 'invalid_error' })
  return { ...error, data }
}

const AS_STATE = { field: 'state', maxBytes: MAX_PAYLOAD_BYTES, code: 'invalid_state' } as const

function stateOf(definition: AnyDefinition, state: unknown): Eventual<StoredJson | null> {
  if (state === undefined) return null
  return whenReady(parseOptional(definition.state, state, AS_STATE), (value) => toStored(value, AS_STATE))
}

/** Headers that carry a trace: children are part of their parent's. */
const TRACE_HEADERS = ['traceparent', 'tracestate', 'baggage'] as const

/** Children are of the parent's tenant and inherit what traces need. */
async function childrenOf(params: SettleParams, outcome: JoinOutcome): Promise<readonly NewRun[]> {
  const { run, registry } = params
  const inherited = Object.fromEntries(
    TRACE_HEADERS.flatMap((name) => (run.headers[name] === undefined ? [] : [[name, run.headers[name]]])),
  )
  return allOf(outcome.calls.map((call) => toNewRun(call, { registry, tenant: run.tenant, headers: inherited, isChild: true })))
}

function neededOf(outcome: JoinOutcome): number | null {
  if (outcome.need === 'all') return null
  return outcome.need === 'any' ? 1 : outcome.need
}
