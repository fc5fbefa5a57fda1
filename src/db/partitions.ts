/** Partitions for retention: an installation that has very many runs drops those of a period at once instead of deleting each. */
import { SCHEMA_VERSION } from '../core/build.ts'
import { type Database, DatabaseError, type Transaction } from '../core/database.ts'
import { notAllowed, PawlError } from '../core/errors.ts'
import { readInstallation } from './migrate.ts'
import { checkSchemaName, DEFAULT_SCHEMA, lockStatement } from './migrations.ts'
import {
  analyze,
  closePartition,
  convertTables,
  createPartitions,
  dropPartitions,
  FIRST,
  keeperOf,
  lockTables,
  OTHER,
  PARTITIONED,
  type Range,
  rangesAhead,
  releaseSatellites,
  reopenPartition,
  setPeriod,
} from './partition-sql.ts'
import { type PartitionState, readDependents, readPartitions, readShapes } from './partition-state.ts'
import { endOf, leastId, PERIODS, type Period, startOf } from './periods.ts'
import { quoteIdentifier } from './statements/statement.ts'
import { inTurn, LOCK_TIMEOUT } from './turns.ts'

/** Periods for which there are partitions, beside the current one. */
export const PERIODS_AHEAD = 4

export interface PartitionOptions {
  /** Default `pawl`. */
  readonly schema?: string | undefined
  /** By which periods: makes an installation with plain tables a partitioned one, or changes what is made from now on. Default: as it is. */
  readonly every?: Period | undefined
  /** What time it is, RFC 3339. Default: what the database says. */
  readonly now?: string | undefined
}

export interface PartitionReport {
  readonly every: Period
  /** This call has made the plain tables partitioned ones. */
  readonly converted: boolean
  /** Partitions made, by their first day (`20261207`). */
  readonly made: readonly string[]
  /** Periods without a partition, since rows of theirs lie in `other` already: those are deleted singly. */
  readonly skipped: readonly string[]
  readonly dropped: readonly string[]
  /** Partitions of the past that a run keeps: it has not ended, is kept for longer, or somebody waits for it. */
  readonly kept: readonly { readonly name: string; readonly run: string; readonly because: string }[]
}

/**
 * Partitions the tables that grow with the runs (`every`: on a schema with plain tables), and keeps their partitions: makes those of the
 * next four periods and drops those of the past in which no run is alive, kept or waited for. For a role that owns the tables, once per
 * period or more often; ticks do nothing of it. What has no partition goes into one for everything else, so nothing is lost when this is
 * not called. Safe from many processes at once, and after a crash at any point. Costs some requests, and some more per partition.
 *
 * The conversion is one transaction that has the tables for itself while it reads them once; it gives up when it has not got them within 5 s. A drop
 * has them for a moment; it gives up after ten tries of 300 ms.
 * @throws PawlError `invalid_configuration` for plain tables without `every`, over a driver without transactions, and when something hangs on
 * the plain tables that cannot be taken along (views, triggers, foreign keys, policies, publications); `schema_outdated` (migrate first),
 * `schema_newer`, `schema_foreign`, `database_busy`: what is not done yet is done by the next call.
 */
export async function partition(database: Database, options: PartitionOptions = {}): Promise<PartitionReport> {
  const work = toWork(database, options)
  const { every, converted, made } = await inTurn(database, work.schema, (tx) => beginWork(tx, work))
  const report = { every, converted, made: [...made], skipped: [] as string[], dropped: [] as string[], kept: [] as Kept[] }
  const state = await inTurn(database, work.schema, (tx) => readState(tx, work))
  for (const range of missingRanges(state)) {
    const done = await make(work, range)
    if (done !== 'there') report[done].push(range.name)
  }
  if (converted || report.made.length > 0) {
    await inTurn(database, work.schema, (tx) => tx.execute(analyze(work.schema, converted ? [] : report.made)))
  }
  for (const range of state.partitions.filter(({ to }) => to <= state.nowMs)) {
    const done = await drop(work, range)
    if (done === 'dropped') report.dropped.push(range.name)
    else if (done !== 'gone') report.kept.push(done)
  }
  return report
}

