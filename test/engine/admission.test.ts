import { afterEach, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { toCall } from '../../src/core/definition.ts'
import { job } from '../../src/core/job.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import { forEachVersion } from '../support/database.ts'
import { type EngineOptions, newRun, sharedEngines } from '../support/engine.ts'
import { echo } from './definitions.ts'

const order: unknown[] = []
const noted = job({
  name: 'noted',
  input: z.unknown(),
  run: ({ input }) => {
    order.push(input)
    return null
  },
})
const reports = job({ name: 'reports', queue: 'slow', run: () => 'done' })

forEachVersion('spawning', (version) => {
  const engines = sharedEngines(version)
  const start = (options: Partial<EngineOptions> = {}) => engines.start({ definitions: [echo, noted, reports], ...options })
  afterEach(() => {
    order.length = 0
  })

  test('C001 a spawned run has an id and is pending with attempt 0', async () => {
    const engine = await start()
    const admission = await engine.spawn('echo', { a: 1 })
    expect(admission).toMatchObject({ kind: 'created', status: 'pending', id: expect.stringMatching(/^[0-9a-f-]{36}$/) })
    const id = admission.kind === 'created' ? admission.id : ''
    expect(await engine.run(id)).toMatchObject({ id, status: 'pending', attempt: 0, step: 'run', input: { a: 1 }, result: null })
  })

  test('C002 after a tick the run is completed with exactly its result', async () => {
    const engine = await start()
    const value = { list: [1, 2.5, 'é', null, true], deep: { empty: {}, none: [] }, big: 9_007_199_254_740_991 }
    const id = await engine.spawnId('echo', value)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1, more: false })
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 1, result: value, error: null })
    expect((await engine.run(id)).finishedAt).not.toBeNull()
  })

  test('C003 a tick of one queue leaves the runs of another where they are', async () => {
    const engine = await start({ only: ['slow'] })
    const mine = await engine.spawnId('echo', 1, { queue: 'slow' })
    const other = await engine.spawnId('echo', 2)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1, more: false })
    expect((await engine.run(mine)).status).toBe('completed')
    expect(await engine.run(other)).toMatchObject({ status: 'pending', queue: 'default', attempt: 0 })
  })

  test('C004 a run without a queue lands in its definition’s', async () => {
    const engine = await start()
    expect((await engine.run(await engine.spawnId('reports'))).queue).toBe('slow')
    expect((await engine.run(await engine.spawnId('reports', undefined, { queue: 'fast' }))).queue).toBe('fast')
  })

  test('C005 the lower priority runs first, whichever came first', async () => {
    const engine = await start({ budget: { batch: 1, concurrency: 1 } })
    await engine.spawn('noted', 'later', { priority: 10 })
    await engine.spawn('noted', 'first', { priority: 0 })
    await engine.spawn('noted', 'urgent', { priority: -5 })
    await engine.tick()
    expect(order).toEqual(['urgent', 'first', 'later'])
  })

  test('C006 runs of one priority go in the order in which they became due', async () => {
    const engine = await start({ budget: { batch: 1, concurrency: 1 }, frozen: true })
    await engine.spawn('noted', 'delayed by 2 s', { delay: '2s' })
    await engine.spawn('noted', 'delayed by 1 s', { delay: '1s' })
    for (const n of [1, 2, 3, 4, 5]) await engine.spawn('noted', n)
    engine.advance(3_000)
    await engine.spawn('noted', 'last')
    await engine.tick()
    expect(order).toEqual([1, 2, 3, 4, 5, 'delayed by 1 s', 'delayed by 2 s', 'last'])
  })

  test('C006 runs of one batch go in its order, though they share their instant', async () => {
    const engine = await start({ budget: { batch: 1, concurrency: 1 }, frozen: true })
    const inputs = Array.from({ length: 20 }, (_, n) => n)
    await engine.spawnMany('noted', inputs)
    await engine.tick()
    expect(order).toEqual(inputs)
  })

  test('C007 a run delayed by 5 s is not claimed after 4 s and is after 5 s', async () => {
    const engine = await start({ frozen: true })
    const id = await engine.spawnId('echo', 1, { delay: '5s' })
    expect(await engine.tick()).toMatchObject({ claimed: 0, more: false, nextDueAt: engine.clock() + 5_000 })
    engine.advance(4_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0 })
    engine.advance(999)
    expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: engine.clock() + 1 })
    engine.advance(1)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1, promoted: 1 })
    expect((await engine.run(id)).status).toBe('completed')
  })

  test('C008 an instant in the past is due at once, one in the future is not: the database’s clock decides', async () => {
    const engine = await start()
    const past = await engine.spawnId('echo', 1, { at: new Date(Date.now() - 3_600_000) })
    const future = await engine.spawnId('echo', 2, { at: new Date(Date.now() + 3_600_000) })
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
    expect((await engine.run(past)).status).toBe('completed')
    expect((await engine.run(future)).status).toBe('pending')
    engine.advance(3_601_000)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
  })

  test('C008 an instant is kept exactly', async () => {
    const engine = await start({ frozen: true })
    const at = new Date(engine.clock() + 86_400_123)
    const run = await engine.run(await engine.spawnId('echo', 1, { at }))
    expect(run).toMatchObject({ scheduledFor: at.getTime(), availableAt: at.getTime() })
  })

  test('C009 six thousand runs are spawned in one request', async () => {
    const engine = await start()
    const runs = await Promise.all(Array.from({ length: 6_000 }, (_, n) => newRun(engine.registry, 'echo', n)))
    const before = engine.database.requests
    const admissions = await engine.store.spawn(runs)
    expect(engine.database.requests - before).toBe(1)
    expect(new Set(admissions.flatMap((item) => (item.kind === 'created' ? [item.id] : []))).size).toBe(6_000)
    expect(await engine.sql(COUNT_RUNS, [engine.environment])).toEqual([6_000])
  })

  test('C010 a batch with one key twice and one that is live inserts one run', async () => {
    const engine = await start()
    const live = await engine.spawnId('echo', 0, { key: 'live' })
    const runs = await Promise.all(['new', 'new', 'live'].map((key) => newRun(engine.registry, 'echo', 1, { key })))
    const [first, second, third] = await engine.store.spawn(runs)
    expect(first).toMatchObject({ kind: 'created', id: runs[0]?.id })
    expect(second).toMatchObject({ kind: 'occupied', id: runs[0]?.id })
    expect(third).toMatchObject({ kind: 'occupied', id: live, status: 'pending' })
    expect(await engine.sql(COUNT_RUNS, [engine.environment])).toEqual([2])
    expect(await engine.tick()).toMatchObject({ completed: 2 })
  })

  test('C219 the key of a run is free again once the run has ended', async () => {
    const engine = await start()
    const first = await engine.spawnId('echo', 1, { key: 'order:1' })
    expect(await engine.spawn('echo', 2, { key: 'order:1' })).toMatchObject({ kind: 'occupied', id: first })
    await engine.tick()
    expect(await engine.sql(COUNT_KEYS, [engine.environment])).toEqual([0])
    const second = await engine.spawnId('echo', 3, { key: 'order:1' })
    expect(second).not.toBe(first)
    expect(await engine.run(first)).toMatchObject({ key: 'order:1', status: 'completed' })
  })

  test('C031 a list by tag holds only what bears it', async () => {
    const engine = await start()
    const tagged = await engine.spawnId('echo', 1, { tags: ['customer:7', 'big'] })
    await engine.spawnId('echo', 2, { tags: ['customer:8'] })
    await engine.spawnId('echo', 3)
    const page = await engine.store.listRuns({ ...EVERYTHING, tag: 'customer:7' })
    expect(page.items.map(({ id, tags }) => ({ id, tags }))).toEqual([{ id: tagged, tags: ['customer:7', 'big'] }])
  })

  test('C196 spawning, reading, signalling and cancelling need no tick', async () => {
    const engine = await start()
    const id = await engine.spawnId('echo', 1, { key: 'k' })
    expect((await engine.run(id)).status).toBe('pending')
    expect(await engine.signal({ key: 'k' }, 'hello')).toMatchObject({ kind: 'delivered', runId: id })
    expect((await engine.store.listRuns({ ...EVERYTHING, definition: 'echo' })).items).toHaveLength(1)
    expect(await engine.store.cancel(id, { tenant: 'default', by: 'me' })).toMatchObject({ did: 'cancelled' })
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', attempt: 0 })
  })
})

