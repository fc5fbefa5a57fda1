import { afterEach, describe, expect, test } from 'vitest'
import type { Budget } from '../../src/core/tick.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { type VercelHandlers, type VercelOptions, vercel } from '../../src/hosts/vercel.ts'
import { BUDGETS } from '../../src/worker/budgets.ts'
import { freshDatabase } from '../support/database.ts'
import { double, Gates, pawl } from './definitions.ts'

type Env = Readonly<Record<string, string>>

const KEY = 'root-key-of-the-tests'
const ORIGIN = 'https://function.example'

const cleanups: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

/** What was asked to go on after responses. */
class Afterwards {
  readonly work: Promise<unknown>[] = []
  readonly waitUntil = (work: Promise<unknown>): void => void this.work.push(work)

  async settled(): Promise<void> {
    for (const work of this.work) await work
    this.work.length = 0
  }
}

async function deploy(options: Partial<VercelOptions<Env>> = {}) {
  const fresh = await freshDatabase()
  const database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
  cleanups.push(fresh.close, () => database.close())
  const after = new Afterwards()
  const handlers = vercel<Env>(pawl, {
    database: () => database,
    env: { CRON_SECRET: 'cron-secret' },
    rootKey: () => KEY,
    waitUntil: after.waitUntil,
    ...options,
  })
  cleanups.push(() => after.settled())
  return { handlers, database, fresh, after }
}

async function call(of: VercelHandlers, method: 'GET' | 'POST', path: string, body?: unknown, key = KEY) {
  const request = new Request(`${ORIGIN}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const response = await of[method](request)
  return { status: response.status, body: JSON.parse((await response.text()) || 'null') }
}

const withLinger = (lingerMs: number) => {
  const budget: Budget = { ...BUDGETS['vercel-hobby'].kick, lingerMs }
  return { kick: budget, tick: budget, cron: budget }
}

describe('the Vercel host', () => {
  test('C250 answers a spawn at once and runs it after the response', async () => {
    const gates = new Gates()
    const { handlers, after } = await deploy({ services: () => ({ gates }), budget: withLinger(0) })
    const { status, body } = await call(handlers, 'POST', '/v1/runs', { definition: 'held', input: { gate: 'after' } })
    expect(status).toBe(201)
    await gates.reached('after')
    gates.open('after')
    await after.settled()
    expect((await call(handlers, 'GET', `/v1/runs/${body.id}`)).body).toMatchObject({ status: 'completed', result: 'after' })
  })

  test('stays for what becomes due within its lingering', async () => {
    const { handlers, after } = await deploy({ budget: withLinger(5_000) })
    const { body } = await call(handlers, 'POST', '/v1/runs', { definition: 'double', input: { n: 2 }, delay: '400ms' })
    await after.settled()
    expect((await call(handlers, 'GET', `/v1/runs/${body.id}`)).body).toMatchObject({ status: 'completed', result: 4 })
  })

  test('does not stay for what is due later', async () => {
    const { handlers, after } = await deploy({ budget: withLinger(1_000) })
    const { body } = await call(handlers, 'POST', '/v1/runs', { definition: 'double', input: { n: 2 }, delay: '1h' })
    await after.settled()
    expect((await call(handlers, 'GET', `/v1/runs/${body.id}`)).body).toMatchObject({ status: 'pending' })
  })

  test('a write that comes while a pass lingers is run by that pass', async () => {
    const { handlers, after } = await deploy({ budget: withLinger(2_000) })
    await call(handlers, 'POST', '/v1/runs', { definition: 'double', input: { n: 1 }, delay: '1500ms' })
    const { body } = await call(handlers, 'POST', '/v1/runs', { definition: 'double', input: { n: 3 } })
    const read = await call(handlers, 'GET', `/v1/runs/${body.id}?wait=20s`)
    expect(read.body).toMatchObject({ status: 'completed', result: 6 })
    await after.settled()
  })

  test('C245 the daily cron calls with its own secret, which may do nothing else', async () => {
    const { handlers, database } = await deploy({ budget: withLinger(0) })
    await pawl.connect({ database }).spawnMany([1, 2, 3].map((n) => double.with({ n })))
    expect((await call(handlers, 'GET', '/v1/tick', undefined, 'cron-secret')).body).toMatchObject({ completed: 3 })
    expect((await call(handlers, 'GET', '/v1/runs', undefined, 'cron-secret')).status).toBe(403)
    expect((await call(handlers, 'GET', '/v1/tick', undefined, 'another')).status).toBe(401)
  })

  test('C264 a hundred spawns of one instance share their ticks', async () => {
    const { handlers, database, fresh, after } = await deploy({ budget: withLinger(0) })
    const before = database.requests
    await Promise.all(
      Array.from({ length: 100 }, (_, n) => call(handlers, 'POST', '/v1/runs', { definition: 'double', input: { n } })),
    )
    await after.settled()
    const { rows } = await fresh.pool().query("SELECT count(*)::int AS n FROM pawl.runs WHERE status = 'completed'")
    expect(rows).toEqual([{ n: 100 }])
    expect(database.requests - before).toBeLessThan(200)
  })

  test('a preview deployment leaves the runs of production alone', async () => {
    const { handlers, database } = await deploy({
      env: { VERCEL_ENV: 'preview', CRON_SECRET: 'cron-secret' },
      budget: withLinger(0),
    })
    const production = pawl.connect({ database })
    const { id } = await production.spawn(double, { n: 1 })
    expect((await call(handlers, 'GET', '/v1/tick', undefined, 'cron-secret')).body).toMatchObject({ claimed: 0 })
    expect((await call(handlers, 'GET', `/v1/runs/${id}`)).status).toBe(404)
    expect(await production.run(id)).toMatchObject({ status: 'pending' })
  })

  test('where nothing keeps the function alive, the response waits for the work', async () => {
    const { handlers } = await deploy({ waitUntil: undefined, budget: withLinger(0) })
    const { body } = await call(handlers, 'POST', '/v1/runs', { definition: 'double', input: { n: 5 } })
    expect((await call(handlers, 'GET', `/v1/runs/${body.id}`)).body).toMatchObject({ status: 'completed', result: 10 })
  })

  test('refuses a secret that no header can bear', async () => {
    const { handlers } = await deploy({ rootKey: () => 'two words' })
    expect(await call(handlers, 'GET', '/v1/runs')).toMatchObject({ status: 500, body: { code: 'invalid_configuration' } })
  })
})