type Kept = PartitionReport['kept'][number]

interface Work {
  readonly database: Database
  readonly schema: string
  readonly every: Period | undefined
  readonly now: string | undefined
}

function toWork(database: Database, { schema = DEFAULT_SCHEMA, every, now }: PartitionOptions): Work {
  if (every !== undefined && !PERIODS.includes(every)) throw notPeriod(every)
  return { database, schema: checkSchemaName(schema), every, now }
}

function notPeriod(got: unknown): PawlError {
  return notAllowed('invalid_configuration', { field: 'every', got, allowed: PERIODS.join(', ') })
}

async function readState(tx: Transaction, { schema, now }: Work): Promise<PartitionState> {
  const { version } = await readInstallation(tx, schema)
  if (version < SCHEMA_VERSION) {
    throw new PawlError('schema_outdated', `The schema has version ${version}, this build needs ${SCHEMA_VERSION}: migrate.`)
  }
  const state = await readPartitions(tx, schema)
  return now === undefined ? state : { ...state, nowMs: Date.parse(now) }
}

/** Makes the tables partitioned ones, unless they are. */
async function beginWork(tx: Transaction, work: Work): Promise<Pick<PartitionReport, 'every' | 'converted' | 'made'>> {
  const state = await readState(tx, work)
  const every = work.every ?? state.period
  if (every === null) throw notPeriod(undefined)
  if (state.period === null) {
    const { sql, made } = await conversion(tx, work, every, state.nowMs)
    await tx.execute(`SET LOCAL lock_timeout = '${LOCK_TIMEOUT}';\n${sql}`)
    return { every, converted: true, made }
  }
  if (every !== state.period) await tx.execute(setPeriod(work.schema, every))
  return { every, converted: false, made: [] }
}

async function conversion(tx: Transaction, { schema }: Work, every: Period, nowMs: number) {
  const dependents = await readDependents(tx, schema)
  if (dependents.length > 0) {
    const detail = `The tables cannot be partitioned as long as there is: ${dependents.join('; ')}. Nothing was changed.`
    throw new PawlError('invalid_configuration', detail, { field: 'schema', got: dependents[0] })
  }
  const shapes = await readShapes(tx, schema, true)
  const end = endOf(every, nowMs)
  const ahead = rangesAhead(every, end, end, PERIODS_AHEAD - 1, [])
  const first = { name: FIRST, from: null, to: end }
  return { sql: convertTables(schema, shapes, [first, ...ahead], every), made: ahead.map(({ name }) => name) }
}

function missingRanges({ period, nowMs, partitions }: PartitionState): readonly Range[] {
  return period === null ? [] : rangesAhead(period, nowMs, startOf(period, nowMs), PERIODS_AHEAD, partitions)
}

const VIOLATED = '23514'

/** The partitions of one range, in a transaction of their own. `skipped`: rows of it lie elsewhere already. */
async function make({ database, schema }: Work, range: Range): Promise<'made' | 'skipped' | 'there'> {
  try {
    return await inTurn(database, schema, async (tx) => {
      const { partitions } = await readPartitions(tx, schema)
      if (partitions.some(({ from, to }) => (from ?? 0) < range.to && to > (range.from ?? 0))) return 'there'
      if (await holdsRowsOf(tx, schema, range)) return 'skipped'
      const tables = PARTITIONED.map(({ table }) => table)
      await tx.execute(`${lockTables(schema, tables)}\n${createPartitions(schema, await readShapes(tx, schema, false), range)}`)
      return 'made'
    })
  } catch (error) {
    if (error instanceof DatabaseError && error.sqlstate === VIOLATED) return 'skipped'
    throw error
  }
}

/** By the primary keys: the server would read all of `other` while it has the tables, to say the same. */
async function holdsRowsOf(tx: Transaction, schema: string, { from, to }: Range): Promise<boolean> {
  const s = quoteIdentifier(schema)
  const found = PARTITIONED.map(
    ({ table, key }) => `EXISTS (SELECT FROM ${s}.${table}_${OTHER} x WHERE x.${key} >= $1::uuid AND x.${key} < $2::uuid)`,
  )
  const [row] = await tx.query({
    name: 'find_rows_of_range',
    text: `SELECT ${found.join(' OR ')} AS found`,
    params: [leastId(from ?? 0), leastId(to)],
  })
  return row?.found === true
}

