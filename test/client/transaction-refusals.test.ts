import { PGlite } from '@electric-sql/pglite'
import { drizzle } from 'drizzle-orm/node-postgres'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import type { CallerTransaction } from '../../src/core/caller-transaction.ts'
import { job } from '../../src/core/job.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createPawl, type Database } from '../../src/index.ts'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import { untilBlocked } from '../support/races.ts'

const mail = job({ name: 'mail', input: z.object({ to: z.string() }), run: ({ input }) => input.to })
const to = { to: 'a' }

describe('a transaction of the caller’s', () => {
  let fresh: FreshDatabase
  let database: Database
  const connect = () => createPawl({ definitions: [mail] }).connect({ database })
  let pawl: ReturnType<typeof connect>
  beforeAll(async () => {
    fresh = await freshDatabase(18)
    database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
    pawl = connect()
    // whoever makes a lane first is waited for by others who need it
    await pawl.spawn(mail, to)
  })
  afterAll(async () => {
    await database.close()
    await fresh.close()
  })

  const begin = async (connectionString = fresh.connectionString) => {
    const client = new pg.Client({ connectionString })
    client.on('error', () => {})
    await client.connect()
    await client.query('BEGIN')
    onTestFinished(() => client.end())
    return client
  }
  const countRuns = async () =>
    (await fresh.pool({ max: 1 }).query('SELECT count(*)::int AS n FROM pawl.runs WHERE environment_id > 0')).rows[0].n

  test('C012 costs one request, on the caller’s connection alone', async () => {
    const client = await begin()
    let requests = 0
    const { query } = client
    client.query = ((...args: Parameters<typeof query>) => {
      requests += 1
      return query.apply(client, args)
    }) as typeof query
    const before = database.requests
    await pawl.spawn(mail, to, { tx: client, key: 'k', idempotencyKey: 'i' })
    expect([requests, database.requests - before]).toEqual([1, 0])
    const { items } = await pawl.spawnMany(
      Array.from({ length: 500 }, () => mail.with(to)),
      { tx: client },
    )
    expect(items).toHaveLength(500)
    expect(requests).toBe(2)
  })

  test.each([
    ['nothing', () => undefined],
    ['a text', () => 'tx'],
    ['a pool', () => fresh.pool({ max: 1 })],
    ['drizzle over a pool', () => drizzle(fresh.pool({ max: 1 }))],
    ['an embedded database', () => Object.create(PGlite.prototype)],
    ['a function that tags statements', () => Object.assign(() => {}, { query: () => {} })],
  ])('%s is refused by name', async (_, make) => {
    const tx = make() as unknown as CallerTransaction
    await expect(pawl.spawn(mail, to, { tx })).rejects.toMatchObject({ code: 'invalid_request', field: 'tx' })
    await expect(pawl.spawnMany([mail.with(to)], { tx })).rejects.toMatchObject({ code: 'invalid_request', field: 'tx' })
  })

  test('a connection without a transaction is refused, and nothing is written', async () => {
    const client = await begin()
    await client.query('ROLLBACK')
    const before = await countRuns()
    await expect(pawl.spawn(mail, to, { tx: client })).rejects.toMatchObject({
      code: 'invalid_request',
      field: 'tx',
      allowed: 'one in BEGIN',
    })
    expect(await countRuns()).toBe(before)
  })

  test('a database without the tables of pawl is refused as the wrong one', async () => {
    const other = await freshDatabase(18, { empty: true })
    onTestFinished(other.close)
    const client = await begin(other.connectionString)
    await expect(pawl.spawn(mail, to, { tx: client })).rejects.toMatchObject({ code: 'wrong_database', field: 'tx' })
    await client.end()
  })

  test('another database with the tables of pawl is refused once it is known which is pawl’s', async () => {
    await pawl.spawn(mail, to, { queue: 'new-lane' })
    const other = await freshDatabase(18)
    onTestFinished(other.close)
    const client = await begin(other.connectionString)
    await expect(pawl.spawn(mail, to, { tx: client })).rejects.toMatchObject({
      code: 'wrong_database',
      field: 'tx',
      got: other.name,
    })
    await client.end()
    const own = await begin()
    expect(await pawl.spawn(mail, to, { tx: own })).toMatchObject({ created: true })
  })

  test('another schema is another installation', async () => {
    const elsewhere = createPawl({ definitions: [mail], schema: 'elsewhere' }).connect({ database })
    const client = await begin()
    await expect(elsewhere.spawn(mail, to, { tx: client })).rejects.toMatchObject({ code: 'wrong_database' })
  })

  test('C012 a connection that breaks before the commit is no unknown outcome: nothing was written', async () => {
    const proxy = await startFaultProxy(fresh.connectionString)
    onTestFinished(proxy.close)
    const client = await begin(proxy.connectionString)
    const before = await countRuns()
    proxy.faults.dropRequest()
    await expect(pawl.spawn(mail, to, { tx: client })).rejects.toMatchObject({
      code: 'database_unreachable',
      kind: 'unreachable',
    })
    expect(await countRuns()).toBe(before)
  })

  test('C012 a spawn of the same key waits for it, and gets the key when it is rolled back', async () => {
    const client = await begin()
    const inside = await pawl.spawn(mail, to, { tx: client, key: 'contested' })
    const outside = pawl.spawn(mail, to, { key: 'contested' })
    await untilBlocked(fresh.connectionString, { queryMatches: /uniques/ })
    // nobody else waits
    expect(await pawl.spawn(mail, to, { key: 'another' })).toMatchObject({ created: true })
    await client.query('ROLLBACK')
    const { id, created } = await outside
    expect([created, id === inside.id]).toEqual([true, false])
  })
})
