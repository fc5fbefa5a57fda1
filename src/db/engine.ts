import type { Row, Statement } from '../core/database.ts'
import { randomUuid } from '../core/ids.ts'
import type { Status } from '../core/status.ts'
import type {
  ClaimedRun,
  ClaimRequest,
  CommittedOutcome,
  EngineStore,
  FlushedOutcome,
  FlushReply,
  FlushRequest,
  KeepReply,
} from '../core/store.ts'
import type { RunTarget } from '../core/topics.ts'
import { toInboxEntry, toJoinedChild } from './claimed-rows.ts'
import { claim, isLost, readClaim, recover, statementsOfClaim } from './claiming.ts'
import { learnPlace, type StoreContext, sendRepeatable } from './context.ts'
import { endDue } from './ending.ts'
import { statementsOfFlush } from './flush.ts'
import { finishHandovers } from './late-handover.ts'
import { relay } from './outbox.ts'
import { judgeDeadlines } from './statements/deadlines.ts'
import { declareLimits } from './statements/declare-limits.ts'
import { tryLockFamilies } from './statements/end-runs.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'
import { endLeases, extendClaims, readClaimed } from './statements/keep-claims.ts'
import { loadChildren, loadInbox } from './statements/load-satellites.ts'
import { lockRuns } from './statements/lock-runs.ts'
import { findRuns } from './statements/topics.ts'
import { upkeep } from './upkeep.ts'

/** Inbox rows or children of one run fetched by one request, when they did not come with its claim. */
const PAGE = 1_000

export function createEngineStore(context: StoreContext): EngineStore {
  const { database, schema } = context
  return {
    claim: (request) => claim(context, request),
    flush: (request, next) => flush(context, request, next),
    keep: (runs, leaseMs) => keep(context, runs, leaseMs),
    endDue: () => endDue(context),
    endLeases: async (range) => {
      await sendRepeatable(database, [endLeases(schema, { ...range, now: context.now() })])
    },
    loadInbox: async (runId, names, afterId) =>
      (await database.query(loadInbox(schema, { runId, names, afterId, limit: PAGE }))).map(toInboxEntry),
    loadChildren: async (parentId, joinSeq, afterIndex) =>
      (await database.query(loadChildren(schema, { parentId, joinSeq, afterIndex, limit: PAGE }))).map(toJoinedChild),
    findRuns: (tenant, targets) => findTargets(context, tenant, targets),
    relay: (maxRequests) => relay(context, maxRequests),
    upkeep: (request) => upkeep(context, request),
    declareLimits: async (limits) => {
      if (limits.length === 0) return
      const { environment } = context
      const statements = [
        ensureEnvironment(schema, { environment }),
        declareLimits(schema, {
          now: context.now(),
          environment,
          names: limits.map(({ name }) => name),
          concurrency: limits.map(({ policy }) => policy.concurrency ?? null),
          bursts: limits.map(({ policy }) => policy.rate?.burst ?? null),
          msPerToken: limits.map(({ policy }) => (policy.rate ? policy.rate.perMs / policy.rate.count : null)),
          shards: limits.map(({ policy }) => policy.shards),
        }),
      ]
      learnPlace(context.lanes, statements, (await sendRepeatable(database, statements)).replies)
    },
  }
}

async function findTargets(
  { database, schema, environment }: StoreContext,
  tenant: string,
  targets: readonly RunTarget[],
): Promise<readonly (string | null)[]> {
  const rows = await database.query(
    findRuns(schema, {
      environment,
      tenant,
      ids: targets.map((target) => ('id' in target ? target.id : null)),
      definitions: targets.map((target) => ('id' in target ? null : target.definition)),
      keys: targets.map((target) => ('id' in target ? null : target.key)),
    }),
  )
  return rows.map((row) => row.id as string | null)
}

