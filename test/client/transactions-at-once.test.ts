import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createPawl, type Database } from '../../src/index.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { TEST_BUDGET } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'

const perCustomer = limit('per-customer', { concurrency: 2, shards: 2 })
const anything = z.object({ n: z.number(), customer: z.string().default('c') })
const definitions = [
  job({ name: 'plain', input: anything, run: ({ input }) => input.n }),
  job({
    name: 'once',
    input: anything,
    unique: { by: ['customer'] },
    run: ({ input }) => input.n,
  }),
  job({
    name: 'gated',
    input: anything,
    limits: [perCustomer.by((input: { customer: string }) => input.customer)],
    run: ({ input }) => input.n,
  }),
  job({ name: 'soon', input: anything, debounce: { by: ['customer'], wait: '1s' }, run: ({ input }) => input.n }),
  job({ name: 'lots', input: z.array(z.number()), batch: { wait: '1s', size: 100 }, run: ({ input }) => input }),
] as const
const [plain, once, gated, soon, lots] = definitions

forEachVersion('several transactions of callers at once', (version) => {
  let fresh: FreshDatabase
  let database: Database
  const connect = () => createPawl({ definitions }).connect({ database })
  let pawl: ReturnType<typeof connect>
  beforeAll(async () => {
    fresh = await freshDatabase(version)
    database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
    pawl = connect()
    // lanes that are there: who makes one is waited for
    for (const definition of [plain, once, gated, soon])
      await pawl.spawn(definition, { n: 0, customer: `first-${definition.name}` })
    await pawl.spawn(lots, [0])
    await tick()
  })
  afterAll(async () => {
    await database.close()
    await fresh.close()
  })

  const tick = () => pawl.createTicker({ budget: TEST_BUDGET }).tick('test')
  const begin = async () => {
    const client = new pg.Client({ connectionString: fresh.connectionString })
    client.on('error', () => {})
    await client.connect()
    await client.query('BEGIN')
    onTestFinished(() => client.end())
    return client
  }
  const sql = async <T>(text: string, params: readonly unknown[] = []) =>
    (await fresh.pool({ max: 1 }).query({ text, values: [...params], rowMode: 'array' })).rows.map((row) => row[0] as T)
  const waiting = (count = 1) => untilBlocked(fresh.connectionString, { queryMatches: /uniques|receipts/ }, count)
  /** What is there of a kind, whichever way one looks. */
  const truth = async (customer: string) => ({
    runs: await sql<string>(`SELECT id FROM pawl.runs WHERE input ->> 'customer' = $1 ORDER BY id`, [customer]),
    ready: await sql<number>(
      `SELECT count(*)::int FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id WHERE r.input ->> 'customer' = $1`,
      [customer],
    ),
    orphans: await sql<string>(
      'SELECT u.token FROM pawl.uniques u WHERE u.environment_id > 0 AND NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = u.run_id)',
    ),
  })

  /** In a transaction, or outside of any. */
  const spawning = (
    definition: typeof plain | typeof once,
    tx: pg.Client | undefined,
    name: string,
    options: { readonly key?: string; readonly idempotencyKey?: string } = {},
  ) => {
    const input = { n: 1, customer: name }
    return tx ? pawl.spawn(definition, input, { ...options, tx }) : pawl.spawn(definition, input, options)
  }

  const WAYS = [
    ['a key', (tx: pg.Client | undefined, name: string) => spawning(plain, tx, name, { key: name })],
    ['an idempotency key', (tx: pg.Client | undefined, name: string) => spawning(plain, tx, name, { idempotencyKey: name })],
    ['a unique input', (tx: pg.Client | undefined, name: string) => spawning(once, tx, name)],
    ['all three', (tx: pg.Client | undefined, name: string) => spawning(once, tx, name, { key: name, idempotencyKey: name })],
  ] as const

  test.each(WAYS)(
    'C012 two open transactions that want %s: the second one waits, and has the run of the first, or makes it',
    async (way, spawn) => {
      for (const verb of ['COMMIT', 'ROLLBACK']) {
        const name = `${way}-${verb}-${version}`
        const [one, other] = [await begin(), await begin()]
        const first = await spawn(one, name)
        const waits = spawn(other, name)
        await waiting()
        await one.query(verb)
        const second = await waits
        expect(first).toMatchObject({ created: true, replayed: false })
        expect(second.id === first.id).toBe(verb === 'COMMIT')
        await other.query('COMMIT')
        expect(await truth(name)).toEqual({ runs: [second.id], ready: [1], orphans: [] })
        expect(await spawn(undefined, name)).toMatchObject({ id: second.id })
      }
      await tick()
    },
  )

  test.each(WAYS)(
    'C012 a savepoint that held %s, rolled back to while others wait for it, leaves it to them',
    async (way, spawn) => {
      const name = `${way}-savepoint-${version}`
      const [one, other] = [await begin(), await begin()]
      await one.query('SAVEPOINT a')
      const first = await spawn(one, name)
      const inOther = spawn(other, name)
      const outside = spawn(undefined, name)
      await waiting(2)
      await one.query('ROLLBACK TO SAVEPOINT a')
      // who was first of the two is not ours to say
      const committing = inOther.then(() => other.query('COMMIT'))
      const [left, right] = await Promise.all([inOther, outside, committing])
      expect([left.id, left.id === first.id]).toEqual([right.id, false])
      // and it is told so in the transaction that has lost it
      expect(await spawn(one, name)).toMatchObject({ id: left.id })
      await one.query('COMMIT')
      expect(await truth(name)).toEqual({ runs: [left.id], ready: [1], orphans: [] })
      await tick()
    },
  )

  test('C012 gates that a rolled back transaction has minted are minted again, whole', async () => {
    const customer = `minted-${version}`
    const [one, other] = [await begin(), await begin()]
    await pawl.spawn(gated, { n: 1, customer }, { tx: one })
    // nobody waits for the one who mints
    await pawl.spawn(gated, { n: 2, customer }, { tx: other })
    await pawl.spawn(gated, { n: 3, customer })
    await one.query('ROLLBACK')
    await other.query('COMMIT')
    const { claimed, completed } = await tick()
    expect([claimed, completed]).toEqual([2, 2])
    expect((await truth(customer)).runs).toHaveLength(2)
    const counters = await sql<string>(
      `SELECT shard || ':' || held FROM pawl.limit_counters WHERE gate LIKE '%' || $1 ORDER BY shard`,
      [customer],
    )
    expect(counters).toEqual(['0:0', '1:0'])
  })

  test('C012 what a savepoint has minted and gathered is gone with it, and the rest counts once', async () => {
    const customer = `gathered-${version}`
    const one = await begin()
    await pawl.spawn(lots, [1], { tx: one, tags: [customer] })
    await one.query('SAVEPOINT a')
    const gone = await pawl.spawn(lots, [2, 3], { tx: one })
    await pawl.spawn(gated, { n: 1, customer }, { tx: one })
    await one.query('ROLLBACK TO SAVEPOINT a')
    const kept = await pawl.spawn(lots, [4], { tx: one, idempotencyKey: customer })
    expect(await pawl.spawn(lots, [4], { tx: one, idempotencyKey: customer })).toMatchObject({ id: kept.id, replayed: true })
    expect(kept.id).toBe(gone.id)
    await one.query('COMMIT')
    expect(await sql('SELECT input FROM pawl.runs WHERE id = $1', [kept.id])).toEqual([[1, 4]])
    expect((await truth(customer)).runs).toEqual([])
    await pawl.cancel(kept.id)
  })

  test('C012 spawns at once of one debounced kind in two transactions and outside make one run, with what was committed last', async () => {
    const customer = `soon-${version}`
    const [one, other] = [await begin(), await begin()]
    const first = await pawl.spawn(soon, { n: 1, customer }, { tx: one })
    const second = pawl.spawn(soon, { n: 2, customer }, { tx: other })
    const third = pawl.spawn(soon, { n: 3, customer })
    await waiting(2)
    await one.query('ROLLBACK')
    const committing = second.then(() => other.query('COMMIT'))
    const answers = await Promise.all([second, third, committing])
    const { runs, orphans } = await truth(customer)
    expect([runs, orphans]).toEqual([[answers[0].id], []])
    expect(answers[1].id).toBe(answers[0].id)
    expect(first.id).not.toBe(answers[0].id)
    await pawl.cancel(answers[0].id)
  })

  test('C012 after an error in it a transaction is refused by name, until it goes back to a savepoint', async () => {
    const customer = `error-${version}`
    const one = await begin()
    await pawl.spawn(plain, { n: 1, customer }, { tx: one, key: customer })
    await one.query('SAVEPOINT a')
    await one.query('SELECT 1 / 0').catch(() => {})
    for (const attempt of [
      () => pawl.spawn(plain, { n: 2, customer }, { tx: one }),
      () => pawl.spawnMany([plain.with({ n: 2, customer })], { tx: one }),
    ])
      await expect(attempt()).rejects.toMatchObject({
        code: 'invalid_request',
        field: 'tx',
        got: 'a transaction that has failed',
      })
    await one.query('ROLLBACK TO SAVEPOINT a')
    await pawl.spawn(plain, { n: 3, customer }, { tx: one })
    expect(await pawl.spawn(plain, { n: 4, customer }, { tx: one, key: customer })).toMatchObject({ created: false })
    await one.query('COMMIT')
    expect(await truth(customer)).toMatchObject({ runs: { length: 2 }, ready: [2], orphans: [] })
    await tick()
  })

  test('C012 a transaction whose statement was timed out, or that was killed, leaves nothing and says what happened', async () => {
    const customer = `timeout-${version}`
    const [one, other] = [await begin(), await begin()]
    await pawl.spawn(plain, { n: 1, customer }, { tx: one, key: customer })
    await other.query("SET LOCAL statement_timeout = '50ms'")
    const timedOut = pawl.spawn(plain, { n: 2, customer }, { tx: other, key: customer })
    await expect(timedOut).rejects.toMatchObject({ code: 'database_busy' })
    await expect(pawl.spawn(plain, { n: 3, customer }, { tx: other })).rejects.toMatchObject({ code: 'invalid_request' })
    await other.query('ROLLBACK')
    const { rows } = await one.query('SELECT pg_backend_pid() AS pid')
    const outside = pawl.spawn(plain, { n: 4, customer }, { key: customer })
    await waiting()
    await sql('SELECT pg_terminate_backend($1)', [rows[0].pid])
    const made = await outside
    expect(made).toMatchObject({ created: true })
    await expect(pawl.spawn(plain, { n: 5, customer }, { tx: one })).rejects.toMatchObject({ kind: 'unreachable' })
    expect(await truth(customer)).toEqual({ runs: [made.id], ready: [1], orphans: [] })
    await tick()
  })

  test('C012 two transactions that take keys in opposite orders: one is ended and told to begin again, and nothing of it is left', async () => {
    const customer = `crossed-${version}`
    const [one, other] = [await begin(), await begin()]
    const spawn = (tx: pg.Client, n: number) => pawl.spawn(plain, { n, customer }, { tx, key: `${customer}-${n}` })
    await spawn(one, 1)
    await spawn(other, 2)
    const settled = await Promise.allSettled([
      spawn(one, 2).then(
        () => one.query('COMMIT'),
        async (error) => {
          await one.query('ROLLBACK')
          throw error
        },
      ),
      spawn(other, 1).then(
        () => other.query('COMMIT'),
        async (error) => {
          await other.query('ROLLBACK')
          throw error
        },
      ),
    ])
    const refused = settled.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []))
    expect(refused).toEqual([expect.objectContaining({ code: 'database_busy' })])
    expect(await truth(customer)).toMatchObject({ runs: { length: 2 }, ready: [2], orphans: [] })
    await tick()
  })
})
