import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { forEachVersion } from '../support/database.ts'
import { around, sharedEngines, startEngine, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'

const double = job({
  name: 'double',
  input: z.number(),
  retry: 'none',
  run: ({ input }) => {
    if (input < 0) throw new Error(`no double of ${input}`)
    return input * 2
  },
})

/** Doubles each of its numbers in a child of its own, and ends with what the children say. */
const doubles = machine({
  name: 'doubles',
  state: z.object({ numbers: z.array(z.number()), key: z.string().optional(), delays: z.boolean().optional() }),
  output: z.array(z.json()),
  initial: 'split',
  steps: {
    split: ({ join, state: { numbers, key, delays } }) => {
      const calls = numbers.map((n) =>
        double.with(n, { ...(key && { key: `${key}:${n}` }), ...(delays && { delay: n * 1_000 }) }),
      )
      return join(calls, { goto: 'collect' })
    },
    collect: ({ children, done }) =>
      done(
        children(double).map((child) =>
          child.status === 'completed' ? child.result : `${child.status}: ${child.error?.message}`,
        ),
      ),
  },
})

const definitions = [doubles, double]

function childrenOf(engine: TestEngine, id: string): Promise<readonly string[]> {
  return engine.sql('SELECT status::text FROM pawl.runs WHERE parent_id = $1 ORDER BY child_index', [id])
}

forEachVersion('children', (version) => {
  const { start } = sharedEngines(version)

  test('C140 the children and the parked parent are one commit', async () => {
    const engine = await start({ definitions, budget: { requests: 6 }, sharesInvocation: true })
    const id = await engine.spawnId('doubles', { numbers: [1, 2, 3] })
    await engine.tick()
    const flush = engine.sent.find((names) => names.includes('park_parents'))
    expect(flush).toEqual(expect.arrayContaining(['apply_outcomes', 'insert_runs', 'park_parents']))
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: expect.any(Number) })
  })

  test('C140 a connection that is killed while the children are inserted leaves neither them nor a parked parent; sent again, both', async () => {
    const engine = await start({ definitions })
    const id = await engine.spawnId('doubles', { numbers: [1, 2, 3], key: 'k' })
    // somebody is taking the key of the second child right now
    const held = await holdRowLock(
      engine.fresh.connectionString,
      `INSERT INTO pawl.uniques (tenant, environment_id, scope, token, run_id)
       SELECT 'default', id, 'double', 'k:2', gen_random_uuid() FROM pawl.environments WHERE name = $1`,
      [engine.environment],
    )
    const tick = engine.tick()
    const [session] = await untilBlocked(engine.fresh.connectionString, { blockedBy: held.pid })
    await engine.sql('SELECT pg_terminate_backend($1)', [session?.pid])
    const [again] = await untilBlocked(engine.fresh.connectionString, { blockedBy: held.pid })
    expect(again?.pid).not.toBe(session?.pid)
    expect(await childrenOf(engine, id)).toEqual([])
    expect((await engine.run(id)).status).toBe('running')
    await held.abandon()
    await tick
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: [2, 4, 6] })
  })

  test('C141 a parent wakes once when all its children have ended, one of them failed, with all three results', async () => {
    const engine = await start({ definitions })
    const id = await engine.spawnId('doubles', { numbers: [1, -2, 3] })
    expect(await engine.tick()).toMatchObject({ completed: 3, failed: 1, waiting: 1, more: false })
    expect((await engine.run(id)).result).toEqual([2, 'failed: no double of -2', 6])
    expect((await engine.history(id)).map(({ step, outcome }) => [step, outcome])).toEqual([
      ['split', 'join'],
      ['collect', 'done'],
    ])
  })

  test('C141 a cancelled child counts as ended', async () => {
    const engine = await start({ definitions, frozen: true })
    const id = await engine.spawnId('doubles', { numbers: [1, 60], delays: true })
    engine.advance(2_000)
    await engine.tick()
    engine.advance(2_000)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    const [child] = await engine.sql<string>("SELECT id FROM pawl.runs WHERE parent_id = $1 AND status = 'pending'", [id])
    await engine.store.cancel(child ?? '', { tenant: 'default', by: null })
    await engine.tick()
    expect((await engine.run(id)).result).toEqual([2, 'cancelled: The run was cancelled.'])
  })

  test('C142 a join of no children goes on at once', async () => {
    const engine = await start({ definitions })
    const id = await engine.spawnId('doubles', { numbers: [] })
    expect(await engine.tick()).toMatchObject({ more: false })
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: [] })
  })

  test('C143 a child whose key is taken is not counted: of three calls with one duplicate the parent waits for two', async () => {
    const engine = await start({ definitions, frozen: true })
    const other = await engine.spawnId('double', 7, { key: 'k:5', delay: '1h' })
    const id = await engine.spawnId('doubles', { numbers: [4, 5, 6], key: 'k' })
    await engine.tick()
    expect(await childrenOf(engine, id)).toHaveLength(2)
    expect((await engine.run(id)).result).toEqual([8, 12])
    expect((await engine.run(other)).status).toBe('pending')
  })

  test('C143 of two calls with one key among the children of one join, one is made and counted', async () => {
    const engine = await start({ definitions })
    const id = await engine.spawnId('doubles', { numbers: [4, 4, 6], key: 'twice' })
    await engine.tick()
    expect((await engine.run(id)).result).toEqual([8, 12])
  })

  test('C143 when every child is a duplicate the parent goes on at once', async () => {
    const engine = await start({ definitions, frozen: true })
    await engine.spawnId('double', 7, { key: 'k:5', delay: '1h' })
    const id = await engine.spawnId('doubles', { numbers: [5], key: 'k' })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: [] })
  })

  test('C144 a thousand children that end in batches, on eight engines at once, are counted exactly', async () => {
    const options = { definitions, budget: { batch: 37, concurrency: 37 } }
    const first = await start(options)
    const others = await Promise.all(Array.from({ length: 7 }, () => start({ ...options, beside: first })))
    const numbers = Array.from({ length: 1_000 }, (_, n) => n)
    const id = await first.spawnId('doubles', { numbers })
    for (let pass = 0; (await first.run(id)).status !== 'completed' && pass < 20; pass += 1) {
      await Promise.all([first, ...others].map((engine) => engine.tick()))
    }
    expect((await first.run(id)).result).toEqual(numbers.map((n) => n * 2))
    expect((await first.history(id)).map(({ outcome }) => outcome)).toEqual(['join', 'done'])
  })

  test('C145 a child of an earlier join that ends late does not count for the join that is waited for now', async () => {
    const late = job({ name: 'late', input: z.number(), run: ({ input }) => input })
    const twice = machine({
      name: 'twice',
      state: z.object({}),
      output: z.array(z.number()),
      initial: 'first',
      steps: {
        first: ({ join }) => join([late.with(1), late.with(2, { delay: '1m' })], { goto: 'second', need: 'any' }),
        second: ({ join }) => join([late.with(3, { delay: '2m' }), late.with(4, { delay: '3m' })], { goto: 'end' }),
        end: ({ children, done }) => done(children(late).map((child) => (child.status === 'completed' ? child.result : -1))),
      },
    })
    const engine = await start({ definitions: [twice, late], frozen: true })
    const id = await engine.spawnId('twice', {})
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', step: 'end', joinRemaining: 2 })
    engine.advance(60_000)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 2 })
    engine.advance(60_000)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    engine.advance(60_000)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: [3, 4] })
  })

  test('C147 a join over other queues needs nothing but ticks of those queues', async () => {
    const spread = machine({
      name: 'spread',
      state: z.object({}),
      output: z.array(z.json()),
      initial: 'split',
      steps: {
        split: ({ join }) => join([double.with(1, { queue: 'left' }), double.with(2, { queue: 'right' })], { goto: 'end' }),
        end: ({ children, done }) => done(children(double).map((child) => (child.status === 'completed' ? child.result : null))),
      },
    })
    const all = [spread, double]
    const main = await start({ definitions: all, only: ['default'] })
    const left = await start({ definitions: all, only: ['left'], beside: main })
    const right = await start({ definitions: all, only: ['right'], beside: main })
    const id = await main.spawnId('spread', {})
    expect(await main.tick()).toMatchObject({ claimed: 1, waiting: 1, more: false })
    expect(await left.tick()).toMatchObject({ completed: 1 })
    expect(await main.tick()).toMatchObject({ claimed: 0 })
    expect(await right.tick()).toMatchObject({ completed: 1 })
    expect(await main.tick()).toMatchObject({ completed: 1 })
    expect((await main.run(id)).result).toEqual([2, 4])
  })
})

