import { DatabaseError, type Row, type Statement } from '../core/database.ts'
import { randomUuid } from '../core/ids.ts'
import type { Status } from '../core/status.ts'
import type {
  ClaimedRun,
  ClaimReply,
  ClaimRequest,
  CommittedOutcome,
  EngineStore,
  FlushedOutcome,
  FlushReply,
  FlushRequest,
  KeepReply,
  Peek,
} from '../core/store.ts'
import type { RunTarget } from '../core/topics.ts'
import { toClaimedRun, toInboxEntry, toJoinedChild } from './claimed-rows.ts'
import { learnPlace, type StoreContext, sendRepeatable } from './context.ts'
import { endDue } from './ending.ts'
import { statementsOfFlush } from './flush.ts'
import { finishHandovers } from './late-handover.ts'
import { relay } from './outbox.ts'
import { type ClaimRunsParams, claimRuns, recoverClaim } from './statements/claim-runs.ts'
import { judgeDeadlines } from './statements/deadlines.ts'
import { declareLimits } from './statements/declare-limits.ts'
import { tryLockFamilies } from './statements/end-runs.ts'
import { mintGates, promoteGates } from './statements/gates.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'
import { dropLapsedClaims, endLeases, endSolitude, extendClaims, readClaimed, rescueLost } from './statements/keep-claims.ts'
import { loadChildren, loadInbox, readLanes } from './statements/load-satellites.ts'
import { lockRuns } from './statements/lock-runs.ts'
import { peekNext } from './statements/peek-next.ts'
import { promoteDue } from './statements/promote-due.ts'
import { findRuns } from './statements/topics.ts'
import { upkeep } from './upkeep.ts'

/** Inbox rows and children that come with a claimed run; the rest is fetched per run. */
const SATELLITES = 256
/** Inbox rows or children of one run fetched by one request, when they did not come with its claim. */
const PAGE = 1_000
/** Runs moved into the claim window by one request, and runs rescued by one. */
const PROMOTED_AT_ONCE = 1_000
const RESCUED_AT_ONCE = 500
/** Counters of rates that one request looks at. */
const GATES_AT_ONCE = 100

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

/** The statements of one claim: what is due into the window, then the runs, then (asked for) what is left. */
function statementsOfClaim(context: StoreContext, request: ClaimRequest): Statement[] {
  const { schema, environment } = context
  const now = context.now()
  const gated = request.gated !== false || context.lanes.gated
  const rated = (request.rated ?? request.gated) !== false || context.lanes.rated
  return [
    ...(request.peek
      ? [
          rescueLost(schema, { now, environment, limit: RESCUED_AT_ONCE }),
          dropLapsedClaims(schema, { now, environment, limit: RESCUED_AT_ONCE }),
        ]
      : []),
    promoteDue(schema, { now, environment, limit: PROMOTED_AT_ONCE }),
    ...(rated ? [promoteGates(schema, { now, environment, limit: GATES_AT_ONCE })] : []),
    ...unminted(context),
    claimRuns(schema, toClaimParams(context, request, gated)),
    ...(request.besides.length > 0 ? [endSolitude(schema, { claimIds: request.besides, newClaimId: request.claimId })] : []),
    ...(request.peek
      ? [
          peekNext(schema, {
            now,
            environment,
            definitions: request.definitions.map((definition) => definition.name),
            versions: request.definitions.map((definition) => definition.version),
            queues: request.queues,
          }),
        ]
      : []),
  ]
}

/** Counters that a claim before has missed. */
function unminted({ schema, environment, lanes }: StoreContext): Statement[] {
  const gates = [...lanes.unminted]
  lanes.unminted = []
  return gates.length > 0 ? [mintGates(schema, { environment, gates })] : []
}

function toClaimParams(context: StoreContext, request: ClaimRequest, gated: boolean): ClaimRunsParams {
  return {
    now: context.now(),
    environment: context.environment,
    claimId: request.claimId,
    definitions: request.definitions.map((definition) => definition.name),
    versions: request.definitions.map((definition) => definition.version),
    leaseMs: request.leaseMs,
    limit: request.limit,
    maxBytes: request.maxBytes,
    laneCursor: request.laneCursor,
    alone: request.alone,
    queues: request.queues,
    satellites: SATELLITES,
    knownLanes: [...context.lanes.byId.keys()],
    gated,
  }
}

