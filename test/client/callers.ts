import { PGlite } from '@electric-sql/pglite'
import { Client, type ClientConfig, Pool as NeonPool } from '@neondatabase/serverless'
import { sql } from 'drizzle-orm'
import { drizzle as drizzleOverNeon } from 'drizzle-orm/neon-serverless'
import { drizzle as drizzleOverPg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleOverPglite } from 'drizzle-orm/pglite'
import pg from 'pg'
import type { CallerTransaction } from '../../src/core/caller-transaction.ts'
import type { Database } from '../../src/core/database.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { neonWebsocket } from '../../src/db/drivers/neon-websocket.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { pglite } from '../../src/db/drivers/pglite.ts'
import { migrate } from '../../src/db/migrate.ts'
import { startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { freshDatabase } from '../support/database.ts'
import type { PostgresVersion } from '../support/postgres-server.ts'

/** A transaction as an application has it, in some driver. */
export interface OpenTransaction {
  readonly tx: CallerTransaction
  /** A statement of the application's own. */
  readonly execute: (text: string) => Promise<unknown>
}

/** An application with a database: pawl's driver, and transactions of its own. */
export interface CallersSubject {
  readonly database: Database
  /** Commits what `use` did; rolls back when it throws, and throws the same. */
  readonly transaction: <T>(use: (open: OpenTransaction) => Promise<T>, isolation?: string) => Promise<T>
  /** One value per row of a query, past all of it; over PGlite, which has one connection, not within a transaction. */
  readonly look: <T>(text: string, params?: readonly unknown[]) => Promise<readonly T[]>
  readonly close: () => Promise<void>
}

export interface Callers {
  readonly name: string
  /** A look from outside while the transaction is open. */
  readonly looksBeside: boolean
  readonly open: (version: PostgresVersion) => Promise<CallersSubject>
}

async function overServer(
  version: PostgresVersion,
  make: (connectionString: string) => Promise<Pick<CallersSubject, 'database' | 'transaction' | 'close'>>,
): Promise<CallersSubject> {
  const fresh = await freshDatabase(version)
  const made = await make(fresh.connectionString)
  const beside = fresh.pool({ max: 1 })
  await beside.query('CREATE TABLE orders (id int PRIMARY KEY)')
  return {
    ...made,
    look: async (text, params = []) =>
      (await beside.query({ text, values: [...params], rowMode: 'array' })).rows.map((row) => row[0]),
    close: async () => {
      await made.close()
      await fresh.close()
    },
  }
}

/** Connections that end with the server they lead to. */
function ignored(): void {}

interface PlainClient {
  query(text: string): Promise<unknown>
}

/** BEGIN, what `use` does, COMMIT or ROLLBACK, as it is written by hand. */
async function byHand<T>(client: PlainClient, use: () => Promise<T>, isolation = 'READ COMMITTED'): Promise<T> {
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`)
  try {
    const value = await use()
    await client.query('COMMIT')
    return value
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  }
}

function overPg(version: PostgresVersion): Promise<CallersSubject> {
  return overServer(version, async (connectionString) => {
    const pool = new pg.Pool({ connectionString, max: 2 })
    pool.on('error', ignored)
    const database = nodePostgres({ connectionString, max: 2 })
    return {
      database,
      transaction: async (use, isolation) => {
        const client = await pool.connect()
        try {
          return await byHand(client, () => use({ tx: client, execute: (text) => client.query(text) }), isolation)
        } finally {
          client.release()
        }
      },
      close: async () => void (await Promise.all([pool.end(), database.close()])),
    }
  })
}

function overDrizzlePg(version: PostgresVersion): Promise<CallersSubject> {
  return overServer(version, async (connectionString) => {
    const pool = new pg.Pool({ connectionString, max: 2 })
    pool.on('error', ignored)
    const db = drizzleOverPg(pool)
    const database = nodePostgres({ connectionString, max: 2 })
    return {
      database,
      transaction: (use, isolation) =>
        db.transaction((tx) => use({ tx, execute: (text) => tx.execute(sql.raw(text)) }), levelOf(isolation)),
      close: async () => void (await Promise.all([pool.end(), database.close()])),
    }
  })
}

function levelOf(isolation: string | undefined) {
  return { isolationLevel: (isolation ?? 'READ COMMITTED').toLowerCase() as 'read committed' }
}

/** A pool of Neon's package before the local endpoint. */
async function openNeonPool(connectionString: string) {
  const endpoint = await startNeonEndpoint({ target: connectionString })
  const proxy = new URL(endpoint.websocketUrl)
  const pool = new NeonPool({ connectionString: endpoint.connectionString, max: 2 })
  pool.Client = class extends Client {
    constructor(config?: string | ClientConfig) {
      super(config)
      this.neonConfig.wsProxy = (host, port) => `${proxy.host}${proxy.pathname}?address=${host}:${port}`
      this.neonConfig.useSecureWebSocket = false
      this.neonConfig.pipelineConnect = false
      this.neonConfig.pipelineTLS = false
    }
  }
  pool.on('error', ignored)
  const database = neonWebsocket(endpoint.connectionString, { proxy: endpoint.websocketUrl, max: 2 })
  const overHttp = neonHttp(endpoint.connectionString, { endpoint: endpoint.httpUrl })
  const close = async () => {
    await Promise.all([pool.end(), database.close()])
    await endpoint.close()
  }
  return { pool, database, overHttp, close }
}

function overNeon(version: PostgresVersion, pawlOver: 'database' | 'overHttp' = 'database'): Promise<CallersSubject> {
  return overServer(version, async (connectionString) => {
    const { pool, close, ...databases } = await openNeonPool(connectionString)
    return {
      database: databases[pawlOver],
      transaction: async (use, isolation) => {
        const client = await pool.connect()
        try {
          return await byHand(client, () => use({ tx: client, execute: (text) => client.query(text) }), isolation)
        } finally {
          client.release()
        }
      },
      close,
    }
  })
}

function overDrizzleNeon(version: PostgresVersion): Promise<CallersSubject> {
  return overServer(version, async (connectionString) => {
    const { pool, database, close } = await openNeonPool(connectionString)
    const db = drizzleOverNeon(pool)
    return {
      database,
      transaction: (use, isolation) =>
        db.transaction((tx) => use({ tx, execute: (text) => tx.execute(sql.raw(text)) }), levelOf(isolation)),
      close,
    }
  })
}

function overPawl(version: PostgresVersion): Promise<CallersSubject> {
  return overServer(version, async (connectionString) => {
    const database = nodePostgres({ connectionString, max: 2 })
    return {
      database,
      transaction: (use, isolation) =>
        database.transaction!(async (tx) => {
          if (isolation !== undefined) await tx.execute(`SET TRANSACTION ISOLATION LEVEL ${isolation}`)
          return use({ tx, execute: (text) => tx.execute(text) })
        }),
      close: () => database.close(),
    }
  })
}

async function openPglite() {
  const instance = await PGlite.create()
  const database = pglite(instance)
  await migrate(database)
  await instance.exec('CREATE TABLE orders (id int PRIMARY KEY)')
  return {
    instance,
    database,
    look: async <T>(text: string, params: readonly unknown[] = []) =>
      (await instance.query<T[]>(text, [...params], { rowMode: 'array' })).rows.map((row) => row[0] as T),
    close: async () => {
      await database.close()
      await instance.close()
    },
  }
}

async function overPglite(): Promise<CallersSubject> {
  const { instance, ...rest } = await openPglite()
  return {
    ...rest,
    transaction: (use, isolation) =>
      instance.transaction(async (tx) => {
        if (isolation !== undefined) await tx.exec(`SET TRANSACTION ISOLATION LEVEL ${isolation}`)
        return use({ tx, execute: (text) => tx.exec(text) })
      }),
  }
}

async function overDrizzlePglite(): Promise<CallersSubject> {
  const { instance, ...rest } = await openPglite()
  const db = drizzleOverPglite(instance)
  return {
    ...rest,
    transaction: (use, isolation) =>
      db.transaction((tx) => use({ tx, execute: (text) => tx.execute(sql.raw(text)) }), levelOf(isolation)),
  }
}

/** Every kind of transaction that an application may have; of an older server what does not depend on the driver. */
export function callersOf(version: PostgresVersion): readonly Callers[] {
  return version === 18 ? CALLERS : CALLERS.slice(0, 1)
}

const CALLERS: readonly Callers[] = [
  { name: 'node-postgres', looksBeside: true, open: overPg },
  { name: 'drizzle over node-postgres', looksBeside: true, open: overDrizzlePg },
  { name: 'Neon’s WebSocket pool', looksBeside: true, open: (version) => overNeon(version) },
  { name: 'Neon’s WebSocket pool beside Neon HTTP', looksBeside: true, open: (version) => overNeon(version, 'overHttp') },
  { name: 'drizzle over Neon’s WebSocket pool', looksBeside: true, open: overDrizzleNeon },
  { name: 'pawl’s own driver', looksBeside: true, open: overPawl },
  { name: 'PGlite', looksBeside: false, open: overPglite },
  { name: 'drizzle over PGlite', looksBeside: false, open: overDrizzlePglite },
]
