import { MAX_PAYLOAD_BYTES } from '../core/bounds.ts'
import type { Row, Statement } from '../core/database.ts'
import type { Status } from '../core/status.ts'
import type { Admission, Holding, NewRun, SpawnEffect } from '../core/store.ts'
import type { StoreContext } from './context.ts'
import {
  column,
  gatesText,
  gateUnitsText,
  groupByLane,
  isAsked,
  merges,
  type Parentage,
  statementsForInserts,
  statementsForNewLanes,
} from './inserting.ts'
import {
  decideReceipts,
  dropUnborn,
  OWN_RECEIPT_PREFIX,
  readAdmissions,
  takeKeys,
  writeReceipts,
} from './statements/admit-runs.ts'
import { mintGates } from './statements/gates.ts'
import { lockOccupants, type MergeSpawnsParams, mergeSpawns } from './statements/merge-spawns.ts'

/** How long an idempotency key is remembered, in milliseconds: 7 days, longer than any sender retries. */
export const RECEIPT_KEEP_MS = 604_800_000 /** Makes the counters of their gates that are not there yet: ahead of all that may wait. */
export function statementsForGates(context: StoreContext, runs: readonly NewRun[]): Statement[] {
  const gates = [...new Set(runs.flatMap((run) => run.gates ?? []))]
  return gates.length === 0 ? [] : [mintGates(context.schema, { environment: context.environment, gates })]
}

interface Entry extends Holding {
  readonly run: NewRun
  readonly scope: string
  readonly token: string
  readonly isKey: boolean
  readonly parent: Parentage | undefined
}

function entriesOf(run: NewRun, parent: Parentage | undefined): readonly Entry[] {
  const { key, policy, definition } = run
  const unique = policy?.unique
  return [
    ...(key === null ? [] : [{ ...(policy?.key ?? WHILE_LIVE), run, scope: definition, token: key, isKey: true, parent }]),
    ...(unique === undefined ? [] : [{ ...unique, run, isKey: false, parent }]),
  ]
}

const WHILE_LIVE: Holding = { keep: 0 }

/** Takes what those runs hold that hold something: keys and other entries. `parents`: of children, parallel to the runs. */
export function statementsForKeys(
  context: StoreContext,
  runs: readonly NewRun[],
  options: { readonly nonce: string; readonly parents?: readonly Parentage[] },
): Statement[] {
  const { nonce, parents = [] } = options
  const entries = runs.flatMap((run, index) => entriesOf(run, parents[index]))
  if (entries.length === 0) return []
  return [
    takeKeys(context.schema, {
      now: context.now(),
      environment: context.environment,
      nonce,
      ids: entries.map(({ run }) => run.id),
      tenants: entries.map(({ run }) => run.tenant),
      scopes: entries.map(({ scope }) => scope),
      tokens: entries.map(({ token }) => token),
      keeps: column(entries, ({ keep }) => keep || null),
      expiresMs: column(entries, expiryOf),
      expiresFrom: column(entries, ({ run, fromSchedule }) => (fromSchedule ? run.runAt : null)),
      reservesMs: column(entries, ({ isKey, periodMs }) => (isKey ? (periodMs ?? null) : null)),
      receiptKeys: entries.map(({ run }) => run.receipt?.key ?? null),
      parentIds: entries.flatMap(({ parent }) => (parent ? [parent.parentId] : [])),
      parentJoinSeqs: entries.flatMap(({ parent }) => (parent ? [parent.joinSeq] : [])),
    }),
  ]
}

/** A period that begins when the run is to start is so much longer than its delay, unless it is to start at an instant. */
function expiryOf({ isKey, periodMs, fromSchedule, run }: Entry): number | null {
  if (isKey || periodMs === undefined) return null
  return periodMs + (fromSchedule ? (run.delayMs ?? 0) : 0)
}

