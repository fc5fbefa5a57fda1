import type { Caller, EmitCall, EmitResult } from '../core/calls.ts'
import type { Duration } from '../core/duration.ts'
import { notAllowed, PawlError } from '../core/errors.ts'
import { toStored } from '../core/json.ts'
import { checkEvent } from '../core/message-check.ts'
import { toEventRetentionMs } from '../core/messages.ts'
import { checkName } from '../core/names.ts'
import type { NewEvent } from '../core/store.ts'
import { eventReceipt } from './idempotency.ts'
import { explained, type Surroundings, tenantOf } from './surroundings.ts'

/** An event as it is stored, everything checked. Costs no request. */
export async function toNewEvent(around: Surroundings, call: EmitCall, caller: Caller | undefined): Promise<NewEvent> {
  const asEvent = { field: 'payload', code: 'invalid_event' } as const
  const name = checkName(call.name, { field: 'name', code: 'invalid_request' })
  const sent = JSON.parse(toStored(call.payload, asEvent).text)
  const payload = toStored(await checkEvent(around.registry.definitions, name, sent), asEvent)
  return {
    tenant: tenantOf(around, caller),
    name,
    payload: payload.text,
    // a text that is no duration is refused
    retentionMs: toEventRetentionMs(call.retention as Duration | undefined, 'retention', 'invalid_request'),
    receipt: await eventReceipt(call),
  }
}

/** For a transaction of the caller's: whether the event is the first of its name is known once that is committed. */
export async function toLaterEvent(around: Surroundings, call: EmitCall, caller: Caller | undefined): Promise<NewEvent> {
  if (call.idempotencyKey === undefined) return toNewEvent(around, call, caller)
  const allowed = 'none: what is committed once is emitted once'
  throw notAllowed('invalid_request', { field: 'idempotencyKey', got: call.idempotencyKey, allowed })
}

export async function emitEvent(around: Surroundings, call: EmitCall, caller: Caller | undefined): Promise<EmitResult> {
  const event = await toNewEvent(around, call, caller)
  const remedy = 'Ask again: an event that is there is answered with `created: false`, under the same idempotency key as it was.'
  const emission = await explained(around.store.emit(event), { asked: `Emitting the event "${event.name}"`, remedy })
  if (emission.kind === 'mismatch') {
    const detail = `The idempotency key ${JSON.stringify(call.idempotencyKey)} was used for another request: a new request needs a new key.`
    throw new PawlError('idempotency_mismatch', detail, { field: 'idempotencyKey', got: call.idempotencyKey })
  }
  const { created, emittedAt, expiresAt, replayed, woke } = emission
  if (woke) around.committed()
  return { name: event.name, created, emittedAt: toText(emittedAt), expiresAt: toText(expiresAt), replayed }
}

function toText(ms: number): string {
  return new Date(ms).toISOString()
}
