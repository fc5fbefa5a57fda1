import type { Row } from '../core/database.ts'
import type { UpkeepDone } from '../core/store.ts'
import type { StoreContext } from './context.ts'
import { finishHandovers } from './late-handover.ts'
import { pruneEvents } from './statements/events.ts'
import { callRates, handOver, mintGates } from './statements/gates.ts'
import { dropIdleGates, healGates, lockGates, readBlockedGates } from './statements/heal-gates.ts'
import { hastenUpkeep, pruneEnded, pruneReceipts, takeUpkeep } from './statements/upkeep.ts'

/** Rows deleted by one pass of each kind: some milliseconds of work, so that no pass holds up a tick. */
const PRUNED_AT_ONCE = 2_000
/** Counters recounted, and looked at for waiters and idleness, by one pass. */
const GATES_AT_ONCE = 1_000

/**
 * The duties nobody else has: retention, expired receipts and events, slots of gates that no run holds any more, runs blocked on a gate
 * that has room, and counters that say nothing. Only the tick that moves the environment's `upkeep_at` does them; each is bounded. `more`: retention did not get to its end,
 * and is due again in a second. `woke`: runs that were blocked on a gate may be due now.
 */
export async function upkeep(
  context: StoreContext,
  request: { readonly source: string; readonly nextInMs: number; readonly minRetentionSeconds: number },
): Promise<UpkeepDone> {
  const { database, schema, environment } = context
  const now = context.now()
  const [taken = []] = await database.batch([
    takeUpkeep(schema, { now, environment, source: request.source, nextInMs: request.nextInMs }),
  ])
  if (taken.length === 0) return { pruned: 0, more: false, woke: false }
  const gates = { now, environment, limit: GATES_AT_ONCE }
  const [, , blocked = [], , ended = []] = await database.batch([
    lockGates(schema, gates),
    healGates(schema, gates),
    readBlockedGates(schema, gates),
    dropIdleGates(schema, gates),
    pruneEnded(schema, { now, environment, limit: PRUNED_AT_ONCE, minRetentionSeconds: request.minRetentionSeconds }),
    pruneReceipts(schema, { now, environment, limit: PRUNED_AT_ONCE }),
    pruneEvents(schema, { now, environment, limit: PRUNED_AT_ONCE }),
    hastenUpkeep(schema, { now, environment }),
  ])
  await handOverBlocked(context, blocked)
  return { pruned: Number(ended[0]?.pruned ?? 0), more: ended[0]?.more === true, woke: blocked.length > 0 }
}

async function handOverBlocked(context: StoreContext, blocked: readonly Row[]): Promise<void> {
  if (blocked.length === 0) return
  const { database, schema, environment } = context
  const gates = blocked.map((row) => String(row.gate)).sort()
  const short = blocked.filter((row) => row.is_short === true).map((row) => String(row.gate))
  const statements = [
    // nobody who is blocked asks for the counters that are not there
    ...(short.length > 0 ? [mintGates(schema, { environment, gates: short })] : []),
    handOver(schema, { environment, gates }),
    callRates(schema, { now: context.now(), environment, gates }),
  ]
  await finishHandovers(context, statements, await database.batch(statements))
}
