import type { EmitCall, SignalCall, SpawnCall } from '../core/calls.ts'
import { canonical, HASH_VERSION, sha256Hex } from '../core/canonical.ts'
import type { Json } from '../core/json.ts'
import { toStored } from '../core/json.ts'
import { checkKey } from '../core/names.ts'
import type { Receipt } from '../core/store.ts'

/** Headers that differ between two sendings of one request. */
const TRACING: ReadonlySet<string> = new Set(['traceparent', 'tracestate', 'baggage'])

/** What a repeat of a spawn is known by: all that the caller said, so that a later build's defaults make no difference. */
export async function spawnReceipt(call: SpawnCall): Promise<Receipt | null> {
  const { idempotencyKey, headers = {}, at, ...request } = call
  if (idempotencyKey === undefined) return null
  const lasting = Object.entries(headers).filter(([name]) => !TRACING.has(name.toLowerCase()))
  return toReceipt(idempotencyKey, 'spawn', {
    ...request,
    at: at instanceof Date ? at.toISOString() : at,
    headers: Object.fromEntries(lasting),
  })
}

export async function signalReceipt(call: SignalCall): Promise<Receipt | null> {
  const { idempotencyKey, ...request } = call
  return idempotencyKey === undefined ? null : toReceipt(idempotencyKey, 'signal', request)
}

export async function eventReceipt(call: EmitCall): Promise<Receipt | null> {
  const { idempotencyKey, ...request } = call
  return idempotencyKey === undefined ? null : toReceipt(idempotencyKey, 'event', request)
}

/** The algorithm's version goes in front, so that another one can follow without refusing what was asked before. */
async function toReceipt(key: string, kind: 'spawn' | 'signal' | 'event', request: object): Promise<Receipt> {
  checkKey(key, { field: 'idempotencyKey', code: 'invalid_request' })
  // as it will be stored: a Date and its text are one request
  const stored = toStored({ kind, request }, { field: 'request', code: 'invalid_request', maxBytes: MAX_REQUEST_BYTES })
  return { key, fingerprint: `${HASH_VERSION}:${await sha256Hex(canonical(JSON.parse(stored.text) as Json))}` }
}

/** Twice a request body: the payload has its own bound, which says more. */
const MAX_REQUEST_BYTES = 8_388_608
