import type { BulkAction, BulkAnswer, BulkRequest } from '../core/operating.ts'
import type { Status } from '../core/status.ts'
import type { ReadingStore, RunRecord } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { cancelMany } from './ending.ts'
import { retakeKeys, retryRun } from './statements/change-runs.ts'
import { lockRuns } from './statements/lock-runs.ts'
import { releaseKeysAgain } from './statements/settle-outcomes.ts'

/** Runs that one call changes at most: one batch, some tens of milliseconds. */
const CHANGED_AT_ONCE = 100
/** Pages that one call looks at, where few of what they list can be changed. */
const PAGES_AT_ONCE = 5

const CHANGEABLE: Readonly<Record<BulkAction, readonly Status[]>> = {
  cancel: ['pending', 'running', 'waiting', 'uncertain'],
  retry: ['failed', 'cancelled', 'discarded'],
}

/** What can be changed is listed, a page at a time, and changed in one batch. */
export async function changeMany(
  context: StoreContext,
  reading: Pick<ReadingStore, 'listRuns'>,
  request: BulkRequest,
): Promise<BulkAnswer> {
  const { action, query, by } = request
  const status = CHANGEABLE[action].filter((one) => query.status === null || query.status.includes(one))
  if (status.length === 0) return { affected: 0, more: false, nextCursor: null }
  let cursor = query.cursor
  for (let pages = 1; ; pages += 1) {
    const page = await reading.listRuns({ ...query, status, cursor, limit: CHANGED_AT_ONCE })
    cursor = page.nextCursor
    const runs = page.items.filter(({ cancelRequestedAt }) => action === 'retry' || cancelRequestedAt === null)
    const affected = await changeAll(context, action, runs, { tenant: query.tenant, by })
    if (affected > 0 || cursor === null || pages >= PAGES_AT_ONCE) return { affected, more: cursor !== null, nextCursor: cursor }
  }
}

async function changeAll(
  context: StoreContext,
  action: BulkAction,
  runs: readonly RunRecord[],
  scope: { readonly tenant: string; readonly by: string | null },
): Promise<number> {
  if (runs.length === 0) return 0
  if (action === 'retry') return retryAll(context, runs, scope.tenant)
  const ids = runs.map(({ id }) => id)
  const { answers, resent } = await cancelMany(context, ids, scope)
  // they were alive and nobody had asked when they were listed: a first attempt whose reply was lost did what the second finds done
  const changed = new Set(
    resent ? ['cancelled', 'requested', 'already_cancelled', 'already_requested'] : ['cancelled', 'requested'],
  )
  return answers.filter(({ did }) => changed.has(did)).length
}

/** All of them and their parents are locked first, in the one order, then their keys taken in theirs; then each is retried as it would be alone. */
async function retryAll(context: StoreContext, runs: readonly RunRecord[], tenant: string): Promise<number> {
  const { schema, environment } = context
  const now = context.now()
  const locked = new Set(runs.flatMap(({ id, parentId }) => (parentId === null ? [id] : [id, parentId])))
  const ids = runs.map(({ id }) => id)
  const statements = [
    lockRuns(schema, { ids: [...locked] }),
    retakeKeys(schema, { now, environment, tenant, ids }),
    ...ids.map((id) => retryRun(schema, { now, environment, tenant, id, maxAttempts: null })),
    releaseKeysAgain(schema, { now, ids }),
  ]
  const { replies, resent } = await sendRepeatable(context.database, statements)
  const answers = statements.flatMap(({ name }, index) => (name === 'retry_run' ? [replies[index]?.[0]] : []))
  return answers.filter((row) => row?.retried === true || (resent && row?.status === 'pending')).length
}
