import { SCHEMA_VERSION } from '../core/build.ts'
import type { Database, Statement, Transaction } from '../core/database.ts'
import { PawlError } from '../core/errors.ts'
import { checkSchemaName, DEFAULT_SCHEMA, type Migration, metaStatement, migrationsFor } from './migrations.ts'
import { quoteIdentifier } from './statements/statement.ts'
import { inTurn, LOCK_TIMEOUT } from './turns.ts'

export interface MigrateOptions {
  /** Default `pawl`. Installations in several schemas of one database know nothing of each other. */
  readonly schema?: string | undefined
}

export interface MigrateReport {
  /** Version found: 0 for a database without the schema. */
  readonly from: number
  readonly to: number
  /** Names of the migrations that this call applied; none when another one did, or nothing was to do. */
  readonly applied: readonly string[]
}

/**
 * Brings the schema to the version of this build: forward only, each migration in a transaction of its own, one migrator at a
 * time however many start at once. Makes the schema, or fills one that exists and is empty. Idempotent.
 * Costs four requests, and a few more per migration.
 * @throws PawlError `invalid_configuration` over a driver without transactions (Neon HTTP: migrate over its WebSocket or over TCP),
 * `schema_newer` and `schema_foreign` (nothing is changed), `database_busy` when a lock was not to be had in time (ask again).
 */
export async function migrate(database: Database, options: MigrateOptions = {}): Promise<MigrateReport> {
  const schema = checkSchemaName(options.schema ?? DEFAULT_SCHEMA)
  const migrations = migrationsFor(schema)
  let from: number | undefined
  const applied: string[] = []
  for (;;) {
    const step = await inTurn(database, schema, (tx) => applyNext(tx, schema, migrations))
    from ??= step.found
    if (step.applied === undefined) return { from, to: step.found, applied }
    applied.push(step.applied)
    if (step.found + 1 >= SCHEMA_VERSION) return { from, to: SCHEMA_VERSION, applied }
  }
}

interface Step {
  /** The version found once it was our turn. */
  readonly found: number
  readonly applied: string | undefined
}

/** In its turn: looks what is there now (another may have been faster), and applies the one migration that comes next. */
async function applyNext(tx: Transaction, schema: string, migrations: readonly Migration[]): Promise<Step> {
  const found = await readInstallation(tx, schema)
  const migration = migrations[found.version]
  if (migration === undefined) return { found: found.version, applied: undefined }
  const create = found.exists ? [] : [`CREATE SCHEMA ${quoteIdentifier(schema)};`]
  const statements = [...create, ...migration.statements, metaStatement(schema, migration)]
  await tx.execute(`SET LOCAL lock_timeout = '${LOCK_TIMEOUT}';\n${statements.join('\n')}`)
  return { found: found.version, applied: migration.name }
}

export interface Installation {
  readonly exists: boolean
  readonly version: number
}

/** What is there. Throws `schema_foreign` and `schema_newer`. */
export async function readInstallation(tx: Transaction, schema: string): Promise<Installation> {
  const [row] = await tx.query(findSchema(schema))
  if (row?.exists !== true) return { exists: false, version: 0 }
  if (row.has_meta !== true) {
    if (row.is_empty === true) return { exists: true, version: 0 }
    throw foreign(schema, 'it has tables, but none of ours')
  }
  const [meta] = await tx.query(readMeta(schema))
  if (meta?.product !== 'pawl' || typeof meta.schema_version !== 'number') throw foreign(schema, 'its meta is not ours')
  if (meta.schema_version > SCHEMA_VERSION) throw newer(schema, meta.schema_version)
  return { exists: true, version: meta.schema_version }
}

function foreign(schema: string, why: string): PawlError {
  const detail = `The schema "${schema}" was not made by pawl (${why}). Nothing was changed: choose another schema.`
  return new PawlError('schema_foreign', detail, { field: 'schema', got: schema })
}

function newer(schema: string, version: number): PawlError {
  const detail = `The schema "${schema}" has version ${version}, this build knows ${SCHEMA_VERSION}. Nothing was changed: migrate with the newer build.`
  return new PawlError('schema_newer', detail, { field: 'schema', got: String(version), allowed: `at most ${SCHEMA_VERSION}` })
}

/** `has_meta`: a table of that name with the columns by which ours is known. Reads the catalogue only, so it cannot fail on a foreign schema. */
function findSchema(schema: string): Statement {
  return {
    name: 'find_schema',
    text: `
SELECT n.oid IS NOT NULL AS exists,
  (SELECT count(*) = 4 FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
   WHERE c.relnamespace = n.oid AND c.relname = 'meta' AND c.relkind = 'r' AND a.attname IN ('singleton', 'product', 'schema_version', 'min_build') AND NOT a.attisdropped) AS has_meta,
  NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid) AND NOT EXISTS (SELECT FROM pg_type t WHERE t.typnamespace = n.oid)
    AND NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = n.oid) AS is_empty
FROM (SELECT) one LEFT JOIN pg_namespace n ON n.nspname = $1::text`.trim(),
    params: [schema],
  }
}

function readMeta(schema: string): Statement {
  return {
    name: 'read_meta',
    text: `SELECT product, schema_version, min_build FROM ${quoteIdentifier(schema)}.meta`,
    params: [],
  }
}
