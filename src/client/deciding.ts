/** What people decide about runs: to try one again, and what became of one that is uncertain. */
import { MAX_ATTEMPTS } from '../core/bounds.ts'
import type { Caller, RetryCall, RetryResult, SpawnCall, SpawnResult } from '../core/calls.ts'
import { canonical, HASH_VERSION, sha256Hex } from '../core/canonical.ts'
import type { AnyDefinition } from '../core/definition.ts'
import { notAllowed, PawlError } from '../core/errors.ts'
import { isUuid } from '../core/ids.ts'
import { type Json, toStored } from '../core/json.ts'
import { checkInteger, checkKey, checkName } from '../core/names.ts'
import type { ConfirmedError, Decision, NewResolution, ResolveCall, ResolveResult } from '../core/resolution.ts'
import { type RunError, shorten } from '../core/run-error.ts'
import { parse, parseOptional } from '../core/schema.ts'
import type { Status } from '../core/status.ts'
import { explained, notFound, readRun, type Surroundings, tenantOf } from './surroundings.ts'

type Spawn = (call: SpawnCall, caller?: Caller) => Promise<SpawnResult>

export async function retry(
  around: Surroundings,
  id: string,
  options: RetryCall,
  caller: Caller | undefined,
  spawn: Spawn,
): Promise<RetryResult> {
  const tenant = tenantOf(around, caller)
  const { asNewRun = false, idempotencyKey } = options
  const limits = { field: 'maxAttempts', min: 1, max: MAX_ATTEMPTS, code: 'invalid_request' } as const
  const maxAttempts = options.maxAttempts === undefined ? null : checkInteger(options.maxAttempts, limits)
  if (!isUuid(id)) throw notFound(id)
  if (asNewRun) return retryAsNewRun(around, id, { maxAttempts, idempotencyKey }, caller, spawn)
  if (idempotencyKey !== undefined) {
    throw notAllowed('invalid_request', { field: 'idempotencyKey', got: idempotencyKey, allowed: 'nothing, unless asNewRun' })
  }
  const remedy = 'Look at the run before asking again.'
  const answer = await explained(around.store.retry(id, { tenant, maxAttempts }), { asked: `Retrying run ${id}`, remedy })
  switch (answer.kind) {
    case 'retried':
      around.committed()
      return { id: answer.id, did: 'retried', status: 'pending' }
    case 'not_found':
      throw notFound(id)
    case 'not_retryable':
      throw notRetryable(id, answer.status)
    case 'too_few_attempts':
      throw tooFewAttempts(id, maxAttempts, answer.maxAttempts)
    case 'key_taken':
      throw keyTaken(id, answer.holder)
  }
}

/** Everything of it that its caller said, and where it comes from; what the definition adds it adds again. */
async function retryAsNewRun(
  around: Surroundings,
  id: string,
  options: { readonly maxAttempts: number | null; readonly idempotencyKey: string | undefined },
  caller: Caller | undefined,
  spawn: Spawn,
): Promise<RetryResult> {
  const run = await readRun(around, id, caller)
  const { definition, version, queue, priority, input, key, tags, headers } = run
  if (run.status !== 'failed' && run.status !== 'cancelled' && run.status !== 'discarded') throw notRetryable(id, run.status)
  if (options.maxAttempts !== null && options.maxAttempts <= run.maxAttempts)
    throw tooFewAttempts(id, options.maxAttempts, run.maxAttempts)
  // what a machine starts with only its code can say
  if (run.state !== null && around.registry.find(definition, version) === undefined) {
    const detail = `Run ${id} is of "${definition}" version ${version}, which this build does not have: it cannot be started anew here.`
    throw new PawlError('unknown_definition', detail, { field: 'definition', got: definition })
  }
  const again = { definition, version, queue, priority, input, key: key ?? undefined, tags, headers }
  const origin = { retriedFrom: id, by: caller?.by }
  const maxAttempts = options.maxAttempts ?? run.maxAttempts
  const made = await spawn({ ...again, maxAttempts, origin, idempotencyKey: options.idempotencyKey }, caller)
  if (!made.created) throw keyTaken(id, made.id)
  return { id: made.id, did: 'spawned', status: made.status }
}

function notRetryable(id: string, status: Status): PawlError {
  const remedy = status === 'uncertain' ? ' An uncertain run is resolved.' : ''
  const detail = `Run ${id} is ${status}: only a run that failed, was cancelled or discarded can be retried.${remedy}`
  return new PawlError('not_retryable', detail)
}

function tooFewAttempts(id: string, asked: number | null, had: number): PawlError {
  const detail = `Run ${id} had ${had} attempts: got ${asked}, allowed are more.`
  return new PawlError('not_retryable', detail, { field: 'maxAttempts', got: String(asked), allowed: `more than ${had}` })
}

function keyTaken(id: string, holder: string): PawlError {
  return new PawlError('key_taken', `The key of run ${id}, or what makes it unique, is held by run ${holder} now.`, {
    field: 'key',
    got: holder,
  })
}

