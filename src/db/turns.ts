import { type Database, DatabaseError, type Transaction } from '../core/database.ts'
import { PawlError } from '../core/errors.ts'
import { lockStatement } from './migrations.ts'

/** How long another one who changes the schema is waited for: as long as its index over a large table may take. */
const TURN_TIMEOUT = '10min'

/** How long a table's lock is waited for: everybody behind us waits as long. */
export const LOCK_TIMEOUT = '5s'

const LOCK_NOT_AVAILABLE = '55P03'

/**
 * One transaction at a time that changes the schema, however many processes want to. What is found out in it stays so until its end. Throws
 * `invalid_configuration` over a driver without transactions, `database_busy` when a lock was not to be had in time.
 */
export async function inTurn<T>(database: Database, schema: string, fn: (tx: Transaction) => Promise<T>): Promise<T> {
  if (database.transaction === undefined) throw withoutTransactions(database)
  try {
    return await database.transaction(async (tx) => {
      await tx.execute(`SET LOCAL lock_timeout = '${TURN_TIMEOUT}'; SET LOCAL statement_timeout = 0; ${lockStatement(schema)}`)
      return fn(tx)
    })
  } catch (error) {
    if (!(error instanceof DatabaseError) || error.sqlstate !== LOCK_NOT_AVAILABLE) throw error
    const detail =
      'The migration waited too long for a lock and changed nothing: another migration or a long transaction is running.'
    throw new PawlError('database_busy', detail, { retryAfterMs: 5_000, cause: error })
  }
}

function withoutTransactions({ driver }: Database): PawlError {
  const detail = `Migrations need transactions, which ${driver} has not: migrate over WebSocket (pawl/neon-websocket) or TCP (pawl/node-postgres).`
  return new PawlError('invalid_configuration', detail, {
    field: 'database',
    got: driver,
    allowed: 'neon-websocket, node-postgres or pglite',
  })
}
