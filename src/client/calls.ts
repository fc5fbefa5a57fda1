import { allOf } from '../core/all-of.ts'
import { MAX_BATCH_ITEMS, MAX_REASON_LENGTH, MAX_VERSION } from '../core/bounds.ts'
import type { Caller, Calls, SignalCall, SignalResult, SpawnCall, SpawnItem, SpawnResult } from '../core/calls.ts'
import { explainDatabaseError } from '../core/database-errors.ts'
import type { DeadlineOptions } from '../core/deadlines.ts'
import { type CallOptions, toCall } from '../core/definition.ts'
import { isPawlError, notAllowed, PawlError } from '../core/errors.ts'
import { isUuid } from '../core/ids.ts'
import { cleanText, toStored } from '../core/json.ts'
import { checkInteger, checkName } from '../core/names.ts'
import { type NewRunCall, toNewRun } from '../core/new-run.ts'
import type { Admission, CancelAnswer, Delivery, NewRun } from '../core/store.ts'
import { resolveRun, retry } from './deciding.ts'
import { emitEvent } from './events.ts'
import { signalReceipt, spawnReceipt } from './idempotency.ts'
import { createOperatingCalls } from './operating.ts'
import { reconcile } from './reconcile.ts'
import { checkSignal } from './signal-check.ts'
import { createSpawnBatcher, isRefusedData, type Settled, spawnBatch, toBatches } from './spawn-batches.ts'
import { type CreateCallsOptions, explained, notFound, readRun, type Surroundings, tenantOf } from './surroundings.ts'
import { hostPacing, waitUntilStill } from './wait.ts'

export type { CallDefaults, CreateCallsOptions } from './surroundings.ts'

/** What applications and the HTTP API call, over one store. Made per invocation: it holds nothing but what is being sent. */
export function createCalls(options: CreateCallsOptions): Calls {
  const { store, pacing = hostPacing, defaults = {} } = options
  const around: Surroundings = { ...options, defaults, committed: () => options.onCommit?.() }
  const admit = createSpawnBatcher(store)
  const getRun = (id: string, caller?: Caller) => readRun(around, id, caller)
  const spawn = async (call: SpawnCall, caller?: Caller): Promise<SpawnResult> => {
    let run: NewRun | undefined
    const settled = await admit(async () => {
      run = await prepare(around, call, caller)
      return run
    })
    // prepared, or `admit` had thrown
    const value = toResult(run as NewRun, settled)
    if (changedSomething(value)) around.committed()
    return value
  }
  return {
    spawn,
    spawnMany: (calls, caller) => spawnMany(around, calls, caller),
    signal: (call, caller) => sendSignal(around, call, caller),
    emit: (call, caller) => emitEvent(around, call, caller),
    cancel: (id, caller) => cancel(around, id, caller),
    retry: (id, options, caller) => retry(around, id, options ?? {}, caller, spawn),
    resolve: (id, call, caller) => resolveRun(around, id, call, caller),
    reconcile: (key, caller) => reconcile(around, key, caller),
    ...createOperatingCalls(around),
    getRun,
    waitForRun: (id, waitMs, caller, signal) => waitUntilStill(() => getRun(id, caller), waitMs, pacing, signal),
  }
}

/** A promise only where something has to be waited for. */
function prepare(around: Surroundings, call: SpawnCall, caller: Caller | undefined): NewRun | Promise<NewRun> {
  const { registry, defaults } = around
  const { id, idempotencyKey, origin } = call
  if (id !== undefined && !isUuid(id)) {
    throw notAllowed('invalid_request', { field: 'id', got: id, allowed: 'a UUID in lower case' })
  }
  const tenant = tenantOf(around, caller)
  const run = toNewRun(toRunCall(call), { registry, tenant, id, origin, maxAttempts: defaults.maxAttempts })
  return idempotencyKey === undefined ? run : withReceipt(run, call)
}

async function withReceipt(run: NewRun | Promise<NewRun>, call: SpawnCall): Promise<NewRun> {
  return { ...(await run), receipt: await spawnReceipt(call) }
}

function toRunCall(call: SpawnCall): NewRunCall {
  const { definition, version, input, key, onConflict, queue, priority, delay, at, maxAttempts, tags, headers } = call
  const { maxDuration, startWithin, progressWithin } = call
  checkName(definition, { field: 'definition', code: 'invalid_request' })
  if (version !== undefined) checkInteger(version, { field: 'version', min: 1, max: MAX_VERSION, code: 'invalid_request' })
  // a text that is no duration is refused by `toCall`
  const durations = { delay, maxDuration, startWithin, progressWithin } as Pick<CallOptions, keyof DeadlineOptions | 'delay'>
  const options: CallOptions = { key, onConflict, queue, priority, at, maxAttempts, tags, headers, ...durations }
  return { ...toCall({ definition, version: version ?? 1, input, options }), version }
}