/** For the record, in bytes. */
const MAX_DETAILS_BYTES = 65_536
const DECISIONS: readonly Decision[] = ['success', 'failure', 'replay']

export async function resolveRun(
  around: Surroundings,
  id: string,
  call: ResolveCall,
  caller: Caller | undefined,
): Promise<ResolveResult> {
  const tenant = tenantOf(around, caller)
  const attributed = attribute(call, caller)
  if (!isUuid(id)) throw notFound(id)
  const definition = call.decision === 'replay' ? undefined : await definitionOf(around, id, caller)
  const resolution = await toResolution(call, attributed, definition)
  const remedy = 'Ask again with the same decision id: it is carried out once.'
  const answer = await explained(around.store.resolve(id, { tenant }, resolution), { asked: `Resolving run ${id}`, remedy })
  switch (answer.kind) {
    case 'resolved':
    case 'already_applied':
      // it may run now, its parent may go on, its key is free
      if (answer.kind === 'resolved') around.committed()
      return { id, did: answer.kind, decision: call.decision, status: answer.status }
    case 'not_found':
      throw notFound(id)
    case 'other_decision':
      throw conflict(
        `Run ${id} was resolved under the id ${JSON.stringify(call.id)} by another decision: a new decision needs a new id.`,
      )
    case 'cancel_requested':
      throw conflict(`The cancellation of run ${id} was requested: it can be confirmed as success or failure, not replayed.`)
    case 'not_uncertain':
      throw conflict(`Run ${id} is ${answer.status}: only an uncertain run can be resolved.`)
  }
}

function conflict(detail: string): PawlError {
  return new PawlError('conflict', detail)
}

async function definitionOf(around: Surroundings, id: string, caller: Caller | undefined): Promise<AnyDefinition | undefined> {
  const { definition, version } = await readRun(around, id, caller)
  // one that this build does not know is not checked
  return around.registry.find(definition, version)
}

/** Checks what the decision says of itself. */
function attribute(call: ResolveCall, caller: Caller | undefined): { readonly by: string; readonly via: string | undefined } {
  checkKey(call.id, { field: 'id', code: 'invalid_request' })
  if (!DECISIONS.includes(call.decision)) {
    throw notAllowed('invalid_request', { field: 'decision', got: call.decision, allowed: DECISIONS.join(', ') })
  }
  for (const [field, decision] of [
    ['result', 'success'],
    ['error', 'failure'],
  ] as const) {
    const value: unknown = (call as { readonly [K in typeof field]?: unknown })[field]
    if (value === undefined || call.decision === decision) continue
    throw notAllowed('invalid_request', { field, got: value, allowed: `nothing, unless the decision is ${decision}` })
  }
  const by = call.by ?? caller?.by
  if (by === undefined) throw notAllowed('invalid_request', { field: 'by', got: by, allowed: 'who decides' })
  const decider = checkName(by, { field: 'by', code: 'invalid_request' })
  return { by: decider, via: caller?.by === decider ? undefined : caller?.by }
}

async function toResolution(
  call: ResolveCall,
  { by, via }: ReturnType<typeof attribute>,
  definition: AnyDefinition | undefined,
): Promise<NewResolution> {
  const { id, decision } = call
  const result = call.decision === 'success' ? await resultOf(call.result, definition) : null
  const error = call.decision === 'failure' ? JSON.stringify(await errorOf(call.error, definition)) : null
  const limit = { field: 'details', maxBytes: MAX_DETAILS_BYTES, code: 'invalid_request' } as const
  const details = call.details === undefined ? undefined : (JSON.parse(toStored(call.details, limit).text) as Json)
  const command = { decision, by, result, error, details: details ?? null }
  const fingerprint = `${HASH_VERSION}:${await sha256Hex(canonical(command))}`
  return { resolution: { id, decision, by, via, details, fingerprint }, result, error }
}

async function resultOf(result: unknown, definition: AnyDefinition | undefined): Promise<string> {
  const asResult = { field: 'result', code: 'invalid_result' } as const
  return toStored(await parseOptional(definition?.output, result, asResult), asResult).text
}

/** What `fail` would have stored. */
async function errorOf(given: ConfirmedError, definition: AnyDefinition | undefined): Promise<RunError> {
  const error = typeof given === 'string' ? { message: given } : given
  if (typeof error?.message !== 'string' || error.message === '') {
    throw notAllowed('invalid_request', { field: 'error', got: given, allowed: 'a text, or { message, code?, data? }' })
  }
  const { code = 'failed', message, data } = error
  checkName(code, { field: 'error.code', code: 'invalid_request' })
  const facts = { code, message: shorten(message), cause: 'confirmed' } as const
  if (data === undefined) return facts
  const asError = { field: 'error.data', code: 'invalid_error' } as const
  const checked = definition?.error ? await parse(definition.error, data, asError) : data
  return { ...facts, data: JSON.parse(toStored(checked, asError).text) }
}
