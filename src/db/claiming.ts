/** Claims: their statements, what their replies say, and what to do when one is lost. */
import { DatabaseError, type Row, type Statement } from '../core/database.ts'
import type { ClaimedRun, ClaimReply, ClaimRequest, Peek } from '../core/store.ts'
import { toClaimedRun } from './claimed-rows.ts'
import type { StoreContext } from './context.ts'
import { finishHandovers } from './late-handover.ts'
import { blockDenied, DENIED_AT_ONCE } from './statements/block-denied.ts'
import { type ClaimRunsParams, claimRuns, recoverClaim } from './statements/claim-runs.ts'
import { mintGates, promoteGates } from './statements/gates.ts'
import { dropLapsedClaims, endSolitude, rescueLost } from './statements/keep-claims.ts'
import { readLanes } from './statements/load-satellites.ts'
import { peekNext } from './statements/peek-next.ts'
import { planOnce } from './statements/plan-once.ts'
import { promoteDue } from './statements/promote-due.ts'

/** Inbox rows and children that come with a claimed run; the rest is fetched per run. */
const SATELLITES = 256
/** Runs moved into the claim window by one request, and runs rescued by one. */
const PROMOTED_AT_ONCE = 1_000
const RESCUED_AT_ONCE = 500
/** Counters of rates that one request looks at. */
const GATES_AT_ONCE = 100
/** How far the next claim has denied runs looked for, for each that the last one met. */
const LOOK_AHEAD = 20
/** Claims that ask all gates once one was seen that is not wide open. */
const CLAIMS_ON_GUARD = 32

/** The statements of one claim: what is due into the window, then the runs, then (asked for) what is left. */
export function statementsOfClaim(context: StoreContext, request: ClaimRequest): Statement[] {
  const { schema, environment } = context
  const now = context.now()
  const rated = (request.rated ?? request.gated) !== false || context.lanes.rated
  return [
    planOnce(schema, {}),
    ...(request.peek
      ? [
          rescueLost(schema, { now, environment, limit: RESCUED_AT_ONCE }),
          dropLapsedClaims(schema, { now, environment, limit: RESCUED_AT_ONCE }),
        ]
      : []),
    promoteDue(schema, { now, environment, limit: PROMOTED_AT_ONCE }),
    ...(rated ? [promoteGates(schema, { now, environment, limit: GATES_AT_ONCE })] : []),
    ...unminted(context),
    ...crowdedOut(context),
    claimRuns(schema, toClaimParams(context, request)),
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

/** What the gates deny leaves the window in bulk, where a claim would meet hardly anything else. */
function crowdedOut({ schema, environment, lanes, now }: StoreContext): Statement[] {
  const { crowded } = lanes
  lanes.crowded = null
  return crowded ? [blockDenied(schema, { now: now(), environment, ...crowded })] : []
}

function toClaimParams(context: StoreContext, request: ClaimRequest): ClaimRunsParams {
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
    admits: admits(context, request),
  }
}

/** Where the fewest questions are enough, until a claim has met a run that they were not enough for. */
function admits({ lanes }: StoreContext, { gated }: ClaimRequest): ClaimRunsParams['admits'] {
  if (gated === false && !lanes.gated) return 'ungated'
  return gated === true || gated === undefined || lanes.onGuard > 0 ? 'all' : 'open'
}

/** Takes the runs that come next. */
export async function claim(context: StoreContext, request: ClaimRequest): Promise<ClaimReply> {
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

export function isLost(error: unknown): boolean {
  return error instanceof DatabaseError && error.fate === 'lost'
}

/** The reply of a claim was lost: what it took, if it was committed, stands under its claim id. */
export async function recover(context: StoreContext, request: ClaimRequest): Promise<ClaimReply> {
  const rows = await context.database.query(
    recoverClaim(context.schema, {
      claimId: request.claimId,
      satellites: SATELLITES,
      knownLanes: [...context.lanes.byId.keys()],
    }),
  )
  return { ...EMPTY_CLAIM, runs: await toClaimedRuns(context, request.claimId, rows) }
}

export async function readClaim(
  context: StoreContext,
  request: ClaimRequest,
  statements: readonly Statement[],
  replies: readonly (readonly Row[])[],
): Promise<ClaimReply> {
  const reply = (name: string): readonly Row[] => replies[statements.findIndex((statement) => statement.name === name)] ?? []
  const peek = reply('peek_next')[0]
  const rows = [...reply('claim_runs'), ...reply('claim_open_gates'), ...reply('claim_gated_runs')]
  // what the claim was besides: its last row, without an id
  const aside = rows.at(-1)?.id === null ? rows.pop() : undefined
  const [blocked, left, passed] = [Number(aside?.seq ?? 0), Number(aside?.visit ?? 0), Number(aside?.failures ?? 0)]
  const unminted = (aside?.extras ?? []) as readonly string[]
  if (unminted.length > 0) context.lanes.unminted = unminted
  if (peek?.gates_due === true) context.lanes.rated = true
  noteGates(context, statements, blocked + left > 0)
  const crowd = reply('block_denied')[0]
  const denied = blocked + Number(crowd?.blocked ?? 0)
  if (denied > 0 && denied * 2 >= request.limit) context.lanes.crowded = toCrowded(denied, [aside?.lane, crowd?.lanes])
  return {
    runs: await toClaimedRuns(context, request.claimId, rows),
    setAside: denied + left + unminted.length,
    passedOver: passed,
    laneCursor: Number(aside?.lane_id ?? 0),
    promoted: Number(reply('promote_due')[0]?.promoted ?? 0),
    rescued: Number(reply('rescue_lost')[0]?.rescued ?? 0),
    peek: peek ? toPeek(peek) : null,
  }
}

function toCrowded(denied: number, seen: readonly unknown[]) {
  const lanes = [...new Set(seen.flatMap((ids) => (ids ?? []) as number[]))]
  return { lanes, limit: Math.ceil(Math.min(denied * LOOK_AHEAD, DENIED_AT_ONCE) / lanes.length) }
}

/** Which text the next claims are: whoever met a run that it could not admit has them ask more. */
function noteGates({ lanes }: StoreContext, statements: readonly Statement[], denied: boolean): void {
  const sent = (name: string): boolean => statements.some((statement) => statement.name === name)
  if (lanes.rated || (denied && sent('claim_runs'))) lanes.gated = true
  if (denied && !sent('claim_runs')) lanes.onGuard = CLAIMS_ON_GUARD
  else if (sent('claim_gated_runs') && lanes.onGuard > 0) lanes.onGuard -= 1
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