function toResult(run: NewRun, settled: Settled): SpawnResult {
  if (!settled.ok) throw explainSpawn(run, settled.error)
  return toSpawnResult(run, settled.admission)
}

export function toSpawnResult(run: NewRun, admission: Admission): SpawnResult {
  switch (admission.kind) {
    case 'created':
    case 'occupied':
      return {
        id: admission.id,
        status: admission.status,
        created: admission.kind === 'created',
        replayed: false,
        ...effectOf(admission),
      }
    case 'replayed':
      return { id: admission.id, status: admission.status, created: admission.created, replayed: true, ...effectOf(admission) }
    case 'mismatch':
      throw mismatch(run.receipt?.key)
    case 'id_taken':
      throw new PawlError('conflict', `The id ${run.id} belongs to another run: choose another one.`, {
        field: 'id',
        got: run.id,
      })
    case 'contended': {
      const detail = `Others hold what run ${run.id} of "${run.definition}" must not share, one after another. Nothing was written: ask again.`
      throw new PawlError('database_busy', detail, { retryAfterMs: CONTENDED_RETRY_MS })
    }
  }
}

/** When a spawn that found its key changing hands may be asked again, in milliseconds. */
const CONTENDED_RETRY_MS = 1_000

/** What it did to the run that it is answered with. */
function effectOf(admission: Admission): Pick<SpawnResult, 'rescheduled' | 'gathered'> {
  if (!('effect' in admission) || admission.effect === undefined) return {}
  return admission.effect === 'rescheduled' ? { rescheduled: true } : { gathered: true }
}

/** Something may have become due that was not before. */
export function changedSomething({ created, replayed, rescheduled, gathered }: SpawnResult): boolean {
  return !replayed && (created || rescheduled === true || gathered === true)
}

function mismatch(key: string | undefined): PawlError {
  const detail = `The idempotency key ${JSON.stringify(key)} was used for another request: a new request needs a new key.`
  return new PawlError('idempotency_mismatch', detail, { field: 'idempotencyKey', got: key })
}

function explainSpawn(run: NewRun, error: unknown): unknown {
  const { idIsCallers, key, receipt } = run
  const isRepeatable = idIsCallers || key !== null || receipt !== null
  const remedy = isRepeatable
    ? 'Ask again with the same id, key or idempotency key: what was written is answered.'
    : `Look for the run ${run.id} before spawning again.`
  return explainDatabaseError(error, { asked: `Spawning run ${run.id} of "${run.definition}"`, remedy })
}

async function spawnMany(
  around: Surroundings,
  calls: readonly SpawnCall[],
  caller: Caller | undefined,
): Promise<readonly SpawnItem[]> {
  if (calls.length > MAX_BATCH_ITEMS) {
    const allowed = `at most ${MAX_BATCH_ITEMS}`
    throw new PawlError('too_many_items', `Got ${calls.length} items, allowed is ${allowed}.`, {
      got: String(calls.length),
      allowed,
    })
  }
  const prepared = await prepareMany(around, calls, caller)
  const settled = await spawnInBatches(
    around,
    prepared.filter((item): item is NewRun => !isPawlError(item)),
  )
  let next = 0
  const items = prepared.map(
    (item): SpawnItem => (isPawlError(item) ? { ok: false, error: item } : toItem(item, settled[next++])),
  )
  if (items.some((item) => item.ok && changedSomething(item.value))) around.committed()
  return items
}

/** The runs, and in the place of those that are refused why. */
async function prepareMany(
  around: Surroundings,
  calls: readonly SpawnCall[],
  caller: Caller | undefined,
): Promise<readonly (NewRun | PawlError)[]> {
  const prepared = calls.map((call) => {
    try {
      const run = prepare(around, call, caller)
      return run instanceof Promise ? run.catch(toPawlError) : run
    } catch (error) {
      return toPawlError(error)
    }
  })
  return allOf(prepared)
}

