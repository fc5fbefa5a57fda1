import type { Row, Statement } from '../core/database.ts'
import { randomUuid } from '../core/ids.ts'
import type { Emission, NewEvent } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { statementsOfEvent } from './event-statements.ts'
import { relay } from './outbox.ts'
import { RECEIPT_KEEP_MS } from './spawning.ts'
import { writeReceipts } from './statements/admit-runs.ts'
import { forgetReceipt } from './statements/deliver-signals.ts'
import { decideEvent, readEvent } from './statements/events.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'
import { leaveMessage } from './statements/outbox.ts'

/**
 * One batch: the event, if its name is free, then those who wait for it and are not locked by others. Whoever is left over is told by batches of
 * their own, right after and by the next ticks.
 */
export async function emitEvent(context: StoreContext, event: NewEvent): Promise<Emission> {
  const { schema, environment } = context
  const { tenant, name, receipt } = event
  const nonce = randomUuid()
  const read = { environment, nonce, tenant, name, receiptKey: receipt?.key ?? null }
  const statements: Statement[] = [
    ensureEnvironment(schema, { environment }),
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
    ...statementsOfEvent(context, event, { nonce, messageId: null }),
    ...(receipt ? [decideEvent(schema, read)] : []),
    readEvent(schema, read),
    ...(receipt
      ? [forgetReceipt(schema, { environment, nonce, tenant, receiptKey: receipt.key, fingerprint: receipt.fingerprint })]
      : []),
  ]
  const { replies } = await sendRepeatable(context.database, statements)
  const reply = (wanted: string): Row | undefined => replies[statements.findIndex((statement) => statement.name === wanted)]?.[0]
  const told = reply('tell_event')
  const row = reply('read_event')
  if (told?.more === true) await relay(context).catch(() => {})
  if (receipt && row?.fingerprint !== receipt.fingerprint) return { kind: 'mismatch' }
  return { ...toEmission(row, receipt !== null), woke: Number(told?.woken ?? 0) > 0 }
}

function toEmission(row: Row | undefined, hasReceipt: boolean) {
  const decided = (hasReceipt ? row?.decision : null) as { created: boolean; emittedAt: number; expiresAt: number } | null
  const replayed = hasReceipt && row?.receipt_is_ours !== true
  if (decided) return { kind: 'emitted', ...decided, replayed } as const
  return {
    kind: 'emitted',
    created: row?.created === true,
    emittedAt: Number(row?.emitted_at),
    expiresAt: Number(row?.expires_at),
    replayed,
  } as const
}

/**
 * For a transaction of the caller's: the event is left in the outbox, so that the transaction holds no lock that runs could wait for, and is emitted
 * once it is committed, by whoever relays next. Rolled back, it was never there.
 */
export function statementsOfLaterEvent(context: StoreContext, event: Omit<NewEvent, 'receipt'>): Statement[] {
  const { schema, environment } = context
  const { tenant, name, payload, retentionMs } = event
  const body = JSON.stringify({ payload: JSON.parse(payload), retentionMs })
  return [
    ensureEnvironment(schema, { environment }),
    leaveMessage(schema, { now: context.now(), environment, tenant, kind: 'event', subject: name, body }),
  ]
}
