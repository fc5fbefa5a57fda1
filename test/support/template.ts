import { createHash, randomBytes } from 'node:crypto'
import type pg from 'pg'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'
import { MIGRATION_FILES } from '../../src/db/migrations.generated.ts'
import { partition } from '../../src/db/partitions.ts'
import type { Period } from '../../src/db/periods.ts'
import { withDatabaseName } from './connection.ts'

/** Any number will do; it only has to be the same in every test process. */
const TEMPLATE_LOCK = 7_252_025

/**
 * Answers the name of a migrated database to clone, made by whoever asks first. Its name holds a digest of the
 * migrations, so that a watch run never clones yesterday's schema.
 */
export async function migratedTemplate(admin: pg.Client, adminUrl: string, partitioned?: Period): Promise<string> {
  const name = `pawl_template_${migrationsDigest()}${partitioned === undefined ? '' : `_by_${partitioned}`}`
  await admin.query('SELECT pg_advisory_lock($1)', [TEMPLATE_LOCK])
  try {
    const found = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1', [name])
    if (found.rowCount === 0) await makeTemplate(admin, adminUrl, name, partitioned)
  } finally {
    await admin.query('SELECT pg_advisory_unlock($1)', [TEMPLATE_LOCK])
  }
  return name
}

async function makeTemplate(admin: pg.Client, adminUrl: string, name: string, partitioned?: Period): Promise<void> {
  const unfinished = `pawl_unfinished_${randomBytes(6).toString('hex')}`
  await admin.query(`CREATE DATABASE ${unfinished}`)
  await migrateDatabase(withDatabaseName(adminUrl, unfinished), partitioned)
  // The name appears only when the schema is complete: a run that dies half way leaves no template.
  await admin.query(`ALTER DATABASE ${unfinished} RENAME TO ${name}`)
}

/** Runs the product's own migrator there, and partitions it where asked. */
export async function migrateDatabase(connectionString: string, partitioned?: Period): Promise<void> {
  const database = nodePostgres({ connectionString, max: 1 })
  try {
    await migrate(database)
    if (partitioned !== undefined) await partition(database, { every: partitioned })
  } finally {
    await database.close()
  }
}

function migrationsDigest(): string {
  const hash = createHash('sha256')
  for (const { name, sql } of MIGRATION_FILES) hash.update(name).update(sql)
  return hash.digest('hex').slice(0, 12)
}
