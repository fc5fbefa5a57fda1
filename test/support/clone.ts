import { randomBytes } from 'node:crypto'
import pg from 'pg'
import type { Period } from '../../src/db/periods.ts'
import { withDatabaseName } from './connection.ts'
import { migratedTemplate } from './template.ts'

export interface ClonedDatabase {
  readonly name: string
  readonly connectionString: string
  /** Drops it, whoever is still connected. Idempotent. */
  readonly drop: () => Promise<void>
}

export interface CloneOptions {
  /** Without our schema. */
  readonly empty?: boolean
  /** Partitioned by such periods. Default: what `PAWL_PARTITIONED` says, so that the whole suite can be tried there; else plain tables. */
  readonly partitioned?: Period | undefined
}

/** Makes a database on that server from the migrated template, or from nothing when `empty`. */
export async function cloneDatabase(adminUrl: string, options: CloneOptions = {}): Promise<ClonedDatabase> {
  const name = `pawl_${randomBytes(8).toString('hex')}`
  await asAdmin(adminUrl, async (admin) => {
    const template =
      options.empty === true
        ? 'template1'
        : await migratedTemplate(
            admin,
            adminUrl,
            options.partitioned ?? ((process.env.PAWL_PARTITIONED || undefined) as Period | undefined),
          )
    await admin.query(`CREATE DATABASE ${name} TEMPLATE ${template}`)
  })
  return {
    name,
    connectionString: withDatabaseName(adminUrl, name),
    drop: async () => {
      await asAdmin(adminUrl, (admin) => admin.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`))
    },
  }
}

async function asAdmin<T>(adminUrl: string, fn: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = new pg.Client({ connectionString: adminUrl })
  await admin.connect()
  try {
    return await fn(admin)
  } finally {
    await admin.end()
  }
}