describe('attempts', () => {
  const engines = sharedEngines()

  test('C030 a run’s own attempts go before its definition’s, and those before the client’s', async () => {
    const strict = job({ name: 'strict', retry: { maxAttempts: 4 }, run: () => null })
    const engine = await engines.start({ definitions: [strict, reports] })
    const attemptsOf = async (definition: string, own: number | undefined, client: number | undefined) => {
      const call = toCall({ definition, version: 1, input: undefined, options: { maxAttempts: own } })
      const run = await toNewRun(call, { registry: engine.registry, tenant: 'default', maxAttempts: client })
      await engine.store.spawn([run])
      return (await engine.run(run.id)).maxAttempts
    }
    expect(await attemptsOf('strict', 2, 7)).toBe(2)
    expect(await attemptsOf('strict', undefined, 7)).toBe(4)
    expect(await attemptsOf('reports', undefined, 7)).toBe(7)
    expect(await attemptsOf('reports', undefined, undefined)).toBe(10)
  })
})

const COUNT_RUNS = `
  SELECT count(*)::int FROM pawl.runs WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`
const COUNT_KEYS = `
  SELECT count(*)::int FROM pawl.uniques WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`

const EVERYTHING = {
  tenant: 'default',
  status: null,
  definition: null,
  queue: null,
  key: null,
  tag: null,
  parent: null,
  since: null,
  until: null,
  limit: 50,
  cursor: null,
}
