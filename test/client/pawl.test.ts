import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import type { Pawl } from '../../src/client/create-pawl.ts'
import type { Budget } from '../../src/core/tick.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'
import { createPawl, type Database, job, limit, machine } from '../../src/index.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { mail, order } from './subject.ts'

const BUDGET: Budget = { wallMs: 30_000, requests: 1_000, concurrency: 10, batch: 10, lanes: 1, lingerMs: 0 }

const greet = job({
  name: 'greet',
  input: z.object({ name: z.string() }),
  run: ({ input, run, services }) => ({
    text: `${(services as { word: string }).word} ${input.name}`,
    trace: run.headers.traceparent ?? null,
  }),
})
const refuse = job({ name: 'refuse', retry: 'none', run: ({ fail }) => fail('never') })
const approval = machine({
  name: 'approval',
  state: z.object({ by: z.string().optional() }),
  signals: { approved: z.object({ by: z.string() }) },
  output: z.object({ by: z.string() }),
  key: () => 'approval:1',
  initial: 'ask',
  steps: {
    ask: ({ waitFor }) => waitFor('approved', { goto: 'end' }),
    end: ({ signals, done }) => done({ by: signals.first('approved')?.payload.by ?? 'nobody' }),
  },
})

forEachVersion('a pawl', (version) => {
  let fresh: FreshDatabase
  let database: Database
  const pawl = createPawl({ definitions: [greet, refuse, approval] })
  const connect = (options = {}) => pawl.connect({ database, services: { word: 'hello' }, ...options })
  const runAll = () => connect().createTicker({ budget: BUDGET }).tick('test')
  beforeAll(async () => {
    fresh = await freshDatabase(version)
    database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
  })
  afterAll(async () => {
    await database.close()
    await fresh.close()
  })

  test('C027 runs what was spawned, gives the handler the headers and the services, and tells the typed result', async () => {
    const now = connect()
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    const { id } = await now.spawn(greet, { name: 'ada' }, { headers: { traceparent } })
    expect(await now.result(greet, id)).toEqual({ id, status: 'pending' })
    await runAll()
    const result = await now.result(greet, id, { wait: '1s' })
    expect(result).toEqual({ id, status: 'completed', result: { text: 'hello ada', trace: traceparent } })
    expect((await now.run(id)).headers).toEqual({ traceparent })
  })

  test('tells why a run failed, also where its definition is not named', async () => {
    const now = connect()
    const { id } = await now.spawn(refuse)
    await runAll()
    expect(await now.result(id)).toMatchObject({ id, status: 'failed', error: { code: 'failed', message: 'never' } })
    await expect(now.result(greet, id)).rejects.toMatchObject({ code: 'not_found', got: 'refuse' })
    expect(await now.retry(id)).toEqual({ id, status: 'pending', did: 'retried' })
    expect(await now.cancel(id)).toMatchObject({ did: 'cancelled' })
    expect(await now.result(id)).toMatchObject({ status: 'cancelled', error: { code: expect.any(String) } })
  })

  test('a bulk change whose filter has a member that nobody knows changes nothing, and says which', async () => {
    const now = connect()
    const { id } = await now.spawn(refuse, null, { delay: '1h' })
    const filter = { definition: 'refuse', tagg: 'mistyped' } as { definition: string }
    await expect(now.changeMany({ action: 'cancel', filter })).rejects.toMatchObject({ code: 'invalid_request', got: '"tagg"' })
    expect(await now.result(id)).toMatchObject({ status: 'pending' })
    await now.cancel(id)
  })

  test('deadlines of a call are those of the run, spawned alone or as one of many', async () => {
    const now = connect()
    const deadlines = { maxDuration: '2h', startWithin: '1h', progressWithin: '30m' } as const
    const [many] = await now.spawnMany([refuse.with(null, deadlines)])
    const one = await now.spawn(refuse, null, deadlines)
    const pool = fresh.pool({ max: 1 })
    for (const id of [one.id, many?.ok ? many.value.id : '']) {
      const { rows } = await pool.query('SELECT policy FROM pawl.runs WHERE id = $1', [id])
      expect(rows).toEqual([{ policy: { maxTotalMs: 7_200_000, maxWaitMs: 3_600_000, maxIdleMs: 1_800_000 } }])
    }
  })

  test('C116 a signal sent by key and definition wakes the run that waits for it', async () => {
    const now = connect()
    const { id } = await now.spawn(approval, {})
    await runAll()
    expect(await now.result(approval, id)).toEqual({ id, status: 'waiting' })
    await now.signal({ key: 'approval:1', definition: approval }, 'approved', { by: 'bob' })
    await runAll()
    expect(await now.result(approval, id)).toEqual({ id, status: 'completed', result: { by: 'bob' } })
  })

  test('C205 spawns many calls made by `with`', async () => {
    const now = connect()
    const items = await now.spawnMany([
      greet.with({ name: 'a' }, { delay: '1h', tags: ['many'] }),
      { definition: 'greet', input: { name: 7 } },
      greet.with({ name: 'b' }),
    ])
    expect(items.map((item) => (item.ok ? item.value.created : item.error.code))).toEqual([true, 'invalid_input', true])
    const first = items[0]?.ok ? await now.run(items[0].value.id) : undefined
    expect(first).toMatchObject({ tags: ['many'], version: 1 })
    expect((first?.scheduledFor ?? 0) - (first?.createdAt ?? 0)).toBe(3_600_000)
  })

  test('the environment of the connection keeps runs apart', async () => {
    const staging = connect({ environment: 'staging' })
    const { id } = await staging.spawn(greet, { name: 'eve' })
    await runAll()
    expect(await staging.result(greet, id)).toEqual({ id, status: 'pending' })
    await expect(connect().run(id)).rejects.toMatchObject({ code: 'not_found' })
  })

  test('tells the host when something may be due', async () => {
    let commits = 0
    const now = connect({ onCommit: () => (commits += 1) })
    await now.spawn(greet, { name: 'x' })
    expect(commits).toBe(1)
  })

  test('with a database of its own its calls work at once', async () => {
    const own = createPawl({ definitions: [greet], database, environment: 'own' })
    const { id } = await own.spawn(greet, { name: 'own' })
    expect(await own.result(greet, id)).toEqual({ id, status: 'pending' })
  })

  test('C223 pawls over two schemas of one database do not see each other', async () => {
    await migrate(database, { schema: 'second' })
    const second = createPawl({ definitions: [greet], database, schema: 'second' })
    const { id } = await second.spawn(greet, { name: 'two' })
    await runAll()
    expect(await second.result(greet, id)).toEqual({ id, status: 'pending' })
    await expect(connect().run(id)).rejects.toMatchObject({ code: 'not_found' })
    await second
      .connect({ database, services: { word: 'hi' } })
      .createTicker({ budget: BUDGET })
      .tick('test')
    expect(await second.result(greet, id)).toMatchObject({ status: 'completed', result: { text: 'hi two' } })
  })

  test('without the schema it says to migrate', async () => {
    const lost = createPawl({ definitions: [greet], database, schema: 'nowhere' })
    await expect(lost.spawn(greet, { name: 'x' })).rejects.toMatchObject({ code: 'schema_outdated' })
    await expect(lost.spawn(greet, { name: 'x' })).rejects.toThrow(/pawl migrate/)
  })
})

