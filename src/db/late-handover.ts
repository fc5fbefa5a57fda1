import type { Row, Statement } from '../core/database.ts'
import type { StoreContext } from './context.ts'
import { handOverLate } from './statements/gates.ts'

/**
 * Finishes, in a request of its own, what a batch could not hand over: heirs whose rows others held, and slots that a rescue gave back.
 * None in the normal case. The batch is committed by now, so a failure here is not its failure: upkeep comes by later.
 */
export async function finishHandovers(
  context: StoreContext,
  statements: readonly Statement[],
  replies: readonly (readonly Row[])[],
): Promise<void> {
  const gates = new Set<string>()
  statements.forEach(({ name }, index) => {
    if (name === 'hand_over') for (const row of replies[index] ?? []) gates.add(String(row.gate))
    if (name === 'rescue_lost') for (const gate of (replies[index]?.[0]?.gates ?? []) as string[]) gates.add(gate)
  })
  if (gates.size === 0) return
  const { database, schema, environment } = context
  await database.batch([handOverLate(schema, { environment, gates: [...gates].sort() })]).catch(() => {})
}
