import type { Statement } from '../core/database.ts'
import type { StoreContext } from './context.ts'
import { creditParents, releaseKeys } from './statements/settle-outcomes.ts'

/** What follows the end of one run that no flush ended, behind the statement that ended it: its parent is told, its keys are free. */
export function statementsOfEnd(context: StoreContext, id: string): readonly Statement[] {
  const { schema } = context
  return [creditParents(schema, { now: context.now(), ids: [id] }), releaseKeys(schema, { now: context.now(), ids: [id] })]
}
