import type { RetryAnswer } from '../core/resolution.ts'
import type { Status } from '../core/status.ts'
import type { CancelAnswer, CancelScope, Scope } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { cancelMany } from './ending.ts'
import { retakeKeys, retryRun } from './statements/change-runs.ts'
import { lockFamilies } from './statements/end-runs.ts'
import { releaseKeysAgain } from './statements/settle-outcomes.ts'

export async function cancel(context: StoreContext, id: string, scope: CancelScope): Promise<CancelAnswer | null> {
  const { answers } = await cancelMany(context, [id], scope)
  return answers[0] ?? null
}

/** Times a retry is sent when what it lacked was free by the time it was asked who has it. */
const RETRY_SENDS = 3

type RetryScope = Scope & { readonly maxAttempts?: number | null }

export async function retry(context: StoreContext, id: string, scope: RetryScope): Promise<RetryAnswer> {
  for (let sends = 1; ; sends += 1) {
    const answer = await sendRetry(context, id, scope)
    if (answer !== null) return answer
    if (sends >= RETRY_SENDS) return { kind: 'key_taken', holder: id }
  }
}

async function sendRetry(context: StoreContext, id: string, scope: RetryScope): Promise<RetryAnswer | null> {
  const { schema } = context
  const { tenant, maxAttempts = null } = scope
  const params = { now: context.now(), environment: context.environment, tenant, id, maxAttempts }
  // locked before its key is taken: pruned in between, it would leave a key that nobody frees
  const { replies, resent } = await sendRepeatable(context.database, [
    lockFamilies(schema, { ids: [id] }),
    retakeKeys(schema, { ...params, ids: [id] }),
    retryRun(schema, params),
    releaseKeysAgain(schema, { now: context.now(), ids: [id] }),
  ])
  const row = replies[2]?.[0]
  if (!row) return { kind: 'not_found' }
  if (row.retried === true || (resent && row.status === 'pending')) return { kind: 'retried', id }
  const status = row.status as Status
  const ended = status === 'failed' || status === 'cancelled' || status === 'discarded'
  if (ended && maxAttempts !== null && maxAttempts <= Number(row.max_attempts))
    return { kind: 'too_few_attempts', maxAttempts: Number(row.max_attempts) }
  if (!ended || row.is_ours === true) return { kind: 'not_retryable', status }
  return row.holder === null ? null : { kind: 'key_taken', holder: String(row.holder) }
}
