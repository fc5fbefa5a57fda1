import type { Row, Statement } from '../core/database.ts'
import type { Status } from '../core/status.ts'
import type { CancelAnswer, CancelScope } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { passOnRoom } from './late-handover.ts'
import { endCascades, followParents } from './statements/cascade.ts'
import { findEndings, judgeDeadlines } from './statements/deadlines.ts'
import { endRequested, lockFamilies, requestCancel, tryLockFamilies } from './statements/end-runs.ts'
import { releaseKept } from './statements/gates.ts'
import { leaveEnds } from './statements/outbox.ts'
import { creditParents, releaseKeys } from './statements/settle-outcomes.ts'
import { forgetWaits } from './statements/topics.ts'

/** Runs of each kind that one pass ends: some milliseconds of locks. */
const ENDED_AT_ONCE = 500

/**
 * What follows the end of runs that no flush ended, behind the statement that ended them: their parents are told, they wait for nothing any
 * more, those who wait for them are to be told, their keys are free.
 */
export function statementsOfEnd({ schema, now }: StoreContext, ids: readonly string[]): readonly Statement[] {
  const params = { now: now(), ids }
  return [creditParents(schema, params), forgetWaits(schema, { ids }), leaveEnds(schema, params), releaseKeys(schema, params)]
}

/** Ends those runs that bear a request and that nobody works on: behind the lock of their families and whatever wrote the request. */
function statementsOfEnding(context: StoreContext, ids: readonly string[]): readonly Statement[] {
  const { schema } = context
  const params = { now: context.now(), ids }
  return [endRequested(schema, params), releaseKept(schema, params), ...statementsOfEnd(context, ids)]
}

/** A run may have been handed a gate's room while it stood in the window: it is passed on, in a batch that has nothing locked. */
async function passOn(context: StoreContext, ended: readonly Row[]): Promise<void> {
  await passOnRoom(
    context,
    ended.flatMap((row) => (row.gates ?? []) as string[]),
  )
}

/**
 * Cancels runs of one tenant, in one batch: those nobody works on at once, the others are asked to stop. Answers the ones there are, in no
 * order. Idempotent; `resent`: what was done already may have been done by this very call, whose first reply was lost. Their children follow with
 * the ticks to come.
 */
export async function cancelMany(
  context: StoreContext,
  ids: readonly string[],
  { tenant, by, reason = null }: CancelScope,
): Promise<{ readonly answers: readonly CancelAnswer[]; readonly resent: boolean }> {
  const { schema, environment, database } = context
  const cancellation = JSON.stringify(toCancellation(by, reason))
  const { replies, resent } = await sendRepeatable(database, [
    lockFamilies(schema, { ids }),
    requestCancel(schema, { now: context.now(), environment, tenant, ids, cancellation }),
    ...statementsOfEnding(context, ids),
  ])
  const [, found = [], ended = []] = replies
  await passOn(context, resent ? found : ended)
  const endedIds = new Set(ended.map((row) => row.id as string))
  return { answers: found.map((row) => toAnswer(row, endedIds.has(row.id as string))), resent }
}

function toCancellation(by: string | null, reason: string | null) {
  const message = `The run was cancelled${by === null ? '' : ` by ${by}`}${reason === null ? '' : `: ${reason}`}.`
  return { code: 'cancelled', message, cause: 'cancelled', by: by ?? undefined, reason: reason ?? undefined }
}

function toAnswer(row: Row, ended: boolean): CancelAnswer {
  const id = row.id as string
  const before = row.status as Status
  const children = row.children === true ? ('cancelling' as const) : undefined
  if (ended) return { id, did: 'cancelled', status: 'cancelled', children }
  return { id, did: row.asked === null ? alreadyOf(before) : 'requested', status: before, children }
}

function alreadyOf(status: Status): CancelAnswer['did'] {
  if (status === 'cancelled') return 'already_cancelled'
  return status === 'completed' || status === 'failed' || status === 'discarded' ? 'already_ended' : 'already_requested'
}

/**
 * Ends what is to end though nobody asks: runs whose deadline is over, children of cancelled parents, and runs that lost their host after
 * they had been asked to stop. A look, then one bounded batch that waits for nobody. Answers how many ended.
 */
export async function endDue(context: StoreContext): Promise<{ readonly ended: number; readonly moved: boolean }> {
  const { schema, environment, database } = context
  const found = await database.query(findEndings(schema, { now: context.now(), environment, limit: ENDED_AT_ONCE }))
  if (found.length === 0) return { ended: 0, moved: false }
  const idsOf = (rows: readonly Row[], column: string) => [
    ...new Set(rows.flatMap((row) => (row[column] === null ? [] : [row[column] as string]))),
  ]
  const parentIds = idsOf(found, 'parent_id')
  const due = idsOf(
    found.filter((row) => row.parent_id === null),
    'run_id',
  )
  const children = idsOf(
    found.filter((row) => row.parent_id !== null),
    'run_id',
  )
  const ids = [...new Set([...due, ...children])]
  const statements = [
    tryLockFamilies(schema, { ids: [...ids, ...parentIds] }),
    ...(due.length > 0 ? [judgeDeadlines(schema, { now: context.now(), ids: due })] : []),
    ...(children.length > 0 ? [followParents(schema, { now: context.now(), ids: children })] : []),
    ...(ids.length > 0 ? statementsOfEnding(context, ids) : []),
    ...(parentIds.length > 0 ? [endCascades(schema, { parentIds })] : []),
  ]
  const replies = await database.batch(statements)
  const ended = replies[statements.findIndex(({ name }) => name === 'end_requested')] ?? []
  await passOn(context, ended)
  const counted = replies.flat().some((row) => Number(row.judged ?? row.asked ?? 0) > 0 || typeof row.id === 'string')
  return { ended: ended.length, moved: counted }
}
