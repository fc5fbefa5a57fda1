/** What a request came to whose reply was lost. */
import type { ReceiptRecord } from '../core/caller-transaction.ts'
import type { Caller, Reconciled } from '../core/calls.ts'
import { PawlError } from '../core/errors.ts'
import { checkKey } from '../core/names.ts'
import { explained, type Surroundings, tenantOf } from './surroundings.ts'

export async function reconcile(around: Surroundings, idempotencyKey: string, caller: Caller | undefined): Promise<Reconciled> {
  const tenant = tenantOf(around, caller)
  const key = checkKey(idempotencyKey, { field: 'idempotencyKey', code: 'invalid_request' })
  const finding = around.store.findReceipt(key, { tenant })
  const found = await explained(finding, { asked: `Looking for what "${key}" came to`, writes: false })
  if (found === null) throw nothingOf(key)
  return toReconciled(found)
}

function nothingOf(key: string): PawlError {
  const detail = `Nothing was decided under the idempotency key ${JSON.stringify(key)}: send the request again under the same key.`
  return new PawlError('not_found', detail, { field: 'idempotencyKey', got: key })
}

function toReconciled(found: ReceiptRecord): Reconciled {
  return { ...found, replayed: true }
}
