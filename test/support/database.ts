import pg from 'pg'
import { describe, expect, inject, test } from 'vitest'
import { type CloneOptions, cloneDatabase } from './clone.ts'
import type { PostgresVersion } from './postgres-server.ts'

export interface FreshDatabase {
  readonly version: PostgresVersion
  readonly name: string
  readonly connectionString: string
  /** A pool of plain node-postgres connections, closed with the database. Superuser; sees what the engine did. */
  readonly pool: (options?: pg.PoolConfig) => pg.Pool
  /** Closes the pools and drops the database, whoever is still connected. Idempotent. */
  readonly close: () => Promise<void>
}

/**
 * A database of its own, cloned from one that was migrated once per run (about 50 ms). `empty: true` gives one without
 * our schema. Call it in `beforeAll` or in a test, and `close()` where that ends.
 */
export async function freshDatabase(version: PostgresVersion = 18, options: CloneOptions = {}): Promise<FreshDatabase> {
  const { name, connectionString, drop } = await cloneDatabase(serverUrl(version), options)
  const pools: pg.Pool[] = []
  let closing: Promise<void> | undefined
  const close = async () => {
    await Promise.all(pools.map((pool) => pool.end()))
    await drop()
  }
  return {
    version,
    name,
    connectionString,
    pool: (options = {}) => {
      const pool = new pg.Pool({ ...options, connectionString })
      // Dropping the database ends idle connections, which a pool reports as an error of its own.
      pool.on('error', () => {})
      pools.push(pool)
      return pool
    },
    close: () => {
      closing ??= close()
      return closing
    },
  }
}

/** Superuser connection string of the server of that version, on its database `postgres`. */
export function serverUrl(version: PostgresVersion): string {
  const url = version === 18 ? inject('pg18') : inject('pg15')
  if (url === undefined) throw new Error('PostgreSQL 15 is not on this machine: use forEachVersion, or set PG15_BIN')
  return url
}

/**
 * One `describe` per supported server. Where PostgreSQL 15 is missing, a test says so in place of those that cannot
 * run, and fails in CI, where both are required.
 */
export function forEachVersion(title: string, body: (version: PostgresVersion) => void): void {
  describe(`${title} (PostgreSQL 18)`, () => body(18))
  if (inject('pg15') !== undefined) {
    describe(`${title} (PostgreSQL 15)`, () => body(15))
    return
  }
  describe(`${title} (PostgreSQL 15)`, () => {
    test('this machine has a PostgreSQL 15, which CI requires', () => {
      expect(process.env.CI === 'true', 'CI needs a PostgreSQL 15; set PG15_BIN to its bin folder').toBe(false)
    })
  })
}
