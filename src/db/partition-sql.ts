/** SQL text of partitioning: DDL takes no parameters, so names and bounds are put in. All of them are ours or read from the catalogue. */
import { CLOSING_CONSTRAINT } from '../core/database-errors.ts'
import { endOf, leastId, type Period } from './periods.ts'
import { quoteIdentifier } from './statements/statement.ts'

/** The tables that are partitioned, each with the column that holds the run's id. */
export const PARTITIONED = [
  { table: 'runs', key: 'id' },
  { table: 'history', key: 'run_id' },
  { table: 'signals', key: 'run_id' },
] as const

/** Suffix of the partitions that were the plain tables, and of those that take what belongs to no other. */
export const FIRST = 'first'
export const OTHER = 'other'

/** The first build whose statements ask for the id of a row and not for its place alone. */
export const PARTITIONS_BUILD = 2

/** Ids above all that are made: where the rows lie that give the partition `other` its pages. */
const HIGHEST_MS = 0xffff_ffff_ffff

export interface Range {
  readonly name: string
  /** Epoch milliseconds; null: from the beginning. */
  readonly from: number | null
  /** Epoch milliseconds, exclusive. */
  readonly to: number
}

/** What of a table must be said again when a partitioned one takes its place. */
export interface TableShape {
  readonly table: string
  readonly options: string
  /** Of indexes that belong to no constraint. */
  readonly indexes: readonly { readonly name: string; readonly definition: string }[]
  readonly grants: readonly string[]
}

export type Shapes = ReadonlyMap<string, TableShape>

/** A partition is called by its first day: those of one installation do not overlap. */
export function toRange(from: number, to: number): Range {
  return { name: new Date(from).toISOString().slice(0, 10).replaceAll('-', ''), from, to }
}

/** The ranges of the period that holds the instant and of those that follow, as far as nothing of `taken` reaches into them. */
export function rangesAhead(
  period: Period,
  nowMs: number,
  start: number,
  count: number,
  taken: readonly Range[],
): readonly Range[] {
  const ranges: Range[] = []
  let from = start
  for (let last = nowMs, n = 0; n <= count; n += 1) {
    const to = endOf(period, last)
    const free = taken.reduce((at, range) => ((range.from ?? 0) < to && range.to > at ? range.to : at), from)
    if (free < to) ranges.push(toRange(free, to))
    from = to
    last = to
  }
  return ranges
}

/**
 * Everybody who writes waits while this waits: it gives way soon and tries again, ten times. `parents` alone are locked, and that keeps all
 * statements out.
 */
export function lockTables(schema: string, tables: readonly string[]): string {
  const names = tables.map((table) => `ONLY ${quoteIdentifier(schema)}.${quoteIdentifier(table)}`).join(', ')
  return `SET LOCAL lock_timeout = '300ms';
DO $$ BEGIN
  FOR try IN 1..10 LOOP
    BEGIN
      LOCK TABLE ${names} IN ACCESS EXCLUSIVE MODE;
      RETURN;
    EXCEPTION WHEN lock_not_available THEN
      IF try = 10 THEN RAISE; END IF;
      PERFORM pg_sleep(0.1);
    END;
  END LOOP;
END $$;`
}

/** Puts partitioned tables in the place of the plain ones, which become their first partitions. Rows of later ids are moved behind them. */
export function convertTables(schema: string, shapes: Shapes, ranges: readonly [Range, ...Range[]], period: Period): string {
  const s = quoteIdentifier(schema)
  const [first, ...ahead] = ranges
  const tables = PARTITIONED.map(({ table }) => `${s}.${table}`).join(', ')
  const statements = [
    `LOCK TABLE ${tables} IN ACCESS EXCLUSIVE MODE;`,
    ...PARTITIONED.flatMap(({ table, key }) => replaceTable(s, shapeOf(shapes, table), key)),
    createOther(schema, shapes),
    ...ahead.map((range) => createPartitions(schema, shapes, range)),
    ...PARTITIONED.flatMap(({ table, key }) => [
      `WITH later AS (DELETE FROM ${s}.${table}_${FIRST} WHERE ${key} >= '${leastId(first.to)}' RETURNING *) INSERT INTO ${s}.${table} OVERRIDING SYSTEM VALUE SELECT * FROM later;`,
      `ALTER TABLE ${s}.${table} ATTACH PARTITION ${s}.${table}_${FIRST} ${boundsOf(first)};`,
    ]),
    setPeriod(schema, period),
  ]
  return statements.join('\n')
}

