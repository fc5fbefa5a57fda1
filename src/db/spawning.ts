import type { Row, Statement } from '../core/database.ts'
import type { Status } from '../core/status.ts'
import type { Admission, NewRun } from '../core/store.ts'
import type { Lane, StoreContext } from './context.ts'
import { decideReceipts, readAdmissions, takeKeys, writeReceipts } from './statements/admit-runs.ts'
import { ensureEnvironment, ensureLanes, type InsertRunsParams, insertRuns, type LanesParams } from './statements/insert-runs.ts'
import { UNIT_SEPARATOR } from './statements/statement.ts'

/** How long an idempotency key is remembered, in milliseconds: 7 days, longer than any sender retries. */
export const RECEIPT_KEEP_MS = 604_800_000
/** Between the gates of one run: gates hold the unit separator themselves. */
const GATE_SEPARATOR = '\u001e'

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
    ensureEnvironment(context.schema, { environment: context.environment }),
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

/** An array over runs, or none at all when every value is null: absent ones are padded by the server. */
function column<T>(runs: readonly NewRun[], value: (run: NewRun) => T | null): readonly (T | null)[] {
  let some = false
  const values = runs.map((run) => {
    const one = value(run)
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
  const { lanes, ordinals } = groupByLane(runs)
  const { parents = [] } = options
  return {
    now: context.now(),
    lanes: toLanesParams(context.environment, lanes),
    nonce: options.nonce,
    ids: runs.map((run) => run.id),
    laneOrdinals: ordinals,
    steps: runs.map((run) => run.step),
    priorities: column(runs, (run) => (run.priority === 0 ? null : run.priority)),
    delaysMs: column(runs, (run) => run.delayMs),
    runAts: column(runs, (run) => run.runAt),
    payloadBytes: runs.map((run) => run.payloadBytes),
    retentionSeconds: runs.map((run) => run.retentionSeconds),
    failedRetentionSeconds: runs.map((run) => run.failedRetentionSeconds),
    states: column(runs, (run) => run.state),
    inputs: column(runs, (run) => run.input),
    keys: column(runs, (run) => run.key),
    receiptKeys: column(runs, (run) => run.receipt?.key ?? null),
    gates: column(runs, (run) => run.gates?.join(GATE_SEPARATOR) ?? null),
    parentIds: parents.map((parent) => parent.parentId),
    parentJoinSeqs: parents.map((parent) => parent.joinSeq),
    childIndexes: parents.map((parent) => parent.index),
    maxAttempts: runs.map((run) => run.maxAttempts),
    tags: column(runs, (run) => run.tags?.join(UNIT_SEPARATOR) || null),
    headers: column(runs, (run) => run.headers),
    origins: column(runs, (run) => run.origin),
    gateUnits: column(runs, (run) => run.gateUnits?.join(',') ?? null),
    policies: column(runs, (run) => (run.policy === null ? null : JSON.stringify(run.policy))),
    deadlinesMs: column(runs, (run) => run.deadlineMs),
    marked: parents.length === 0 && runs.some((run) => run.idIsCallers || run.receipt !== null),
    freshIds: parents.length === 0 && !runs.some((run) => run.idIsCallers),
  }
}

/** Takes the keys of those runs that have one. `parents`: of children, parallel to the runs. */
export function statementsForKeys(
  context: StoreContext,
  runs: readonly NewRun[],
  options: { readonly nonce: string; readonly parents?: readonly Parentage[] },
): Statement[] {
  const { nonce, parents = [] } = options
  const keyed = runs.flatMap((run, index) => (run.key === null ? [] : [{ run, key: run.key, parent: parents[index] }]))
  if (keyed.length === 0) return []
  return [
    takeKeys(context.schema, {
      environment: context.environment,
      nonce,
      ids: keyed.map(({ run }) => run.id),
      tenants: keyed.map(({ run }) => run.tenant),
      scopes: keyed.map(({ run }) => run.definition),
      keys: keyed.map(({ key }) => key),
      receiptKeys: keyed.map(({ run }) => run.receipt?.key ?? null),
      parentIds: keyed.flatMap(({ parent }) => (parent ? [parent.parentId] : [])),
      parentJoinSeqs: keyed.flatMap(({ parent }) => (parent ? [parent.joinSeq] : [])),
    }),
  ]
}

export interface SpawnPlan {
  /** In order, of one batch or one transaction: READ COMMITTED, since later ones must see what earlier ones waited for. */
  readonly statements: readonly Statement[]
  /** What the replies, one per statement, say. */
  readonly read: (replies: readonly (readonly Row[])[]) => SpawnReading
}

export interface SpawnReading {
  /** Per run, in order. Null: nothing became of it that can be told, and it has to be sent again, under the same nonce or another. */
  readonly admissions: readonly (Admission | null)[]
  /** Runs that nobody could have refused were not written: a lane that was thought to exist does not (or they are there from before). */
  readonly lanesMissing: boolean
}

/**
 * Spawning as statements and what their replies mean. Pure: nothing is sent. A receipt key and a caller's id may be in it once. Sending
 * it twice changes nothing the second time, as long as the nonce is the same.
 */
export function planSpawn(context: StoreContext, runs: readonly NewRun[], nonce: string): SpawnPlan {
  const { schema, environment } = context
  const { lanes } = groupByLane(runs)
  const receipts = runs.filter((run) => run.receipt !== null)
  const asked = runs.filter(isAsked)
  const admissions = toAdmissionsParams(environment, asked, nonce)
  const insert = insertRuns(schema, toInsertParams(context, runs, { nonce }))
  const statements: readonly Statement[] = [
    ...statementsForNewLanes(context, lanes),
    ...(receipts.length > 0 ? [toReceipts(context, receipts, nonce)] : []),
    ...statementsForKeys(context, runs, { nonce }),
    insert,
    ...(receipts.length > 0 ? [decideReceipts(schema, admissions)] : []),
    ...(asked.length > 0 ? [readAdmissions(schema, admissions)] : []),
  ]
  const read: SpawnPlan['read'] = (replies) => {
    const inserted = Number(replies[statements.indexOf(insert)]?.[0]?.inserted ?? 0)
    const rows = asked.length > 0 ? (replies.at(-1) ?? []) : []
    let next = 0
    return {
      admissions: runs.map((run) => {
        if (!isAsked(run)) return { kind: 'created', id: run.id, status: 'pending' }
        const row = rows[next++]
        return isMissing(run, row) ? null : toAdmission(run, row)
      }),
      lanesMissing: inserted < runs.length - asked.length,
    }
  }
  return { statements, read }
}

/** Whether what became of it has to be read: somebody else may have its id, its key or its receipt. */
function isAsked(run: NewRun): boolean {
  return run.receipt !== null || run.key !== null || run.idIsCallers
}

/** Neither there nor refused: its lane was missing, or whoever held its key is gone. */
function isMissing(run: NewRun, row: Row | undefined): boolean {
  if (!row || row.own_id !== null || (row.occupant_id !== null && row.occupant_id !== run.id)) return false
  return run.receipt === null || row.receipt_is_ours === true
}

function toReceipts(context: StoreContext, runs: readonly NewRun[], nonce: string): Statement {
  return writeReceipts(context.schema, {
    now: context.now(),
    environment: context.environment,
    nonce,
    tenants: runs.map((run) => run.tenant),
    keys: runs.map((run) => run.receipt?.key ?? ''),
    fingerprints: runs.map((run) => run.receipt?.fingerprint ?? ''),
    keepMs: RECEIPT_KEEP_MS,
  })
}

function toAdmissionsParams(environment: string, runs: readonly NewRun[], nonce: string) {
  return {
    environment,
    nonce,
    ids: runs.map((run) => run.id),
    tenants: runs.map((run) => run.tenant),
    scopes: runs.map((run) => run.definition),
    keys: runs.map((run) => run.key),
    receiptKeys: runs.map((run) => run.receipt?.key ?? null),
    fingerprints: runs.map((run) => run.receipt?.fingerprint ?? null),
  }
}

function toAdmission(run: NewRun, row: Row | undefined): Admission {
  if (!row) return { kind: 'mismatch' }
  if (run.receipt) {
    if (row.receipt_matches !== true) return { kind: 'mismatch' }
    const decision = row.decision as { id: string; status: Status; created: boolean } | { taken: true } | null
    if (row.receipt_is_ours !== true) {
      if (decision === null) return { kind: 'mismatch' }
      return 'taken' in decision ? { kind: 'id_taken' } : { kind: 'replayed', ...decision }
    }
  }
  if (row.own_id !== null) {
    if (row.own_is_visible !== true) return { kind: 'id_taken' }
    const isNew = !run.idIsCallers || row.own_is_new === true
    const status = isNew ? 'pending' : (row.own_status as Status)
    return { kind: isNew ? 'created' : 'occupied', id: run.id, status }
  }
  if (row.occupant_id !== null)
    return { kind: 'occupied', id: String(row.occupant_id), status: (row.occupant_status ?? 'pending') as Status }
  return { kind: 'mismatch' }
}
