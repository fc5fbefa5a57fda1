import type { Statement } from '../core/database.ts'
import type { StoreContext } from './context.ts'
import { leaveEnds } from './statements/outbox.ts'
import { creditParents, releaseKeys } from './statements/settle-outcomes.ts'
import { forgetWaits } from './statements/topics.ts'

/**
 * What follows the end of one run that no flush ended, behind the statement that ended it: its parent is told, it waits for nothing any more, those
 * who wait for it are to be told, its keys are free.
 */
export function statementsOfEnd(context: StoreContext, id: string): readonly Statement[] {
  const { schema } = context
  const ids = [id]
  return [
    creditParents(schema, { now: context.now(), ids }),
    forgetWaits(schema, { ids }),
    leaveEnds(schema, { now: context.now(), ids }),
    releaseKeys(schema, { now: context.now(), ids }),
  ]
}
