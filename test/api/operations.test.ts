import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { createClient } from '../../src/client/http-client.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { cron } from '../../src/core/trigger.ts'
import { moment, startEngine } from '../support/engine.ts'
import { type ApiSubject, apiSubject, ROOT_KEY, sendTo } from './subject.ts'

interface Stats {
  readonly now: string
  readonly total: number
  readonly due: number
  readonly exact: boolean
  readonly byStatus: Readonly<Record<string, number>>
  readonly queues: readonly Readonly<Record<string, unknown>>[]
}

describe('operations', () => {
  let subject: ApiSubject
  beforeEach(async () => {
    subject = await apiSubject(18, { frozen: true })
  })
  afterEach(() => subject.close())

  const spawn = async (definition: string, rest: object) =>
    String((await subject.send('POST', '/v1/runs', { body: { definition, ...rest } })).body.id)
  const stats = async () => (await sendTo(subject.appWith({}), 'GET', '/v1/stats')).body as unknown as Stats

  test('C184 C185 counts of one snapshot sum up to what there is; due is what could be claimed now, and nothing of the future', async () => {
    const { send, engine } = subject
    const input = { name: 'you' }
    await spawn('greet', { input })
    await spawn('order', { input: { order: 1 } })
    await spawn('fails', {})
    await send('POST', '/v1/tick')
    const oldest = engine.clock()
    await spawn('greet', { input })
    engine.advance(60_000)
    await spawn('greet', { input })
    await spawn('greet', { input, delay: '1d' })
    const held = await spawn('greet', { input })
    await send('POST', `/v1/runs/${held}/pause`)
    const cancelled = await spawn('greet', { input, delay: '2d' })
    await send('POST', `/v1/runs/${cancelled}/cancel`)
    const before = await stats()
    expect(before).toMatchObject({
      exact: true,
      total: 8,
      due: 2,
      byStatus: { pending: 4, waiting: 1, completed: 1, failed: 1, cancelled: 1, running: 0 },
    })
    expect(Object.values(before.byStatus).reduce((sum, n) => sum + n, 0)).toBe(
      (await engine.sql<number>('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0'))[0],
    )
    const hellos = before.queues.find(({ name }) => name === 'hellos')
    expect(hellos).toMatchObject({ depth: 4, due: 2, ready: 2, delayed: 1, held: 1, running: 0, blocked: 0, paused: false })
    expect(hellos?.oldestDueAt).toBe(new Date(oldest).toISOString())
    expect(hellos?.oldestDueAge).toBe('1m')
    // an hour of waiting is over, and is due work that no tick has seen; a paused queue has none
    engine.advance(3_600_000)
    const late = await stats()
    expect([late.due, late.queues.find(({ name }) => name === 'default')]).toMatchObject([3, { due: 1, oldestDueAge: '1m' }])
    await send('POST', '/v1/queues/hellos/pause')
    const paused = await stats()
    expect(paused.due).toBe(1)
    expect(paused.queues.find(({ name }) => name === 'hellos')).toMatchObject({
      ...{ paused: true, due: 0, depth: 4 },
      ...{ oldestDueAt: null, oldestDueAge: null },
    })
    expect((await send('GET', '/v1/queues')).body.items).toEqual(paused.queues)
  })

  test('C188 C264 health says when the last tick was and from where, and flags one that is missed', async () => {
    const { engine } = subject
    const health = async () => (await sendTo(subject.appWith({}), 'GET', '/healthz', { key: null })).body
    await spawn('greet', { input: { name: 'you' } })
    expect(await health()).toMatchObject({ lastTickAt: null, tickIsStale: false })
    engine.advance(130_000)
    expect(await health()).toMatchObject({ lastTickAt: null, tickIsStale: true, oldestDueAge: '130s' })
    await subject.send('POST', '/v1/tick', { key: 'cron-secret-of-the-tests' })
    const tickedAt = new Date(engine.clock()).toISOString()
    expect(await health()).toMatchObject({ lastTickAt: tickedAt, lastTickSource: 'cron', tickIsStale: false, oldestDueAt: null })
    // nothing is due: nobody missed anything
    engine.advance(3_600_000)
    expect(await health()).toMatchObject({ lastTickAt: tickedAt, tickIsStale: false })
    await spawn('greet', { input: { name: 'you' } })
    engine.advance(121_000)
    expect(await health()).toMatchObject({ lastTickAt: tickedAt, tickIsStale: true })
  })

  test('C184 C188 the typed client and the calls in process tell the same; a tenant is told of its own', async () => {
    const { engine } = subject
    await spawn('greet', { input: { name: 'you' } })
    await spawn('greet', { input: { name: 'you' }, delay: '1d' })
    engine.advance(130_000)
    // an API of its own: what it has read once is told for a minute
    const app = subject.appWith({})
    const client = createClient({
      url: 'http://api.test',
      key: ROOT_KEY,
      fetch: async (url, init) => app.request(url.replace('http://api.test', ''), init),
    })
    const calls = createCalls({ store: engine.store, registry: engine.registry })
    const overHttp = await client.stats()
    const inProcess = await calls.stats()
    expect(overHttp).toMatchObject({ exact: true, total: 2, due: 1, byStatus: { pending: 2 } })
    expect(inProcess).toMatchObject({ exact: true, total: 2, due: 1, byStatus: overHttp.byStatus, now: engine.clock() })
    expect(await client.queues()).toEqual(overHttp.queues)
    const [ours, theirs] = [inProcess, overHttp].map(({ queues }) => queues.find(({ name }) => name === 'hellos'))
    expect(theirs).toMatchObject({ depth: 2, due: 1, delayed: 1, paused: false, oldestDueAge: '130s' })
    expect(ours).toMatchObject({ depth: 2, due: 1, delayed: 1, paused: false, oldestDueAt: engine.clock() - 130_000 })
    expect(inProcess.queues.map(({ name }) => name)).toEqual(overHttp.queues.map(({ name }) => name))
    expect(await calls.stats({ tenant: 'other' })).toMatchObject({ total: 0, due: 0 })
    expect(await client.health()).toMatchObject({ status: 'ok', tickIsStale: true, lastTickAt: null, oldestDueAge: '130s' })
    expect(await calls.health()).toMatchObject({ tickIsStale: true, lastTickAt: null, oldestDueAt: engine.clock() - 130_000 })
    await engine.sql('UPDATE pawl.meta SET min_build = 1000 RETURNING 1')
    await expect(calls.health()).rejects.toMatchObject({ code: 'schema_newer' })
  })
})

