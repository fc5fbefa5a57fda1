import { DatabaseError, type Row, type Statement } from '../core/database.ts'
import { randomUuid } from '../core/ids.ts'
import type { Delivery, NewSignal } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { RECEIPT_KEEP_MS } from './spawning.ts'
import { writeReceipts } from './statements/admit-runs.ts'
import { type DeliverSignalParams, deliverSignal, forgetReceipt, readReceipt } from './statements/deliver-signals.ts'

export interface SignalPlan {
  /** In order, of one batch or one transaction. */
  readonly statements: readonly Statement[]
  readonly params: DeliverSignalParams
  /** What the replies, one per statement, say. */
  readonly read: (replies: readonly (readonly Row[])[]) => Delivery
}

/** A signal as statements and what their replies mean. Pure: nothing is sent. Sent twice under one nonce it arrives once. */
export function planSignal(context: StoreContext, signal: NewSignal, nonce: string): SignalPlan {
  const { schema, environment } = context
  const { receipt, tenant } = signal
  const asReceipt = receipt ? { environment, nonce, tenant, receiptKey: receipt.key, fingerprint: receipt.fingerprint } : null
  const byId = 'id' in signal.to
  const params: DeliverSignalParams = {
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
  }
  const deliver = deliverSignal(schema, params)
  const read = asReceipt ? readReceipt(schema, asReceipt) : null
  const statements: readonly Statement[] = [
    ...(receipt ? [toReceipt(context, signal, nonce)] : []),
    deliver,
    ...(asReceipt && read ? [read, forgetReceipt(schema, asReceipt)] : []),
  ]
  return {
    statements,
    params,
    read: (replies) => {
      const delivered = replies[statements.indexOf(deliver)]?.[0]
      return toDelivery({ byId, delivered, kept: read ? replies[statements.indexOf(read)]?.[0] : undefined })
    },
  }
}

function toReceipt(context: StoreContext, { receipt, tenant }: NewSignal, nonce: string): Statement {
  return writeReceipts(context.schema, {
    now: context.now(),
    environment: context.environment,
    nonce,
    tenants: [tenant],
    keys: [receipt?.key ?? ''],
    fingerprints: [receipt?.fingerprint ?? ''],
    keepMs: RECEIPT_KEEP_MS,
  })
}

interface Replies {
  readonly byId: boolean
  readonly delivered: Row | undefined
  readonly kept: Row | undefined
}

function toDelivery({ byId, delivered, kept }: Replies): Delivery {
  if (kept && kept.matches !== true) return { kind: 'mismatch' }
  const decision = (kept?.decision ?? null) as { signalId: string; runId: string } | null
  const isOurs = kept?.is_ours === true
  // a resend may find the run ended by the very signal, and its key free
  if (decision && (!isOurs || (delivered?.signal_id ?? null) === null))
    return { kind: 'delivered', ...decision, replayed: !isOurs, woke: false }
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

export async function signalRun(context: StoreContext, signal: NewSignal): Promise<Delivery> {
  const { statements, read } = planSignal(context, signal, randomUuid())
  const sent = await sendRepeatable(context.database, statements)
  const delivery = read(sent.replies)
  if (!sent.resent || delivery.kind === 'delivered') return delivery
  // what is sent again may wait for the first, which its snapshot then does not see: a third one does
  const third = read((await sendRepeatable(context.database, statements)).replies)
  if (third.kind === 'delivered' || 'id' in signal.to || signal.receipt !== null) return third
  // the run may have been ended by the very signal, and its key be free
  throw new DatabaseError('The reply was lost, and no run has the key any more.', { fate: 'lost' })
}