/** Only a run that wants two entries can have got one and not come to be. */
export function statementsForUnborn(context: StoreContext, runs: readonly NewRun[]): Statement[] {
  const ids = runs.flatMap((run) => (run.key !== null && run.policy?.unique ? [run.id] : []))
  return ids.length === 0 ? [] : [dropUnborn(context.schema, { ids })]
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
export function planSpawn(context: StoreContext, given: readonly NewRun[], nonce: string): SpawnPlan {
  const { schema, environment } = context
  const runs = given.map(withOwnReceipt)
  const { lanes } = groupByLane(runs)
  const receipts = runs.filter((run) => run.receipt !== null)
  const asked = runs.filter(isAsked)
  const admissions = toAdmissionsParams(environment, asked, nonce)
  const inserts = statementsForInserts(context, runs, nonce)
  const merging = runs.filter(merges)
  const statements: readonly Statement[] = [
    ...statementsForOccupants(context, merging),
    ...statementsForNewLanes(context, lanes),
    ...statementsForGates(context, runs),
    ...(receipts.length > 0 ? [toReceipts(context, receipts, nonce)] : []),
    ...statementsForKeys(context, runs, { nonce }),
    ...inserts,
    ...statementsForUnborn(context, runs),
    ...(merging.length > 0 ? [mergeSpawns(schema, toMergeParams(context, merging, nonce))] : []),
    ...(receipts.length > 0 ? [decideReceipts(schema, admissions)] : []),
    ...(asked.length > 0 ? [readAdmissions(schema, admissions)] : []),
  ]
  const read: SpawnPlan['read'] = (replies) => {
    const inserted = sum(inserts, (insert) => Number(replies[statements.indexOf(insert)]?.[0]?.inserted ?? 0))
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

function sum<T>(items: readonly T[], value: (item: T) => number): number {
  return items.reduce((total, item) => total + value(item), 0)
}

/** What changes a run that is there is decided once: under a receipt of its own where the caller gave none. */
export function withOwnReceipt(run: NewRun): NewRun {
  if (run.receipt !== null || !merges(run)) return run
  return { ...run, receipt: { key: `${OWN_RECEIPT_PREFIX}${run.id}`, fingerprint: '' } }
}

function statementsForOccupants(context: StoreContext, merging: readonly NewRun[]): Statement[] {
  const entries = merging.flatMap((run) => entriesOf(run, undefined))
  if (entries.length === 0) return []
  return [
    lockOccupants(context.schema, {
      environment: context.environment,
      tenants: entries.map(({ run }) => run.tenant),
      scopes: entries.map(({ scope }) => scope),
      tokens: entries.map(({ token }) => token),
    }),
  ]
}

function toMergeParams(context: StoreContext, runs: readonly NewRun[], nonce: string): MergeSpawnsParams {
  return {
    ...toAdmissionsParams(context.environment, runs, nonce),
    now: context.now(),
    inputs: runs.map((run) => run.input),
    states: column(runs, (run) => run.state),
    payloadBytes: runs.map((run) => run.payloadBytes),
    gates: column(runs, gatesText),
    gateUnits: column(runs, gateUnitsText),
    delaysMs: column(runs, (run) => run.delayMs),
    runAts: column(runs, (run) => run.runAt),
    waitsMs: column(runs, ({ onConflict }) => ('waitMs' in onConflict ? onConflict.waitMs : null)),
    maxMs: column(runs, ({ onConflict }) => ('maxMs' in onConflict ? onConflict.maxMs : null)),
    sizes: column(runs, ({ onConflict }) => ('size' in onConflict ? onConflict.size : null)),
    maxPayloadBytes: MAX_PAYLOAD_BYTES,
    leavesRoom: context.isCallers === true,
  }
}

/** Neither there nor refused: its lane was missing, whoever had its key is gone, or could not be changed just then. */
function isMissing(run: NewRun, row: Row | undefined): boolean {
  if (!row) return false
  if (run.receipt !== null) return row.receipt_is_ours === true && row.receipt_matches === true && row.decision === null
  return row.own_id === null && row.occupant_id === null
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

export function toAdmissionsParams(environment: string, runs: readonly NewRun[], nonce: string) {
  return {
    environment,
    nonce,
    ids: runs.map((run) => run.id),
    tenants: runs.map((run) => run.tenant),
    scopes: runs.map((run) => run.definition),
    keys: runs.map((run) => run.key),
    receiptKeys: runs.map((run) => run.receipt?.key ?? null),
    fingerprints: runs.map((run) => run.receipt?.fingerprint ?? null),
    uniqueScopes: column(runs, (run) => run.policy?.unique?.scope ?? null),
    uniqueTokens: column(runs, (run) => run.policy?.unique?.token ?? null),
    modes: column(runs, (run) => (merges(run) ? run.onConflict.kind : null)),
  }
}

interface Decision {
  readonly id: string
  readonly status: Status
  readonly created: boolean
  readonly effect?: SpawnEffect
}

function toAdmission(run: NewRun, row: Row | undefined): Admission {
  if (!row) return { kind: 'mismatch' }
  if (run.receipt) {
    const decision = row.decision as Decision | { readonly taken: true } | null
    if (row.receipt_matches !== true || decision === null) return { kind: 'mismatch' }
    if ('taken' in decision) return { kind: 'id_taken' }
    if (row.receipt_is_ours !== true) return { kind: 'replayed', ...decision }
    const { id, status, created, effect } = decision
    return created ? { kind: 'created', id, status } : { kind: 'occupied', id, status, effect }
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
