/** Telling what commits have left to be told. */
import type { Statement } from '../core/database.ts'
import type { NewSignal } from '../core/store.ts'
import { eventOf } from '../core/topics.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { statementsOfEvent, TOLD_AT_ONCE } from './event-statements.ts'
import { finishHandovers } from './late-handover.ts'
import { deliverSignal } from './statements/deliver-signals.ts'
import { lockWaiters, tellEnd, tellEvent } from './statements/events.ts'
import { callRates, handOver } from './statements/gates.ts'
import { dropMessage, lockMessage, readMessages } from './statements/outbox.ts'

/** Messages read by one request. */
const READ_AT_ONCE = 100
/** Requests of one relay that nobody bounds. */
const MAX_REQUESTS = 200

interface Message {
  readonly id: string
  readonly tenant: string
  readonly kind: string
  readonly subject: string
  readonly body: unknown
  readonly nonce: string
}

/**
 * Tells what is in the outbox, oldest first, a batch for each message, and one more for each thousand who are told of the same thing. A message
 * is deleted in the batch that tells it; one that cannot be told is left where it is and holds up none of the others.
 */
export async function relay(
  context: StoreContext,
  maxRequests: number = MAX_REQUESTS,
): Promise<{ readonly told: number; readonly more: boolean }> {
  const { database, schema, environment } = context
  let told = 0
  const failed = new Map<string, unknown>()
  let requests = 0
  while (requests < maxRequests) {
    requests += 1
    const rows = await database.query(readMessages(schema, { environment, limit: READ_AT_ONCE }))
    const messages = rows.map(toMessage).filter(({ id }) => !failed.has(id))
    if (messages.length === 0) break
    for (const message of messages.slice(0, maxRequests - requests)) {
      requests += 1
      try {
        if (await tell(context, message)) told += 1
        // somebody else tells it at this moment
        else failed.set(message.id, undefined)
      } catch (error) {
        failed.set(message.id, error)
      }
    }
    if (rows.length < READ_AT_ONCE && messages.every(({ id }) => failed.has(id))) break
  }
  for (const error of failed.values()) if (error !== undefined) throw error
  return { told, more: requests >= maxRequests }
}

function toMessage(row: Readonly<Record<string, unknown>>): Message {
  // rows enter here: the columns are those of `read_messages`
  return row as unknown as Message
}

/** True when it was this relay that told it. */
async function tell(context: StoreContext, message: Message): Promise<boolean> {
  const { schema, environment } = context
  const locking = lockMessage(schema, { environment, messageId: message.id })
  const statements = [locking, ...statementsOf(context, message)]
  const { replies, resent } = await sendRepeatable(context.database, statements)
  await finishHandovers(context, statements, replies)
  return (replies[0]?.length ?? 0) > 0 || resent
}

function statementsOf(context: StoreContext, message: Message): Statement[] {
  const { schema, environment } = context
  const { id: messageId, tenant, kind, subject, nonce } = message
  switch (kind) {
    case 'event': {
      const { payload, retentionMs } = message.body as { payload: unknown; retentionMs: number }
      const event = { tenant, name: subject, payload: JSON.stringify(payload), retentionMs }
      return [...statementsOfEvent(context, event, { nonce, messageId }), dropMessage(schema, { environment, messageId })]
    }
    case 'signal': {
      const { to, payload } = message.body as { to: NewSignal['to']; payload: unknown }
      return [
        deliverSignal(schema, {
          now: context.now(),
          environment,
          nonce,
          tenant,
          runId: 'id' in to ? to.id : null,
          key: 'id' in to ? null : to.key,
          definition: 'id' in to ? null : to.definition,
          name: subject,
          payload: JSON.stringify(payload),
          receiptKey: null,
        }),
        dropMessage(schema, { environment, messageId }),
      ]
    }
    case 'room': {
      const gates = { environment, gates: [subject] }
      return [
        handOver(schema, gates),
        callRates(schema, { ...gates, now: context.now() }),
        dropMessage(schema, { environment, messageId }),
      ]
    }
    default: {
      const after = (message.body as { after?: string } | null)?.after ?? null
      const waiters = { environment, tenant, topic: subject, after, limit: TOLD_AT_ONCE }
      const params = { ...waiters, now: context.now(), nonce: null, messageId }
      const telling = eventOf(subject) === undefined ? tellEnd(schema, params) : tellEvent(schema, params)
      return [lockWaiters(schema, waiters), telling]
    }
  }
}