async function claim(context: StoreContext, request: ClaimRequest): Promise<ClaimReply> {
  const statements = statementsOfClaim(context, request)
  try {
    const replies = await context.database.batch(statements)
    await finishHandovers(context, statements, replies)
    return await readClaim(context, request, statements, replies)
  } catch (error) {
    if (!isLost(error)) throw error
    return recover(context, request)
  }
}

const EMPTY_CLAIM: ClaimReply = { runs: [], setAside: 0, passedOver: 0, laneCursor: 0, promoted: 0, rescued: 0, peek: null }

function isLost(error: unknown): boolean {
  return error instanceof DatabaseError && error.fate === 'lost'
}

/** The reply of a claim was lost: what it took, if it was committed, stands under its claim id. */
async function recover(context: StoreContext, request: ClaimRequest): Promise<ClaimReply> {
  const rows = await context.database.query(
    recoverClaim(context.schema, {
      claimId: request.claimId,
      satellites: SATELLITES,
      knownLanes: [...context.lanes.byId.keys()],
    }),
  )
  return { ...EMPTY_CLAIM, runs: await toClaimedRuns(context, request.claimId, rows) }
}

async function readClaim(
  context: StoreContext,
  request: ClaimRequest,
  statements: readonly Statement[],
  replies: readonly (readonly Row[])[],
): Promise<ClaimReply> {
  const reply = (name: string): readonly Row[] => replies[statements.findIndex((statement) => statement.name === name)] ?? []
  const peek = reply('peek_next')[0]
  const rows = [...reply('claim_runs'), ...reply('claim_gated_runs')]
  // what the claim was besides: its last row, without an id
  const aside = rows.at(-1)?.id === null ? rows.pop() : undefined
  const unasked = Number(aside?.visit ?? 0)
  const unminted = (aside?.extras ?? []) as readonly string[]
  if (unminted.length > 0) context.lanes.unminted = unminted
  if (peek?.gates_due === true) context.lanes.rated = true
  if (unasked > 0 || context.lanes.rated) context.lanes.gated = true
  return {
    runs: await toClaimedRuns(context, request.claimId, rows),
    setAside: Number(aside?.seq ?? 0) + unasked + unminted.length,
    passedOver: Number(aside?.failures ?? 0),
    laneCursor: Number(aside?.lane_id ?? 0),
    promoted: Number(reply('promote_due')[0]?.promoted ?? 0),
    rescued: Number(reply('rescue_lost')[0]?.rescued ?? 0),
    peek: peek ? toPeek(peek) : null,
  }
}

function toPeek(row: Row): Peek {
  return {
    now: row.now as number,
    more: row.more === true,
    lonely: row.lonely === true,
    others: row.others === true,
    nextAt: row.next_at as number | null,
    scheduleDue: row.schedule_due === true,
    endingDue: row.ending_due === true,
    upkeepDue: row.upkeep_due === true,
    relayDue: row.relay_due === true,
  }
}

async function toClaimedRuns(context: StoreContext, claimId: string, rows: readonly Row[]): Promise<ClaimedRun[]> {
  const { lanes } = context
  const unknown = new Set<number>()
  for (const row of rows) {
    const lane = row.lane as { tenant: string; queue: string; definition: string; version: number } | null
    const id = row.lane_id as number
    if (lane) lanes.learn({ id, ...lane })
    else if (!lanes.byId.has(id)) unknown.add(id)
  }
  if (unknown.size > 0) {
    for (const row of await context.database.query(readLanes(context.schema, { ids: [...unknown] }))) {
      lanes.learn({
        id: row.id as number,
        tenant: row.tenant as string,
        queue: row.queue as string,
        definition: row.definition as string,
        version: row.version as number,
      })
    }
  }
  return rows.flatMap((row) => {
    const lane = lanes.byId.get(row.lane_id as number)
    return lane ? [toClaimedRun(row, lane, claimId)] : []
  })
}

async function flush(context: StoreContext, request: FlushRequest, next: ClaimRequest | null): Promise<FlushReply> {
  const nonce = randomUuid()
  const own = statementsOfFlush(context, request, nonce)
  const riding = next ? statementsOfClaim(context, next) : []
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

/**
 * A batch whose reply was lost may still be running, and holds its rows as long. Waiting for them in a statement before the others, what
 * is sent again sees what the first has written; in the same one it would see the rows changed and no history of it, which means stale.
 */
function behindFirst(context: StoreContext, request: FlushRequest, own: readonly Statement[]): readonly Statement[] {
  if (own[0]?.name === 'lock_runs' || request.outcomes.length === 0) return own
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
