import type { Status } from '../core/status.ts'
import type { CancelAnswer, RetryAnswer, Scope } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { cancelRun, lockFamily, retakeKey, retryRun } from './statements/change-runs.ts'
import { handOverLate } from './statements/gates.ts'
import { creditParents, releaseKeys } from './statements/settle-outcomes.ts'

export async function cancel(
  context: StoreContext,
  id: string,
  scope: Scope & { readonly by: string | null },
): Promise<CancelAnswer | null> {
  const { schema, environment } = context
  const { replies, resent } = await sendRepeatable(context.database, [
    lockFamily(schema, { id }),
    cancelRun(schema, { now: context.now(), environment, tenant: scope.tenant, id, by: scope.by }),
    creditParents(schema, { now: context.now(), ids: [id] }),
    releaseKeys(schema, { ids: [id] }),
  ])
  const row = replies[1]?.[0]
  if (!row) return null
  const did = row.did as CancelAnswer['did']
  const gates = (row.gates ?? []) as string[]
  // it may have been handed a gate's room while it waited in the window: pass it on
  if ((did === 'cancelled' || resent) && gates.length > 0)
    await context.database.batch([handOverLate(schema, { environment, gates })])
  return { id, did, status: did === 'cancelled' ? 'cancelled' : (row.status as Status) }
}

export async function retry(context: StoreContext, id: string, scope: Scope): Promise<RetryAnswer> {
  const params = { now: context.now(), environment: context.environment, tenant: scope.tenant, id }
  // locked before its key is taken: pruned in between, it would leave a key that nobody frees
  const { replies, resent } = await sendRepeatable(context.database, [
    lockFamily(context.schema, { id }),
    retakeKey(context.schema, params),
    retryRun(context.schema, params),
  ])
  const row = replies[2]?.[0]
  if (!row) return { kind: 'not_found' }
  if (row.retried === true || (resent && row.status === 'pending')) return { kind: 'retried', id }
  const status = row.status as Status
  const ended = status === 'failed' || status === 'cancelled' || status === 'discarded'
  if (ended && row.holder !== null && row.holder !== id) return { kind: 'key_taken', holder: String(row.holder) }
  return { kind: 'not_retryable', status }
}