/** Batches one after another. The first that fails ends it: before it nothing is lost, after it nothing was sent. */
async function spawnInBatches({ store }: Surroundings, runs: readonly NewRun[]): Promise<readonly Settled[]> {
  const settled: Settled[] = []
  for (const batch of toBatches(runs, (run) => run.payloadBytes)) {
    const answers = await spawnBatch(store, batch)
    const failure = answers.find((answer) => !answer.ok && !isRefusedData(answer.error))
    const accepted = [...settled, ...answers].some(({ ok }) => ok)
    // nothing at all was accepted: one failure says it better than thousands
    if (failure && !accepted) throw explainMany(batch, failure)
    settled.push(...answers)
    if (failure) break
  }
  return settled
}

function explainMany(batch: readonly NewRun[], answer: Settled): unknown {
  const error = answer.ok ? undefined : answer.error
  const remedy = `The first of them has the id ${batch[0]?.id}. Ask again with ids, keys or idempotency keys of your own.`
  return explainDatabaseError(error, { asked: `Spawning ${batch.length} runs`, remedy })
}

function toItem(run: NewRun, settled: Settled | undefined): SpawnItem {
  try {
    if (settled === undefined) {
      const detail = `Run ${run.id} was not sent: the database failed before its turn. Nothing was written.`
      throw new PawlError('database_unreachable', detail, { retryAfterMs: 2_000 })
    }
    return { ok: true, value: toResult(run, settled) }
  } catch (error) {
    return { ok: false, error: toPawlError(error) }
  }
}

function toPawlError(error: unknown): PawlError {
  if (isPawlError(error)) return error
  const message = error instanceof Error ? error.message : String(error)
  return new PawlError('internal', message.slice(0, 500), { cause: error })
}

async function sendSignal(around: Surroundings, call: SignalCall, caller: Caller | undefined): Promise<SignalResult> {
  const { store, registry } = around
  const tenant = tenantOf(around, caller)
  const asSignal = { field: 'payload', code: 'invalid_signal' } as const
  const sent = JSON.parse(toStored(call.payload, asSignal).text)
  const readTarget = (id: string) => explained(store.getRun(id, { tenant }), { asked: `Reading run ${id}`, writes: false })
  const payload = toStored(await checkSignal({ call, payload: sent, registry, readTarget }), asSignal)
  const receipt = await signalReceipt(call)
  const to = 'id' in call.to ? { id: call.to.id } : { key: call.to.key, definition: call.to.definition ?? null }
  const remedy = receipt
    ? 'Send it again with the same idempotency key: it arrives once.'
    : 'Sent again it may arrive twice: use an idempotency key.'
  const sending = store.signal({ tenant, to, name: call.name, payload: payload.text, receipt })
  const delivery = await explained(sending, { asked: `Sending the signal "${call.name}"`, remedy })
  const result = toSignalResult(call, delivery)
  if (delivery.kind === 'delivered' && delivery.woke) around.committed()
  return result
}

export function toSignalResult(call: SignalCall, delivery: Delivery): SignalResult {
  const target = 'id' in call.to ? `the id ${call.to.id}` : `the key ${JSON.stringify(call.to.key)}`
  switch (delivery.kind) {
    case 'delivered':
      return { id: delivery.signalId, runId: delivery.runId, replayed: delivery.replayed }
    case 'no_target':
      throw new PawlError('no_target', `No live run has ${target}.`, { field: 'to' })
    case 'ambiguous':
      throw new PawlError('conflict', `${delivery.count} live runs have ${target}: say the definition.`, {
        field: 'to.definition',
      })
    case 'mismatch':
      throw mismatch(call.idempotencyKey)
  }
}

async function cancel(
  around: Surroundings,
  id: string,
  caller: (Caller & { readonly reason?: string | undefined }) | undefined,
): Promise<CancelAnswer> {
  const tenant = tenantOf(around, caller)
  const reason = caller?.reason === undefined ? null : checkReason(caller.reason)
  const asked = `Cancelling run ${id}`
  const remedy = 'Ask again: it is cancelled once.'
  const cancelling = isUuid(id) ? around.store.cancel(id, { tenant, by: caller?.by ?? null, reason }) : Promise.resolve(null)
  const answer = await explained(cancelling, { asked, remedy })
  if (answer === null) throw notFound(id)
  // a parent may go on, a key or a slot may be free
  if (answer.did === 'cancelled' || answer.children) around.committed()
  return answer
}

function checkReason(reason: string): string {
  if (typeof reason === 'string' && reason.length <= MAX_REASON_LENGTH) return cleanText(reason)
  const allowed = `a text of at most ${MAX_REASON_LENGTH} characters`
  throw notAllowed('invalid_request', { field: 'reason', got: reason, allowed })
}
