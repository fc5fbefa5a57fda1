import type { Statement } from '../core/database.ts'
import type { NewEvent } from '../core/store.ts'
import { eventTopic } from '../core/topics.ts'
import type { StoreContext } from './context.ts'
import { lockFreeWaiters, tellEvent, writeEvent } from './statements/events.ts'
import { takeTopic } from './statements/topics.ts'

/** Runs told of one event, or of one end, in one batch: each is a row locked and written. */
export const TOLD_AT_ONCE = 1_000

/** The event and those who can be told at once: behind the lock of its name, nothing waits for a run. */
export function statementsOfEvent(
  context: StoreContext,
  event: Omit<NewEvent, 'receipt'> & Partial<Pick<NewEvent, 'receipt'>>,
  { nonce, messageId }: { readonly nonce: string; readonly messageId: string | null },
): Statement[] {
  const { schema, environment } = context
  const { tenant, name, payload, retentionMs, receipt } = event
  const now = context.now()
  const waiters = { environment, tenant, topic: eventTopic(name), after: null, limit: TOLD_AT_ONCE }
  return [
    takeTopic(schema, { environment, tenant, topic: waiters.topic }),
    writeEvent(schema, {
      now,
      environment,
      nonce,
      tenant,
      name,
      payload,
      retentionMs,
      receiptKey: receipt?.key ?? null,
      messageId,
    }),
    lockFreeWaiters(schema, waiters),
    tellEvent(schema, { ...waiters, now, nonce, messageId: null }),
  ]
}
