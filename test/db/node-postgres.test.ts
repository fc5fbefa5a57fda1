import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'

const one = { name: 'one', text: 'SELECT $1::int AS n', params: [1] }

describe('nodePostgres over a pool that the caller made', () => {
  let fresh: FreshDatabase
  beforeAll(async () => {
    fresh = await freshDatabase(18, { empty: true })
  })
  afterAll(() => fresh.close())

  test('leaves the pool open when it is closed', async () => {
    const pool = fresh.pool({ max: 1 })
    const database = nodePostgres(pool)
    expect(await database.batch([one])).toEqual([[{ n: 1 }]])
    await database.close()
    expect((await pool.query('SELECT 2 AS n')).rows).toEqual([{ n: 2 }])
  })

  test('gives every connection back, after failures too', async () => {
    const pool = fresh.pool({ max: 2 })
    const database = nodePostgres(pool)
    const broken = { name: 'broken', text: 'SELECT 1 / $1::int', params: [0] }
    for (let round = 0; round < 5; round++) {
      await expect(database.batch([one, broken])).rejects.toMatchObject({ sqlstate: '22012' })
      await expect(database.query(broken)).rejects.toMatchObject({ sqlstate: '22012' })
      await expect(database.transaction?.((tx) => tx.query(broken))).rejects.toMatchObject({ sqlstate: '22012' })
    }
    expect([pool.totalCount - pool.idleCount, pool.waitingCount]).toEqual([0, 0])
    expect(await database.batch([one])).toEqual([[{ n: 1 }]])
  })

  test('works in pg’s own pipeline mode, beside the caller’s queries', async () => {
    // The cast: the mode is newer than its type.
    const pool = fresh.pool({ max: 1, pipeline: true } as pg.PoolConfig)
    const database = nodePostgres(pool)
    const answers = await Promise.all([database.batch([one, one]), pool.query('SELECT 2 AS n'), database.query(one)])
    expect(answers[0]).toEqual([[{ n: 1 }], [{ n: 1 }]])
    expect(answers[1].rows).toEqual([{ n: 2 }])
    expect(answers[2]).toEqual([{ n: 1 }])
  })

  test('a large batch has begun to leave before its last parameters are made, and is one transaction all the same', async () => {
    const pool = fresh.pool({ max: 1 })
    const client = await pool.connect()
    client.release()
    const { connection } = client as unknown as { connection: { stream: { bytesWritten: number } } }
    const left = () => connection.stream.bytesWritten
    const before = left()
    const first = {
      name: 'first',
      text: 'CREATE TABLE parts AS SELECT unnest($1::text[]) AS part',
      params: [Array(5_000).fill('part')],
    }
    const rest = (params: () => readonly string[]) => ({
      name: 'rest',
      text: 'INSERT INTO parts VALUES ($1::text)',
      isLater: true as const,
      get params() {
        return params()
      },
    })
    const database = nodePostgres(pool)
    let leftByThen = 0
    const late = rest(() => {
      leftByThen = left() - before
      return ['the rest']
    })
    await database.batch([first, late])
    expect(leftByThen).toBeGreaterThan(30_000)
    expect((await pool.query('SELECT count(*)::int AS n FROM parts')).rows).toEqual([{ n: 5_001 }])

    const broken = rest(() => {
      throw new TypeError('cannot be made')
    })
    const emptied = {
      name: 'emptied',
      text: 'DELETE FROM parts WHERE part <> ALL ($1::text[])',
      params: [Array(5_000).fill('none')],
    }
    await expect(database.batch([emptied, broken])).rejects.toThrow('cannot be made')
    expect(await database.query({ name: 'count', text: 'SELECT count(*)::int AS n FROM parts', params: [] })).toEqual([
      { n: 5_001 },
    ])
  })

  test('is not led astray by the caller’s type parsers', async () => {
    const types = { getTypeParser: () => () => 'the caller’s' }
    const pool = fresh.pool({ max: 1, types })
    expect(await nodePostgres(pool).query(one)).toEqual([{ n: 1 }])
  })

  test('shares its prepared statements with other objects over the pool', async () => {
    const pool = fresh.pool({ max: 1 })
    for (const database of [nodePostgres(pool), nodePostgres(pool)]) {
      await database.batch([one])
      await database.batch([one])
      expect(database.requests).toBe(2)
    }
    const { rows } = await pool.query("SELECT name FROM pg_prepared_statements WHERE statement LIKE 'SELECT $1%'")
    expect(rows).toHaveLength(1)
  })

  test('gives up preparing when a pooled session has its name already, and answers all the same', async () => {
    const first = fresh.pool({ max: 1 })
    await nodePostgres(first).query(one)
    const { rows } = await first.query<{ name: string }>('SELECT name FROM pg_prepared_statements')
    const second = fresh.pool({ max: 1 })
    const session = await second.connect()
    await session.query(`PREPARE ${rows[0]!.name} (int) AS SELECT $1 AS n`)
    session.release()
    const database = nodePostgres(second)
    expect(await database.batch([one])).toEqual([[{ n: 1 }]])
    expect(database.requests).toBe(2)
    await database.batch([one])
    expect(database.requests).toBe(3)
  })

  test('times out with the pool, as lost, and goes on with another connection', async () => {
    const pool = fresh.pool({ max: 1, query_timeout: 50 })
    const database = nodePostgres(pool)
    const slow = { name: 'slow', text: 'SELECT pg_sleep(30)', params: [] }
    await expect(database.batch([slow])).rejects.toMatchObject({ fate: 'lost' })
    expect(await database.batch([one])).toEqual([[{ n: 1 }]])
  })
})
