/** Runs as the parameters of inserts, and the lanes they go to. */
import type { Statement } from '../core/database.ts'
import type { NewRun } from '../core/store.ts'
import type { Lane, StoreContext } from './context.ts'
import {
  ensureEnvironment,
  ensureLanes,
  type FreshRunsParams,
  type InsertRunsParams,
  insertFreshRuns,
  insertRuns,
  type LanesParams,
} from './statements/insert-runs.ts'
import { UNIT_SEPARATOR } from './statements/statement.ts'

/** Between the gates of one run: gates hold the unit separator themselves. */
export const GATE_SEPARATOR = '\u001e'

/** Where the runs of one batch go: its distinct lanes, and for each run which of them. */
export function groupByLane(runs: readonly NewRun[]): {
  readonly lanes: readonly Omit<Lane, 'id'>[]
  readonly ordinals: readonly number[]
} {
  const lanes: Omit<Lane, 'id'>[] = []
  const found = new Map<string, number>()
  let last: NewRun | undefined
  let lastOrdinal = 0
  const ordinals = runs.map((run) => {
    const same =
      last &&
      last.tenant === run.tenant &&
      last.queue === run.queue &&
      last.definition === run.definition &&
      last.version === run.version
    if (same) return lastOrdinal
    const identity = JSON.stringify([run.tenant, run.queue, run.definition, run.version])
    let ordinal = found.get(identity)
    if (ordinal === undefined) {
      lanes.push({ tenant: run.tenant, queue: run.queue, definition: run.definition, version: run.version })
      ordinal = lanes.length
      found.set(identity, ordinal)
    }
    last = run
    lastOrdinal = ordinal
    return ordinal
  })
  return { lanes, ordinals }
}

/** The statements that make lanes which are not known to exist; none in the normal case. */
export function statementsForNewLanes(context: StoreContext, lanes: readonly Omit<Lane, 'id'>[]): Statement[] {
  const fresh = lanes.filter((lane) => !context.lanes.knows(lane))
  if (fresh.length === 0) return []
  return [
    ensureEnvironment(context.schema, { environment: context.environment, makesLanes: true }),
    ensureLanes(context.schema, toLanesParams(context.environment, fresh)),
  ]
}

function toLanesParams(environment: string, lanes: readonly Omit<Lane, 'id'>[]): LanesParams {
  return {
    environment,
    tenants: lanes.map((lane) => lane.tenant),
    queues: lanes.map((lane) => lane.queue),
    definitions: lanes.map((lane) => lane.definition),
    versions: lanes.map((lane) => lane.version),
  }
}

/** An array over items, or none at all when every value is null: absent ones are padded by the server. */
export function column<I, T>(items: readonly I[], value: (item: I) => T | null): readonly (T | null)[] {
  let some = false
  const values = items.map((item) => {
    const one = value(item)
    if (one !== null) some = true
    return one
  })
  return some ? values : []
}

export interface Parentage {
  readonly parentId: string
  readonly joinSeq: number
  readonly index: number
}

/** Runs and their lanes as the parameters of one insert. `parents`: of children, parallel to the runs. */
export function toInsertParams(
  context: StoreContext,
  runs: readonly NewRun[],
  options: { readonly nonce: string; readonly parents?: readonly Parentage[] },
): InsertRunsParams {
  const { parents = [] } = options
  return {
    ...toFreshParams(context, runs),
    nonce: options.nonce,
    delaysMs: column(runs, (run) => run.delayMs),
    runAts: column(runs, (run) => run.runAt),
    states: column(runs, (run) => run.state),
    keys: column(runs, (run) => run.key),
    receiptKeys: column(runs, (run) => run.receipt?.key ?? null),
    gates: column(runs, gatesText),
    parentIds: parents.map((parent) => parent.parentId),
    parentJoinSeqs: parents.map((parent) => parent.joinSeq),
    childIndexes: parents.map((parent) => parent.index),
    tags: column(runs, (run) => run.tags?.join(UNIT_SEPARATOR) || null),
    headers: column(runs, (run) => run.headers),
    origins: column(runs, (run) => run.origin),
    gateUnits: column(runs, gateUnitsText),
    policies: column(runs, (run) => (run.policy === null ? null : JSON.stringify(run.policy))),
    deadlinesMs: column(runs, (run) => run.deadlineMs),
    marked: parents.length === 0 && runs.some((run) => run.idIsCallers || run.receipt !== null),
    freshIds: parents.length === 0 && !runs.some((run) => run.idIsCallers),
  }
}

/** Of runs that are plain: what only some runs have is not looked for. */
function toFreshParams({ now, environment }: StoreContext, runs: readonly NewRun[]): FreshRunsParams {
  const { lanes, ordinals } = groupByLane(runs)
  return {
    now: now(),
    lanes: toLanesParams(environment, lanes),
    ids: runs.map((run) => run.id),
    laneOrdinals: ordinals,
    steps: runs.map((run) => run.step),
    priorities: column(runs, (run) => (run.priority === 0 ? null : run.priority)),
    payloadBytes: runs.map((run) => run.payloadBytes),
    retentionSeconds: runs.map((run) => run.retentionSeconds),
    failedRetentionSeconds: runs.map((run) => run.failedRetentionSeconds),
    inputs: column(runs, (run) => run.input),
    maxAttempts: runs.map((run) => run.maxAttempts),
  }
}

/** From how many runs on an insert is split, and how many of them go ahead: the server inserts those while the others are being encoded. */
const SPLIT_FROM = 500
const AHEAD = 200

/** The statements that insert the runs. Nothing that is asked of them one by one may be among many. */
export function statementsForInserts(context: StoreContext, runs: readonly NewRun[], nonce: string): readonly Statement[] {
  const { schema } = context
  if (runs.length < SPLIT_FROM || !runs.every(isPlain)) return [insertRuns(schema, toInsertParams(context, runs, { nonce }))]
  const now = context.now()
  const at = { ...context, now: () => now }
  return [
    insertFreshRuns(schema, toFreshParams(at, runs.slice(0, AHEAD))),
    insertFreshRuns.later(schema, () => toFreshParams(at, runs.slice(AHEAD))),
  ]
}

/** It has none of the optional columns, and an id of its own. */
function isPlain(run: NewRun): boolean {
  return (
    run.delayMs === null &&
    run.runAt === null &&
    run.state === null &&
    run.gates === null &&
    run.policy === null &&
    run.tags === null &&
    run.headers === null &&
    run.origin === null &&
    !isAsked(run)
  )
}
/** Whether what became of it has to be read: somebody else may have its id, its key, its entry or its receipt. */
export function isAsked(run: NewRun): boolean {
  return run.receipt !== null || run.key !== null || run.policy?.unique !== undefined || run.idIsCallers
}

/** Whether it may change a run that is there. */
export function merges(run: NewRun): boolean {
  return run.onConflict.kind !== 'keep' && (run.key !== null || run.policy?.unique !== undefined)
}

export function gatesText({ gates }: NewRun): string | null {
  return gates?.join(GATE_SEPARATOR) ?? null
}

export function gateUnitsText({ gateUnits }: NewRun): string | null {
  return gateUnits?.join(',') ?? null
}
