import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { withDatabaseName } from './connection.ts'

const migrations = new URL('../../drizzle/', import.meta.url)

/** Any number will do; it only has to be the same in every test process. */
const TEMPLATE_LOCK = 7_252_025

/**
 * Answers the name of a migrated database to clone, made by whoever asks first. Its name holds a digest of the
 * migrations, so that a watch run never clones yesterday's schema.
 */
export async function migratedTemplate(admin: pg.Client, adminUrl: string): Promise<string> {
  const name = `pawl_template_${migrationsDigest()}`
  await admin.query('SELECT pg_advisory_lock($1)', [TEMPLATE_LOCK])
  try {
    const found = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1', [name])
    if (found.rowCount === 0) await makeTemplate(admin, adminUrl, name)
  } finally {
    await admin.query('SELECT pg_advisory_unlock($1)', [TEMPLATE_LOCK])
  }
  return name
}

async function makeTemplate(admin: pg.Client, adminUrl: string, name: string): Promise<void> {
  const unfinished = `pawl_unfinished_${randomBytes(6).toString('hex')}`
  await admin.query(`CREATE DATABASE ${unfinished}`)
  await migrateDatabase(withDatabaseName(adminUrl, unfinished))
  // The name appears only when the schema is complete: a run that dies half way leaves no template.
  await admin.query(`ALTER DATABASE ${unfinished} RENAME TO ${name}`)
}

/** Applies the migrations of `drizzle/` in order. */
export async function migrateDatabase(connectionString: string): Promise<void> {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    // Seam: the product's own migrator takes over as soon as it exists.
    for (const file of migrationFiles()) await client.query(readFileSync(new URL(file, migrations), 'utf8'))
  } finally {
    await client.end()
  }
}

function migrationsDigest(): string {
  const hash = createHash('sha256')
  for (const file of migrationFiles()) hash.update(file).update(readFileSync(new URL(file, migrations)))
  return hash.digest('hex').slice(0, 12)
}

function migrationFiles(): string[] {
  const folder = fileURLToPath(migrations)
  return existsSync(folder)
    ? readdirSync(folder)
        .filter((file) => /^\d.*\.sql$/.test(file))
        .sort()
    : []
}