function replaceTable(s: string, { table, indexes, grants }: TableShape, key: string): readonly string[] {
  const old = `${table}_${FIRST}`
  const renamed = (name: string) => `${old}${name.slice(table.length)}`
  const own = table === 'signals' ? indexes.filter(({ name }) => name !== INBOX) : indexes
  return [
    `ALTER TABLE ${s}.${table} RENAME TO ${old};`,
    ...[`${table}_pkey`, ...indexes.map(({ name }) => name)].map(
      (name) => `ALTER INDEX ${s}.${quoteIdentifier(name)} RENAME TO ${quoteIdentifier(renamed(name))};`,
    ),
    ...identityOf(table).map((column) => `ALTER SEQUENCE ${s}.${table}_${column}_seq RENAME TO ${old}_${column}_seq;`),
    ...(table === 'signals' ? keySignals(s, old) : []),
    `CREATE TABLE ${s}.${table} (LIKE ${s}.${old} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING IDENTITY INCLUDING STORAGE INCLUDING COMPRESSION) PARTITION BY RANGE (${key});`,
    ...identityOf(table).flatMap((column) => [
      `SELECT setval('${s}.${table}_${column}_seq', q.last_value, q.is_called) FROM ${s}.${old}_${column}_seq q;`,
      `ALTER TABLE ${s}.${old} ALTER COLUMN ${column} DROP IDENTITY;`,
    ]),
    `ALTER TABLE ${s}.${table} ADD CONSTRAINT ${table}_pkey PRIMARY KEY (${primaryKeyOf(table)});`,
    ...own.map(({ definition }) => `${definition};`),
    ...grants,
  ]
}

/** What the primary key of the signals does as well, once the run comes first in it: that has to be, since the key must tell the partition. */
const INBOX = 'signals_inbox_idx'

function keySignals(s: string, old: string): readonly string[] {
  return [
    `ALTER TABLE ${s}.${old} DROP CONSTRAINT ${old}_pkey;`,
    `ALTER TABLE ${s}.${old} ADD CONSTRAINT ${old}_pkey PRIMARY KEY (${primaryKeyOf('signals')});`,
    `DROP INDEX ${s}.${old}${INBOX.slice('signals'.length)};`,
  ]
}

function primaryKeyOf(table: string): string {
  if (table === 'runs') return 'id'
  return table === 'history' ? 'run_id, seq' : 'run_id, id'
}

function identityOf(table: string): readonly string[] {
  if (table === 'runs') return ['position']
  return table === 'signals' ? ['id'] : []
}

function createOther(schema: string, shapes: Shapes): string {
  const s = quoteIdentifier(schema)
  const tables = PARTITIONED.map(
    ({ table }) => `CREATE TABLE ${s}.${table}_${OTHER} PARTITION OF ${s}.${table} DEFAULT${optionsOf(shapes, table)};`,
  )
  return [...tables, ...floorOf(s, OTHER, HIGHEST_MS)].join('\n')
}

/** The partitions of one range. Fails with 23514 when `other` holds rows of it. */
export function createPartitions(schema: string, shapes: Shapes, range: Range): string {
  const s = quoteIdentifier(schema)
  const tables = PARTITIONED.map(
    ({ table }) =>
      `CREATE TABLE ${s}.${table}_${range.name} PARTITION OF ${s}.${table} ${boundsOf(range)}${optionsOf(shapes, table)};`,
  )
  return [...tables, ...floorOf(s, range.name, range.from ?? 0)].join('\n')
}

function boundsOf({ from, to }: Range): string {
  return `FOR VALUES FROM (${from === null ? 'MINVALUE' : `'${leastId(from)}'`}) TO ('${leastId(to)}')`
}

function shapeOf(shapes: Shapes, table: string): TableShape {
  return shapes.get(table) ?? { table, options: '', indexes: [], grants: [] }
}

function optionsOf(shapes: Shapes, table: string): string {
  const { options } = shapeOf(shapes, table)
  return options === '' ? '' : ` WITH (${options})`
}

/**
 * Pages for each partition from its start, as the migration `page_floor` says why. Rows of environment 0, under ids that are no UUIDv7.
 */
function floorOf(s: string, name: string, ms: number): readonly string[] {
  const base = leastId(ms).slice(0, 24)
  const id = (n: string) => `('${base}' || lpad((${n})::text, 12, '0'))::uuid`
  return [
    `INSERT INTO ${s}.runs_${name} (id, position, created_at, available_at, updated_at, lane_id, priority, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds, status, finished_at, environment_id, step) OVERRIDING SYSTEM VALUE SELECT ${id('n')}, -n, now(), now(), now(), 0, 0, 1, 0, 0, 0, 'discarded', now(), 0, repeat('.', 1600) FROM generate_series(1, 128) n;`,
    `INSERT INTO ${s}.history_${name} (run_id, seq, visit, attempt, started_at, finished_at, step, outcome) SELECT ${id('n')}, x, 0, 0, now(), now(), repeat('.', 1800), '' FROM generate_series(1, 128) n, generate_series(-1, 0) x;`,
    `INSERT INTO ${s}.signals_${name} (id, run_id, name, created_at) OVERRIDING SYSTEM VALUE SELECT -n, ${id('1 + n % 128')}, repeat('.', 1800), now() FROM generate_series(1, 256) n;`,
  ]
}