/**
 * Drops the partitions of a range of the past, if nothing keeps them; answers what does. Looked at without a lock on what others do; then no
 * run of it may come to life any more, which has to be committed before it is looked at again, and only then dropped. Whatever happens
 * between, the next call finds it closing and goes on.
 */
async function drop(work: Work, range: Range): Promise<Kept | 'dropped' | 'gone'> {
  for (let released = false; ; ) {
    const step = await inTurn(work.database, work.schema, (tx) => advance(tx, work, range, released))
    if (step !== 'closed' && step !== 'released') return step
    released = step === 'released'
  }
}

/** The next step towards that, of what the catalogue says now: another process may have gone ahead, or back. */
async function advance(tx: Transaction, work: Work, range: Range, released: boolean): Promise<Kept | Step> {
  const { schema } = work
  const { partitions } = await readPartitions(tx, schema)
  const found = partitions.find(({ name }) => name === range.name)
  if (found === undefined) return 'gone'
  const kept = await readKeeper(tx, work, range)
  if (kept !== undefined) {
    if (found.closing) await tx.execute(reopenPartition(schema, range))
    return kept
  }
  if (!found.closing) {
    await tx.execute(closePartition(schema, range))
    return 'closed'
  }
  await tx.execute(released ? dropPartitions(schema, range) : releaseSatellites(schema, range))
  return released ? 'dropped' : 'released'
}

type Step = 'closed' | 'released' | 'dropped' | 'gone'

async function readKeeper(tx: Transaction, { schema, now }: Work, { name }: Range): Promise<Kept | undefined> {
  const at = '(SELECT coalesce($1::timestamptz, now()))'
  const [row] = await tx.query({ name: 'find_keeper', text: keeperOf(schema, name, at), params: [now ?? null] })
  return row === undefined ? undefined : { name, run: String(row.id), because: String(row.because) }
}

/**
 * The SQL of what `partition` would do now, for people whose role may not: in transactions to be run in their order. The one that drops fails
 * when something keeps the partition. Costs three requests, changes nothing. Throws what `partition` throws.
 */
export async function printPartitions(database: Database, options: PartitionOptions = {}): Promise<string> {
  const work = toWork(database, options)
  const { schema } = work
  return inTurn(database, schema, async (tx) => {
    const state = await readState(tx, work)
    const every = work.every ?? state.period
    if (every === null) throw notPeriod(undefined)
    if (state.period === null) {
      return `${printed(schema, (await conversion(tx, work, every, state.nowMs)).sql)}${analyze(schema, [])}\n`
    }
    const shapes = await readShapes(tx, schema, false)
    const parents = lockTables(
      schema,
      PARTITIONED.map(({ table }) => table),
    )
    const past = state.partitions.filter(({ to }) => to <= state.nowMs)
    const missing = missingRanges({ ...state, period: every })
    const names = missing.map(({ name }) => name)
    const parts = [
      ...(every === state.period ? [] : [setPeriod(schema, every)]),
      ...missing.map((range) => `${parents}\n${createPartitions(schema, shapes, range)}`),
      ...(missing.length === 0 ? [] : [analyze(schema, names)]),
      ...past.flatMap((range) => [
        ...(range.closing ? [] : [closePartition(schema, range)]),
        `${unlessKept(schema, range)}\n${releaseSatellites(schema, range)}`,
        `${unlessKept(schema, range)}\n${dropPartitions(schema, range)}`,
      ]),
    ]
    return parts.map((sql) => printed(schema, sql)).join('\n')
  })
}

function printed(schema: string, sql: string): string {
  return `BEGIN;\n${lockStatement(schema)}\n${sql}\nCOMMIT;\n`
}

function unlessKept(schema: string, { name }: Range): string {
  return `DO $$ BEGIN IF EXISTS (${keeperOf(schema, name, 'now()')}) THEN RAISE EXCEPTION 'a run keeps the partition ${name}'; END IF; END $$;`
}