describe('joins', () => {
  const { start } = sharedEngines()

  test('C153 ten thousand children are spawned by one call, and their join is exact', { timeout: 120_000 }, async () => {
    const quiet = job({ name: 'quiet', input: z.number(), run: ({ input }) => input })
    const wide = machine({
      name: 'wide',
      state: z.object({}),
      output: z.object({ count: z.number(), sum: z.number() }),
      timeout: '60s',
      initial: 'split',
      steps: {
        split: ({ join }) =>
          join(
            Array.from({ length: 10_000 }, (_, n) => quiet.with(n, n === 7 ? { delay: '1h' } : {})),
            { goto: 'end' },
          ),
        end: ({ children, done }) => {
          const results = children(quiet).map((child) => (child.status === 'completed' ? child.result : Number.NaN))
          return done({ count: results.length, sum: results.reduce((sum, n) => sum + n, 0) })
        },
      },
    })
    const budget = { batch: 500, concurrency: 500, wallMs: 600_000 }
    const engine = await start({ definitions: [wide, quiet], frozen: true, budget })
    const id = await engine.spawnId('wide', {})
    const before = engine.sent.length
    await engine.tick()
    // one short is not enough
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    engine.advance(3_600_000)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: { count: 10_000, sum: 49_995_000 } })
    // all of them in the one request that parks the parent, which is woken once
    const inserting = engine.sent.slice(before).filter((names) => names.includes('insert_runs'))
    expect(inserting).toEqual([expect.arrayContaining(['insert_runs', 'park_parents'])])
    expect(inserting[0]?.filter((name) => name === 'insert_runs')).toHaveLength(1)
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['join', 'done'])
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE parent_id = $1', [id])).toEqual([10_000])
  })

  test('C140 a flush whose reply is lost has spawned the children once', async () => {
    const base = await start({ definitions })
    const proxy = await startFaultProxy(base.fresh.connectionString)
    let drop = false
    const engine = await startEngine({
      definitions,
      on: base.fresh,
      environment: base.environment,
      connect: () => nodePostgres({ connectionString: proxy.connectionString, max: 4 }),
      wrap: (database) =>
        around(database, (statements, send) => {
          if (drop && statements.some(({ name }) => name === 'park_parents')) {
            drop = false
            proxy.faults.dropReply()
          }
          return send()
        }),
    })
    const id = await engine.spawnId('doubles', { numbers: [1, 2, 3] })
    drop = true
    await engine.tick()
    expect(drop).toBe(false)
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: [2, 4, 6] })
    expect(await childrenOf(base, id)).toEqual(['completed', 'completed', 'completed'])
    await engine.close()
    await proxy.close()
  })

  test('C028 children of a machine inherit its trace, and no other header, and report to it by key', async () => {
    const engine = await start({ definitions })
    const headers = {
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      tracestate: 'shop=1',
      baggage: 'a=b',
    }
    const id = await engine.spawnId(
      'doubles',
      { numbers: [1], key: 'traced' },
      { headers: { ...headers, 'x-own': 'not theirs' } },
    )
    await engine.tick()
    const [child] = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = $1', [id])
    expect(await engine.run(child ?? '')).toMatchObject({ parentId: id, key: 'traced:1' })
    expect((await engine.run(child ?? '')).headers).toEqual(headers)
  })
})
