import type { Row, Statement } from '../core/database.ts'
import type { StoreContext } from './context.ts'
import { callRates, handOverLate } from './statements/gates.ts'

/** A line of paused runs is moved out of the way some at a time: beyond so many times it is left to upkeep. */
const ROUNDS = 20

/**
 * Hands over the room of gates, in requests that have nothing locked, until none is left for those who wait. Where tokens are a part of it,
 * the next tick does.
 */
export async function passOnRoom(context: StoreContext, gates: readonly string[]): Promise<void> {
  const { database, schema, environment, now } = context
  let left = [...new Set(gates)].sort()
  for (let round = 0; left.length > 0 && round < ROUNDS; round += 1) {
    const statements = [
      handOverLate(schema, { environment, gates: left }),
      ...(round === 0 ? [callRates(schema, { now: now(), environment, gates: left })] : []),
    ]
    const [rows = []] = await database.batch(statements)
    left = rows.map((row) => String(row.gate)).sort()
  }
}

/**
 * Finishes, in a request of its own, what a batch could not hand over: heirs whose rows others held, slots that a rescue gave back, and
 * room in which a run stood that a spawn has moved to later. None in the normal case. The batch is committed by now, so a failure here is not its failure: upkeep comes by later.
 * That of a caller's transaction is not: what it leaves is in the outbox.
 */
export async function finishHandovers(
  context: StoreContext,
  statements: readonly Statement[],
  replies: readonly (readonly Row[])[],
): Promise<void> {
  if (context.isCallers) return
  const gates = new Set<string>()
  statements.forEach(({ name }, index) => {
    if (name === 'hand_over') for (const row of replies[index] ?? []) gates.add(String(row.gate))
    if (name === 'merge_spawns' || name === 'rescue_lost')
      for (const gate of (replies[index]?.[0]?.gates ?? []) as string[]) gates.add(gate)
  })
  await passOnRoom(context, [...gates]).catch(() => {})
}