describe('createPawl', () => {
  test('without a database its calls say what to do', async () => {
    const pawl = createPawl({ definitions: [mail] })
    const calls = [
      () => pawl.spawn(mail, { to: 'a@example.org' }),
      () => pawl.spawnMany([]),
      () => createPawl({ definitions: [order] }).signal({ id: 'x' }, 'paid', { cents: 1 }),
      () => pawl.result('x'),
      () => pawl.cancel('x'),
      () => pawl.retry('x'),
      () => pawl.run('x'),
    ]
    for (const call of calls) await expect(call()).rejects.toMatchObject({ code: 'not_connected' })
    await expect(pawl.run('x')).rejects.toThrow(/createPawl\(\{ database \}\)/)
  })

  test('C030 the retry that it is given by default is the one of definitions that say none', () => {
    const pawl: Pawl<readonly [typeof mail, typeof order]> = createPawl({
      definitions: [mail, order],
      defaults: { retry: { maxAttempts: 4 } },
    })
    expect(pawl.registry.find('mail')?.retry.maxAttempts).toBe(4)
    expect(pawl.registry.find('order')?.retry.maxAttempts).toBe(3)
  })

  test.each(['key', 'queue:orders'])('refuses a limit named %s, which pawl uses itself', (name) => {
    const limited = job({ name: 'limited', limits: [limit(name, { concurrency: 2 })], run: () => null })
    expect(() => createPawl({ definitions: [limited] })).toThrow(expect.objectContaining({ code: 'invalid_configuration' }))
  })

  test('refuses two definitions of one name and version', () => {
    expect(() => createPawl({ definitions: [mail, mail] })).toThrow(/declared twice/)
  })
})