describe('health', () => {
  test('C188 C264 flags a tick that is missed by those who wait for tokens, and by a schedule', async () => {
    const slow = job({
      name: 'slow',
      input: z.number(),
      limits: [limit('slow', { rate: { count: 1, per: '1m' } })],
      run: () => null,
    })
    const daily = job({ name: 'daily', triggers: [cron('0 3 * * *', { name: 'daily' })], run: () => null })
    for (const [definition, untilDueMs] of [
      [slow, 60_000],
      [daily, 86_400_000],
    ] as const) {
      const subject = await apiSubject(18, { definitions: [definition], frozen: true })
      const { engine } = subject
      const health = async () => (await sendTo(subject.appWith({}), 'GET', '/healthz', { key: null })).body
      await engine.tick()
      engine.advance(61_000)
      if (definition === slow) await engine.spawnMany('slow', [1, 2])
      await engine.tick()
      expect(await health()).toMatchObject({ tickIsStale: false, lastTickSource: 'test', oldestDueAt: null })
      engine.advance(untilDueMs)
      engine.advance(121_000)
      expect((await health()).tickIsStale).toBe(true)
      await engine.tick()
      expect(await health()).toMatchObject({ tickIsStale: false, oldestDueAt: null })
      await subject.close()
    }
  })
})

describe('ticks from many sources', () => {
  test('C264 five at once start no run twice, and idle ones cost one request each', async () => {
    const started = new Map<number, number>()
    const all = moment()
    const count = job({
      name: 'count',
      input: z.number(),
      run: async ({ input }) => {
        started.set(input, (started.get(input) ?? 0) + 1)
        if (started.size === 200) all.happen()
        await all.promise
      },
    })
    const options = { definitions: [count], budget: { batch: 40, concurrency: 40 } }
    const first = await startEngine(options)
    const engines = [first, ...(await Promise.all([1, 2, 3, 4].map(() => startEngine({ ...options, on: first.fresh }))))]
    await first.tick()
    await first.spawnMany(
      'count',
      Array.from({ length: 200 }, (_, n) => n),
    )
    const sources = ['kick', 'cron', 'alarm', 'relay', 'loop']
    const reports = await Promise.all(engines.map((engine, index) => engine.ticker.tick(sources[index] ?? '')))
    expect(reports.map(({ claimed }) => claimed)).toEqual(Array(5).fill(40))
    expect([...started.values()].every((times) => times === 1)).toBe(true)
    expect(started.size).toBe(200)
    const before = engines.map(({ database }) => database.requests)
    await Promise.all(engines.map((engine, index) => engine.ticker.tick(sources[index] ?? '')))
    expect(engines.map(({ database }, index) => database.requests - (before[index] ?? 0))).toEqual(Array(5).fill(1))
    for (const engine of engines.slice(1)) await engine.close()
    await first.close()
  })
})