/** What plans are made from: a partition that nobody has looked at is taken for a small one. No names: all of them, and the tables as a whole. */
export function analyze(schema: string, names: readonly string[]): string {
  const s = quoteIdentifier(schema)
  const tables = PARTITIONED.flatMap(({ table }) => (names.length === 0 ? [table] : names.map((name) => `${table}_${name}`)))
  return `ANALYZE ${tables.map((table) => `${s}.${table}`).join(', ')};`
}

export function setPeriod(schema: string, period: Period): string {
  return `UPDATE ${quoteIdentifier(schema)}.meta SET partitioned_by = '${period}', min_build = greatest(min_build, ${PARTITIONS_BUILD});`
}

/**
 * From here on no run of the partition comes to life again: who tries is told that the database is busy. What is alive in it all the same, since
 * it came before, goes on as ever: that is why it is a trigger and not a constraint, which would refuse that as well.
 */
export function closePartition(schema: string, { name }: Range): string {
  const s = quoteIdentifier(schema)
  return `${lockTables(schema, [`runs_${name}`])}
CREATE OR REPLACE FUNCTION ${s}.refuse_closing() RETURNS trigger LANGUAGE plpgsql AS $refuse$ BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF OLD.finished_at IS NULL THEN RETURN NEW; END IF;
  END IF;
  RAISE EXCEPTION 'the partition % is being dropped', TG_TABLE_NAME USING ERRCODE = 'check_violation', CONSTRAINT = '${CLOSING_CONSTRAINT}';
END $refuse$;
CREATE TRIGGER ${CLOSING_CONSTRAINT} BEFORE INSERT OR UPDATE ON ${s}.runs_${name} FOR EACH ROW WHEN (NEW.finished_at IS NULL) EXECUTE FUNCTION ${s}.refuse_closing();`
}

export function reopenPartition(schema: string, { name }: Range): string {
  return `${lockTables(schema, [`runs_${name}`])}
DROP TRIGGER IF EXISTS ${CLOSING_CONSTRAINT} ON ${quoteIdentifier(schema)}.runs_${name};`
}

/** One run that keeps a partition, and why, if there is one. Reads the whole partition when there is none; `at`: an SQL instant. */
export function keeperOf(schema: string, name: string, at: string): string {
  const s = quoteIdentifier(schema)
  const retention = `CASE WHEN r.status = 'completed' THEN r.retention_seconds ELSE r.failed_retention_seconds END`
  const needed = `(
    SELECT true FROM ${s}.runs p WHERE p.id = r.parent_id AND p.join_seq = r.parent_join_seq AND p.status NOT IN ('completed', 'failed', 'cancelled', 'discarded'))`
  return `SELECT r.id, CASE WHEN r.finished_at IS NULL THEN r.status::text WHEN r.awaited THEN 'awaited' WHEN r.finished_at + make_interval(secs => ${retention}) > ${at} THEN 'retained' ELSE 'needed' END AS because
FROM ${s}.runs_${name} r
WHERE r.environment_id <> 0 AND (r.finished_at IS NULL OR r.awaited OR r.finished_at + make_interval(secs => ${retention}) > ${at} OR ${needed})
LIMIT 1`
}

/** What else belongs to the runs of a range. After `closePartition` has been committed and nothing keeps it. */
export function releaseSatellites(schema: string, { from, to }: Range): string {
  const s = quoteIdentifier(schema)
  const within = (column: string) =>
    `${from === null ? '' : `${column} >= '${leastId(from)}' AND `}${column} < '${leastId(to)}' AND environment_id <> 0`
  return `DELETE FROM ${s}.uniques WHERE ${within('run_id')};
DELETE FROM ${s}.event_waits WHERE ${within('run_id')};
DELETE FROM ${s}.cascades WHERE ${within('parent_id')};`
}

/** The partitions of one range. After `releaseSatellites`, which holds rows that others may wait for while they have what this waits for. */
export function dropPartitions(schema: string, { name }: Range): string {
  const tables = PARTITIONED.map(({ table }) => table)
  const names = tables.map((table) => `${quoteIdentifier(schema)}.${table}_${name}`)
  return `${lockTables(schema, tables)}\nDROP TABLE ${names.join(', ')};`
}