async function flush(context: StoreContext, request: FlushRequest, next: ClaimRequest | null): Promise<FlushReply> {
  const nonce = randomUuid()
  const own = statementsOfFlush(context, request, nonce)
  const riding = next ? behind(own, statementsOfClaim(context, next)) : []
  const statements = [...own, ...riding]
  try {
    const replies = await context.database.batch(statements)
    await finishHandovers(context, statements, replies)
    return {
      outcomes: toFlushed(request.outcomes, own, replies),
      claim: next ? await readClaim(context, next, riding, replies.slice(own.length)) : null,
    }
  } catch (error) {
    if (own.length === 0 || (riding.length === 0 && !isLost(error))) throw error
    // Either the claim that rode along failed, or the reply was lost. The outcomes are sent again alone, at once: they are guarded.
    const again = isLost(error) ? behindFirst(context, request, own) : own
    const { replies } = await sendRepeatable(context.database, again)
    await finishHandovers(context, again, replies)
    const recovered = next && isLost(error) ? await recover(context, next) : null
    return { outcomes: toFlushed(request.outcomes, again, replies), claim: recovered }
  }
}

/** What the claim begins with has been said already, unless statements of users were in the way. */
function behind(own: readonly Statement[], claiming: readonly Statement[]): readonly Statement[] {
  return own[0]?.name === claiming[0]?.name ? claiming.slice(1) : claiming
}

/**
 * A batch whose reply was lost may still be running, and holds its rows as long. Waiting for them in a statement before the others, what
 * is sent again sees what the first has written; in the same one it would see the rows changed and no history of it, which means stale.
 */
function behindFirst(context: StoreContext, request: FlushRequest, own: readonly Statement[]): readonly Statement[] {
  if (own.some(({ name }) => name === 'lock_runs') || request.outcomes.length === 0) return own
  return [lockRuns(context.schema, { ids: request.outcomes.map((outcome) => outcome.run.id) }), ...own]
}

/** `apply_outcomes` answers the exceptions only. */
function toFlushed(
  outcomes: readonly CommittedOutcome[],
  statements: readonly Statement[],
  replies: readonly (readonly Row[])[],
): readonly FlushedOutcome[] {
  const rows = replies[statements.findIndex((statement) => statement.name === 'apply_outcomes')] ?? []
  const exceptions = new Map(rows.map((row) => [row.id as string, row]))
  return outcomes.map((outcome) => {
    const row = exceptions.size > 0 ? exceptions.get(outcome.run.id) : undefined
    if (!row) return { kind: 'applied', status: outcome.status }
    if (row.changed === true) return { kind: 'applied', status: row.status as Status }
    return row.applied_before === true ? { kind: 'applied', status: outcome.status } : { kind: 'stale' }
  })
}

async function keep(context: StoreContext, runs: readonly ClaimedRun[], leaseMs: number): Promise<KeepReply> {
  const { schema } = context
  const claimIds = [...new Set(runs.map((run) => run.claimId))]
  const statements = [
    extendClaims(schema, { now: context.now(), claimIds, leaseMs }),
    ...deadlinesOf(context, runs),
    readClaimed(schema, { ids: runs.map((run) => run.id), claimIds: runs.map((run) => run.claimId) }),
  ]
  const replies = await context.database.batch(statements)
  const [extended = [], rows = []] = [replies[0], replies.at(-1)]
  const standing = new Set(extended.map((row) => row.id as string))
  return {
    lostClaims: claimIds.filter((id) => !standing.has(id)),
    lostRuns: rows.filter((row) => row.owned !== true).map((row) => row.id as string),
    cancelRequested: rows.filter((row) => row.owned === true && row.cancel_requested === true).map((row) => row.id as string),
  }
}

/** Runs in hand are asked to stop by whoever holds them, if a deadline of theirs is over: no statement where none has one. */
function deadlinesOf({ schema, now }: StoreContext, runs: readonly ClaimedRun[]): Statement[] {
  const ids = runs.filter(({ policy }) => policy.maxTotalMs !== undefined || policy.maxIdleMs !== undefined).map(({ id }) => id)
  return ids.length === 0 ? [] : [tryLockFamilies(schema, { ids }), judgeDeadlines(schema, { now: now(), ids })]
}
