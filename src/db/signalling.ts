import type { Row, Statement } from '../core/database.ts'
import { randomUuid } from '../core/ids.ts'
import type { Delivery, NewSignal } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { RECEIPT_KEEP_MS } from './spawning.ts'
import { writeReceipts } from './statements/admit-runs.ts'
import { deliverSignal, forgetReceipt, readReceipt } from './statements/deliver-signals.ts'

export async function signalRun(context: StoreContext, signal: NewSignal): Promise<Delivery> {
  const { schema, environment } = context
  const nonce = randomUuid()
  const { receipt, tenant } = signal
  const asReceipt = receipt ? { environment, nonce, tenant, receiptKey: receipt.key, fingerprint: receipt.fingerprint } : null
  const byId = 'id' in signal.to
  const statements: Statement[] = [
    ...(receipt
      ? [
          writeReceipts(schema, {
            now: context.now(),
            environment,
            nonce,
            tenants: [tenant],
            keys: [receipt.key],
            fingerprints: [receipt.fingerprint],
            keepMs: RECEIPT_KEEP_MS,
          }),
        ]
      : []),
    deliverSignal(schema, {
      now: context.now(),
      environment,
      nonce,
      tenant,
      runId: 'id' in signal.to ? signal.to.id : null,
      key: 'id' in signal.to ? null : signal.to.key,
      definition: 'id' in signal.to ? null : signal.to.definition,
      name: signal.name,
      payload: signal.payload,
      receiptKey: receipt?.key ?? null,
    }),
    ...(asReceipt ? [readReceipt(schema, asReceipt), forgetReceipt(schema, asReceipt)] : []),
  ]
  const sent = await sendRepeatable(context.database, statements)
  const deliveredBy = (replies: readonly (readonly Row[])[]) => replies[receipt ? 1 : 0]?.[0]
  // what is sent again may wait for the first, which its snapshot then does not see: a third one does
  const isUnseen = sent.resent && (deliveredBy(sent.replies)?.signal_id ?? null) === null
  const replies = isUnseen ? (await sendRepeatable(context.database, statements)).replies : sent.replies
  const delivered = deliveredBy(replies)
  const kept = receipt ? replies[2]?.[0] : undefined
  if (kept && kept.matches !== true) return { kind: 'mismatch' }
  const decision = (kept?.decision ?? null) as { signalId: string; runId: string } | null
  if (decision && kept?.is_ours !== true) return { kind: 'delivered', ...decision, replayed: true, woke: false }
  if (delivered && delivered.signal_id !== null) {
    return {
      kind: 'delivered',
      signalId: String(delivered.signal_id),
      runId: String(delivered.run_id),
      replayed: false,
      woke: delivered.woke === true,
    }
  }
  const count = Number(delivered?.addressed ?? 0)
  return !byId && count > 1 ? { kind: 'ambiguous', count } : { kind: 'no_target' }
}
