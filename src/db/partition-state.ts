/** What the catalogue says of the partitioned tables, and of those that are to become partitioned. */
import type { Row, Statement, Transaction } from '../core/database.ts'
import { CLOSING_CONSTRAINT } from '../core/database-errors.ts'
import { FIRST, OTHER, PARTITIONED, type Range, type Shapes, type TableShape } from './partition-sql.ts'
import { instantOf, type Period } from './periods.ts'
import { quoteIdentifier } from './statements/statement.ts'

const TABLES = PARTITIONED.map(({ table }) => table)

export interface Partition extends Range {
  /** No run of it comes to life any more: it is about to be dropped. */
  readonly closing: boolean
}

export interface PartitionState {
  /** Null: the tables are plain. */
  readonly period: Period | null
  readonly nowMs: number
  /** In the order of their ranges, without the one for what belongs to no other. */
  readonly partitions: readonly Partition[]
}

export async function readPartitions(tx: Pick<Transaction, 'query'>, schema: string): Promise<PartitionState> {
  const [meta] = await tx.query({
    name: 'read_period',
    text: `SELECT partitioned_by, (extract(epoch FROM now()) * 1000)::float8 AS now FROM ${quoteIdentifier(schema)}.meta`,
    params: [],
  })
  const period = (meta?.partitioned_by ?? null) as Period | null
  const rows = period === null ? [] : await tx.query(findPartitions(schema))
  const partitions = rows.map(toPartition).filter((partition) => partition !== undefined)
  return { period, nowMs: Number(meta?.now), partitions: partitions.sort((left, right) => left.to - right.to) }
}

function findPartitions(schema: string): Statement {
  return {
    name: 'find_partitions',
    text: `
SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds,
  EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = '${CLOSING_CONSTRAINT}') AS closing
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = (SELECT t.oid FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = $1::text AND t.relname = 'runs')`.trim(),
    params: [schema],
  }
}

/** As the server writes them: `FOR VALUES FROM (MINVALUE) TO ('0190…')`. */
const BOUNDS = /FROM \((?:MINVALUE|'([0-9a-f-]{36})')\) TO \('([0-9a-f-]{36})'\)/

function toPartition({ name, bounds, closing }: Row): Partition | undefined {
  const [, from, to] = BOUNDS.exec(String(bounds)) ?? []
  if (to === undefined) return undefined
  return {
    name: String(name).slice('runs_'.length),
    from: from === undefined ? null : instantOf(from),
    to: instantOf(to),
    closing: closing === true,
  }
}

/** What tables of that installation are like: the plain ones, or the partitions that are like them. */
export async function readShapes(tx: Pick<Transaction, 'query'>, schema: string, isPlain: boolean): Promise<Shapes> {
  const rows = await tx.query({
    name: 'read_shapes',
    text: `
SELECT t.name, coalesce(array_to_string(c.reloptions, ', '), '') AS options,
  ARRAY(SELECT x.relname::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid) ORDER BY x.relname) AS indexes,
  ARRAY(SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid) ORDER BY x.relname) AS definitions,
  ARRAY(SELECT format('GRANT %s ON %I.%I TO %s%s;', a.privilege_type, n.nspname, t.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(g.rolname) END,
      CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
    FROM aclexplode(c.relacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee WHERE a.grantee <> c.relowner) AS grants,
  format('ALTER TABLE %I.%I OWNER TO %I;', n.nspname, t.name, pg_get_userbyid(c.relowner)) AS owner
FROM unnest($2::text[]) AS t(name) JOIN pg_namespace n ON n.nspname = $1::text
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = CASE WHEN $3::boolean THEN t.name ELSE t.name || '_${OTHER}' END`.trim(),
    params: [schema, TABLES, isPlain],
  })
  return new Map(rows.map((row) => [String(row.name), toShape(row)]))
}

function toShape({ name, options, indexes, definitions, grants, owner }: Row): TableShape {
  const texts = definitions as readonly string[]
  return {
    table: String(name),
    options: String(options),
    indexes: (indexes as readonly string[]).map((index, n) => ({ name: index, definition: texts[n] ?? '' })),
    grants: [String(owner), ...(grants as readonly string[])],
  }
}

/** What hangs on the plain tables by their identity and would stay with the first partition. Empty: nothing. */
export async function readDependents(tx: Pick<Transaction, 'query'>, schema: string): Promise<readonly string[]> {
  const rows = await tx.query({
    name: 'find_dependents',
    text: `
WITH ours AS (
  SELECT c.oid, c.relname, c.relrowsecurity FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])
)
SELECT 'trigger ' || g.tgname || ' on ' || o.relname AS what FROM ours o JOIN pg_trigger g ON g.tgrelid = o.oid AND NOT g.tgisinternal
UNION ALL
SELECT 'view ' || v.relname || ' of ' || o.relname FROM ours o JOIN pg_depend d ON d.refobjid = o.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_rewrite'::regclass
  JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class GROUP BY v.relname, o.relname
UNION ALL
SELECT 'foreign key ' || k.conname || ' on ' || o.relname FROM ours o JOIN pg_constraint k ON k.contype = 'f' AND o.oid IN (k.conrelid, k.confrelid)
UNION ALL
SELECT 'policies of ' || o.relname FROM ours o WHERE o.relrowsecurity
UNION ALL
SELECT 'publication ' || p.pubname || ' of ' || o.relname FROM ours o JOIN pg_publication_rel x ON x.prrelid = o.oid JOIN pg_publication p ON p.oid = x.prpubid
UNION ALL
SELECT 'privileges of columns of ' || o.relname FROM ours o WHERE EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = o.oid AND a.attacl IS NOT NULL)
UNION ALL
SELECT 'children of ' || o.relname FROM ours o WHERE EXISTS (SELECT FROM pg_inherits i WHERE o.oid IN (i.inhparent, i.inhrelid))
UNION ALL
SELECT 'a table ' || n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = ANY ($3::text[])`.trim(),
    params: [schema, TABLES, TABLES.flatMap((table) => [`${table}_${FIRST}`, `${table}_${OTHER}`])],
  })
  return rows.map(({ what }) => String(what))
}
