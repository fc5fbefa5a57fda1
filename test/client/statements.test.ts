import { neon, neonConfig } from '@neondatabase/serverless'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { type BatchStatement, createPawl } from '../../src/index.ts'
import { type NeonEndpoint, startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import { TEST_BUDGET } from '../support/engine.ts'

const mail = job({ name: 'mail', input: z.object({ to: z.string() }), run: ({ input }) => input.to })
const order = machine({
  name: 'order',
  input: z.object({ order: z.number() }),
  state: z.object({ order: z.number() }),
  output: z.number(),
  signals: { paid: z.object({ cents: z.number() }) },
  key: ({ order: id }) => `order:${id}`,
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('paid', { goto: 'end' }),
    end: ({ signals, done }) => done(signals.first('paid')?.payload.cents ?? 0),
  },
})

describe('as statements of a batch over Neon HTTP', () => {
  let fresh: FreshDatabase
  let endpoint: NeonEndpoint
  let sql: ReturnType<typeof neon>
  let kicks = 0
  let app: ReturnType<typeof connect>

  const connect = () => {
    const database = neonHttp(endpoint.connectionString, { endpoint: endpoint.httpUrl })
    const onCommit = () => {
      kicks += 1
    }
    const pawl = createPawl({ definitions: [mail, order] }).connect({ database, onCommit })
    const ticker = pawl.createTicker({ budget: TEST_BUDGET })
    return { pawl, tick: () => ticker.tick('test') }
  }
  const queries = (statements: readonly BatchStatement[]) => statements.map(({ text, params }) => sql.query(text, params))
  const insert = (id: number) => sql.query('INSERT INTO orders VALUES ($1)', [id])
  const countOrders = async () => ((await sql.query('SELECT count(*)::int AS n FROM orders')) as { n: number }[])[0]?.n
  const countRuns = async () => ((await sql.query('SELECT count(*)::int AS n FROM pawl.runs')) as { n: number }[])[0]?.n

  beforeAll(async () => {
    fresh = await freshDatabase(18)
    endpoint = await startNeonEndpoint({ target: fresh.connectionString })
    neonConfig.fetchEndpoint = () => endpoint.httpUrl
    sql = neon(endpoint.connectionString)
    await sql.query('CREATE TABLE orders (id int PRIMARY KEY)')
    app = connect()
  })
  afterAll(async () => {
    await endpoint.close()
    await fresh.close()
  })

  test('C012 the run is there with the caller’s own rows, in the caller’s one request', async () => {
    const ours = await app.pawl.statements.spawn(mail, { to: 'a' }, { idempotencyKey: 'a' })
    const before = endpoint.requests
    const results = await sql.transaction([insert(1), ...queries(ours.statements)])
    expect(endpoint.requests - before).toBe(1)
    expect(ours.read(results.slice(1) as object[][])).toEqual({ id: ours.id, status: 'pending', created: true, replayed: false })
    ours.afterCommit()
    expect(kicks).toBe(1)
    await app.tick()
    expect(await app.pawl.result(mail, ours.id)).toMatchObject({ status: 'completed', result: 'a' })
    expect(await app.pawl.reconcile({ idempotencyKey: 'a' })).toMatchObject({ kind: 'run', id: ours.id })
  })

  test('C012 C135 a batch that fails leaves no run and no signal', async () => {
    const target = await app.pawl.spawn(order, { order: 1 })
    await app.tick()
    const runs = await countRuns()
    const run = await app.pawl.statements.spawn(mail, { to: 'b' })
    const signal = await app.pawl.statements.signal({ id: target.id }, 'paid', { cents: 1 })
    const failing = sql.transaction([...queries(run.statements), ...queries(signal.statements), insert(1)])
    await expect(failing).rejects.toThrow(/orders_pkey/)
    expect(await countRuns()).toBe(runs)
    expect(await app.tick()).toMatchObject({ claimed: 0 })
    expect((await app.pawl.run(target.id)).status).toBe('waiting')
  })

  test('C135 a signal is delivered with it, by key', async () => {
    const target = await app.pawl.spawn(order, { order: 2 })
    await app.tick()
    const ours = await app.pawl.statements.signal({ key: 'order:2', definition: order }, 'paid', { cents: 5 })
    const results = await sql.transaction([...queries(ours.statements), insert(2)])
    expect(ours.read(results.slice(0, ours.statements.length) as object[][])).toMatchObject({ runId: target.id, replayed: false })
    await app.tick()
    expect(await app.pawl.result(order, target.id)).toMatchObject({ status: 'completed', result: 5 })
  })

  test('a key that is taken answers its run, and a request sent again what it came to', async () => {
    const holder = await app.pawl.spawn(order, { order: 3 })
    const ours = await app.pawl.statements.spawn(order, { order: 3 }, { idempotencyKey: 'c' })
    const answer = { id: holder.id, created: false }
    expect(ours.read((await sql.transaction(queries(ours.statements))) as object[][])).toMatchObject({
      ...answer,
      replayed: false,
    })
    const again = await app.pawl.statements.spawn(order, { order: 3 }, { idempotencyKey: 'c' })
    expect(again.read((await sql.transaction(queries(again.statements))) as object[][])).toMatchObject({
      ...answer,
      replayed: true,
    })
  })

  test('what the call is refused for fails the batch, and is told by name', async () => {
    const orders = await countOrders()
    const codeOf = async (
      statements: readonly BatchStatement[],
      isolationLevel: 'ReadCommitted' | 'RepeatableRead' = 'ReadCommitted',
    ) => {
      const sending = sql.transaction([insert(9), ...queries(statements)], { isolationLevel })
      const thrown = await sending.then(
        () => undefined,
        (error: unknown) => error,
      )
      const { code, field } = app.pawl.statements.explain(thrown) as { code: string; field: string }
      return [code, field]
    }
    await app.pawl.spawn(mail, { to: 'd' }, { idempotencyKey: 'd' })
    const other = await app.pawl.statements.spawn(mail, { to: 'e' }, { idempotencyKey: 'd' })
    expect(await codeOf(other.statements)).toEqual(['idempotency_mismatch', 'idempotencyKey'])
    const nobody = await app.pawl.statements.signal({ key: 'order:none' }, 'paid', { cents: 1 })
    expect(await codeOf(nobody.statements)).toEqual(['no_target', 'to'])
    const fine = await app.pawl.statements.spawn(mail, { to: 'f' })
    expect(await codeOf(fine.statements, 'RepeatableRead')).toEqual(['invalid_request', 'isolation'])
    const [lock] = fine.statements
    const alone = await sql.query(lock?.text ?? '', []).catch((error: unknown) => error)
    expect(app.pawl.statements.explain(alone)).toMatchObject({ code: 'invalid_request', field: 'tx', allowed: 'one in BEGIN' })
    expect(await countOrders()).toBe(orders)
    const foreign = new Error('not ours')
    expect(app.pawl.statements.explain(foreign)).toBe(foreign)
  })
})
