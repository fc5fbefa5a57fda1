/**
 * The migrations in order, each with the least build that works with the schema it leaves (expand/contract), and the name of the
 * schema put in. Whoever adds one to `drizzle/` adds a line to `MIN_BUILDS` and raises `SCHEMA_VERSION`.
 */
import { BUILD, SCHEMA_VERSION } from '../core/build.ts'
import { notAllowed, PawlError } from '../core/errors.ts'
import { utf8Length } from '../core/json.ts'
import { MIGRATION_FILES } from './migrations.generated.ts'
import { quoteIdentifier } from './statements/statement.ts'

export const DEFAULT_SCHEMA = 'pawl'

export interface Migration {
  /** The schema's version once it is applied: its place, from 1. */
  readonly version: number
  readonly name: string
  /** Builds below it do not work with the schema any more. */
  readonly minBuild: number
  /** Statements in order, for the schema that was asked for. None makes the schema itself. */
  readonly statements: readonly string[]
}

/** By version. */
const MIN_BUILDS: readonly number[] = [1, 1, 1, 1, 1, 1]

const BREAKPOINT = '--> statement-breakpoint'

/** Lower case, so that nobody ever has to quote it; Postgres cuts identifiers at 63 bytes and keeps `pg_` for itself. */
const SCHEMA_NAME = /^[a-z_][a-z0-9_]*$/
const MAX_SCHEMA_BYTES = 63

/** The name, when a schema may have it. Throws `invalid_configuration`. */
export function checkSchemaName(schema: string): string {
  const allowed =
    typeof schema === 'string' &&
    SCHEMA_NAME.test(schema) &&
    utf8Length(schema) <= MAX_SCHEMA_BYTES &&
    !schema.startsWith('pg_') &&
    schema !== 'information_schema' &&
    schema !== 'public'
  if (allowed) return schema
  throw notAllowed('invalid_configuration', {
    field: 'schema',
    got: schema,
    allowed: `a name of its own: 1 to ${MAX_SCHEMA_BYTES} of a-z, 0-9 and _, not beginning with a digit or pg_`,
  })
}

/** All migrations of this build, for that schema. Throws `invalid_configuration`. */
export function migrationsFor(schema: string): readonly Migration[] {
  const name = quoteIdentifier(checkSchemaName(schema))
  if (
    MIGRATION_FILES.length !== SCHEMA_VERSION ||
    MIN_BUILDS.length !== SCHEMA_VERSION ||
    MIN_BUILDS.some((min) => min > BUILD)
  ) {
    throw new PawlError('internal', 'SCHEMA_VERSION, MIN_BUILDS and the files of drizzle/ do not agree.')
  }
  return MIGRATION_FILES.map((file, index) => ({
    version: index + 1,
    name: file.name,
    minBuild: MIN_BUILDS[index] as number,
    statements: file.sql
      .split(BREAKPOINT)
      .map((statement) => statement.trim())
      // the schema is made beforehand, or by somebody who may
      .filter((statement) => statement !== '' && statement !== 'CREATE SCHEMA "pawl";')
      .map((statement) => statement.replaceAll('"pawl".', `${name}.`)),
  }))
}

/** What a migration writes into `meta` when it is done. */
export function metaStatement(schema: string, migration: Migration): string {
  const meta = `${quoteIdentifier(schema)}.meta`
  const { version, minBuild } = migration
  if (version === 1) return `INSERT INTO ${meta} (schema_version, min_build) VALUES (${version}, ${minBuild});`
  return `UPDATE ${meta} SET schema_version = ${version}, min_build = ${minBuild};`
}

/** One at a time per schema, until the transaction ends. */
export function lockStatement(schema: string): string {
  return `SELECT pg_advisory_xact_lock(hashtextextended('pawl:migrate:${checkSchemaName(schema)}', 0));`
}

export interface PrintMigrationsOptions {
  /** Default `pawl`. */
  readonly schema?: string | undefined
  /** The version the database has; what comes after it is printed. Default 0: everything. */
  readonly from?: number | undefined
}

/**
 * The SQL that `migrate` would run, for people whose role may not: one transaction per migration, which refuses to run over
 * another version than the one it follows. Costs no request. Throws `invalid_configuration`.
 */
export function printMigrations(options: PrintMigrationsOptions = {}): string {
  const { schema = DEFAULT_SCHEMA, from = 0 } = options
  return migrationsFor(schema)
    .filter(({ version }) => version > from)
    .map((migration) => printMigration(schema, migration))
    .join('\n')
}

function printMigration(schema: string, migration: Migration): string {
  const before = migration.version - 1
  const expected = before === 0 ? [] : [expectVersion(schema, before)]
  const create = before === 0 ? [`CREATE SCHEMA IF NOT EXISTS ${quoteIdentifier(schema)};`] : []
  const lines = [lockStatement(schema), ...expected, ...create, ...migration.statements, metaStatement(schema, migration)]
  return `-- ${migration.name}: version ${migration.version}\nBEGIN;\n${lines.join('\n')}\nCOMMIT;\n`
}

function expectVersion(schema: string, version: number): string {
  const meta = `${quoteIdentifier(schema)}.meta`
  return `DO $$ BEGIN IF (SELECT schema_version FROM ${meta}) IS DISTINCT FROM ${version} THEN RAISE EXCEPTION 'the schema is not at version ${version}'; END IF; END $$;`
}
