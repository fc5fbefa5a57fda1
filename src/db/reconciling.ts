import type { ReceiptRecord } from '../core/caller-transaction.ts'
import { randomUuid } from '../core/ids.ts'
import type { Status } from '../core/status.ts'
import type { Scope } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { writeReceipts } from './statements/admit-runs.ts'
import { forgetReceipt, readReceipt } from './statements/deliver-signals.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'

/** Long enough to be there in the next statement; it is gone with the batch. */
const PROBE_KEEP_MS = 60_000

/**
 * What was decided under an idempotency key. Writing a receipt of the same key, and taking it back in the same batch, waits for a request
 * that is writing its own right now: what is read is not yet to be undone or still to come from it.
 */
export async function findReceipt(context: StoreContext, key: string, { tenant }: Scope): Promise<ReceiptRecord | null> {
  const { schema, environment } = context
  const nonce = randomUuid()
  const probe = { environment, nonce, tenant, receiptKey: key, fingerprint: '' }
  const { replies } = await sendRepeatable(context.database, [
    // the first request of an environment makes it: it is waited for by this
    ensureEnvironment(schema, { environment }),
    writeReceipts(schema, {
      now: context.now(),
      environment,
      nonce,
      tenants: [tenant],
      keys: [key],
      fingerprints: [''],
      keepMs: PROBE_KEEP_MS,
    }),
    readReceipt(schema, probe),
    forgetReceipt(schema, probe),
  ])
  return toReceiptRecord(replies[2]?.[0]?.decision)
}

/** As it was written by who decided. */
interface Decision {
  readonly id?: string
  readonly status?: Status
  readonly created?: boolean
  readonly signalId?: string
  readonly runId?: string
}

function toReceiptRecord(decision: unknown): ReceiptRecord | null {
  const { id, status, created, signalId, runId } = (decision ?? {}) as Decision
  if (signalId !== undefined && runId !== undefined) return { kind: 'signal', id: signalId, runId }
  return id !== undefined && status !== undefined ? { kind: 'run', id, status, created: created === true } : null
}
