import type { Database } from '../core/database.ts'
import { nodePostgres } from '../db/drivers/node-postgres.ts'
import { pglite } from '../db/drivers/pglite.ts'
import { type CommandCall, UsageError } from './command.ts'

export const DATABASE_OPTIONS = {
  url: { kind: 'text', does: 'postgres://… or the folder of an embedded database. Default: DATABASE_URL' },
  schema: { kind: 'text', does: 'schema of the tables. Default: pawl' },
} as const

export const ENVIRONMENT_OPTION = {
  environment: { kind: 'text', does: 'whose runs are meant. Default: production' },
} as const

/** Opens the database that the call or the environment names, and closes it afterwards. */
export async function withDatabase<T>(call: CommandCall, fn: (database: Database) => Promise<T>): Promise<T> {
  const url = call.text('url') ?? call.env.DATABASE_URL
  if (url === undefined) throw new UsageError('no database: give --url or set DATABASE_URL')
  const database = openDatabase(url)
  try {
    return await fn(database)
  } finally {
    await database.close()
  }
}

function openDatabase(url: string): Database {
  if (/^postgres(ql)?:\/\//.test(url)) return nodePostgres({ connectionString: url, max: 2, connectionTimeoutMs: 10_000 })
  if (url.includes('://')) throw new UsageError('--url: it is neither postgres://… nor a folder')
  return pglite(url)
}
