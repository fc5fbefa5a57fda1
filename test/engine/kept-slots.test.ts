import { expect, test } from 'vitest'
import * as z from 'zod'
import { type Database, DatabaseError } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { around, sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const both = limit('both', { concurrency: 5, rate: { count: 2, per: '1 hour' } })

/** Keeps its slot of a limit that has a rate too. */
const keeper = machine({
  name: 'keeper',
  state: z.object({}),
  limits: [both],
  initial: 'first',
  steps: {
    first: ({ next }) => next('second', { delay: '1 minute', limits: 'keep' }),
    second: ({ done }) => done(undefined),
  },
})

const LETTERS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'] as const
const lettered = machine({
  name: 'lettered',
  state: z.object({}),
  signals: { go: z.null() },
  limits: LETTERS.map((letter) => limit(letter, { concurrency: 5 })),
  initial: 'first',
  steps: {
    first: ({ waitFor }) => waitFor('go', { goto: 'second', limits: 'keep' }),
    second: ({ done }) => done(undefined),
  },
})

/** Slots taken, and whole tokens that are left. */
const counter = (engine: TestEngine) =>
  engine.sql(`SELECT json_build_array(c.held, floor(c.available)) FROM pawl.limit_counters c WHERE c.gate LIKE 'both\u001f%'`)

const one = limit('one', { concurrency: 1 })
const LINKS = 4
/** From its first step on, nobody else may be inside: it keeps its slot over steps that follow at once, pauses and waits. */
const inside = new Set<string>()
let overlaps = 0
const linked = machine({
  name: 'linked',
  state: z.object({ left: z.number() }),
  output: z.number(),
  signals: { never: z.null() },
  limits: [one],
  initial: 'link',
  steps: {
    link: async ({ run: { id }, state: { left }, next, waitFor, done }) => {
      inside.add(id)
      if (inside.size > 1) overlaps += 1
      // others have their turn while it is in hand
      await new Promise((resolve) => setImmediate(resolve))
      const go = { limits: 'keep', state: { left: left - 1 } } as const
      if (left === 1) return next('link', go)
      if (left === 2) return next('link', { ...go, delay: '1s' })
      if (left > 2) return waitFor('never', { ...go, goto: 'link', timeout: '1s' })
      inside.delete(id)
      return done(left)
    },
  },
})

const tripled = job({ name: 'tripled', input: z.unknown(), limits: [limit('three', { concurrency: 3 })], run: () => null })
const keyed = machine({
  name: 'keyed',
  input: z.object({ key: z.string(), limits: z.enum(['keep', 'release']).optional() }),
  state: z.object({}),
  initialState: () => ({}),
  concurrencyKey: ({ key }) => key,
  initial: 'first',
  steps: {
    first: ({ next, input: { limits } }) => (limits ? next('second', { delay: '1 hour', limits }) : next('second')),
    second: ({ done }) => done(undefined),
  },
})

forEachVersion('slots that are kept', (version) => {
  const { start } = sharedEngines(version)

  test('C160 a slot is given back once, though the reply to its flush is lost and it is sent again, beside others that are held', async () => {
    let losing = 0
    const wrap = (database: Database): Database =>
      around(database, async (_, send) => {
        const replies = await send()
        if (losing-- > 0) throw new DatabaseError('The reply was lost.', { fate: 'lost' })
        return replies
      })
    const engine = await start({ definitions: [tripled], version, frozen: true, wrap })
    await engine.tick()
    await engine.spawnMany('tripled', Array(5).fill({}))
    const [first, ...others] = await claim(engine)
    losing = 1
    expect((await flush(engine, [finishes(first!)])).outcomes).toMatchObject([{ kind: 'applied' }])
    const held = `SELECT c.held FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1`
    expect([others.length, await engine.sql(held, [engine.environment])]).toEqual([2, [2]])
    expect([(await claim(engine)).length, (await claim(engine)).length]).toEqual([1, 0])
  })

  test('C161 a concurrency key that is released mid-flow admits another at once, one that is kept admits nobody, and it is taken again by none', async () => {
    const engine = await start({ definitions: [keyed], version, frozen: true })
    const released = await engine.spawnId('keyed', { key: 'a', limits: 'release' })
    const kept = await engine.spawnId('keyed', { key: 'b', limits: 'keep' })
    await engine.tick()
    const [after, behind] = [await engine.spawnId('keyed', { key: 'a' }), await engine.spawnId('keyed', { key: 'b' })]
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect([(await engine.run(after)).status, (await engine.run(behind)).status]).toEqual(['completed', 'pending'])
    // what has released its key runs beside the next one that has it
    const holder = await engine.spawnId('keyed', { key: 'a' })
    const [held] = await claim(engine)
    expect(held?.id).toBe(holder)
    engine.advance(3_600_000)
    expect((await claim(engine)).map(({ id }) => id).sort()).toEqual([released, kept].sort())
  })

  test('C160 C161 chains that keep their slot, under a limit of one and eight claimers, never overlap, all end, and it is free then', async () => {
    const first = await start({ definitions: [linked], version, frozen: true, connections: 2 })
    const others = await Promise.all(
      Array.from({ length: 7 }, () => start({ definitions: [linked], version, frozen: true, connections: 2, beside: first })),
    )
    const engines = [first, ...others]
    await first.tick()
    const ids = await first.spawnMany('linked', Array(8).fill({ left: LINKS }))
    overlaps = 0
    let completed = 0
    for (let rounds = 0; completed < ids.length && rounds < 60; rounds += 1) {
      const reports = await Promise.all(engines.map((engine) => engine.tick()))
      completed += reports.reduce((sum, report) => sum + report.completed, 0)
      for (const engine of engines) engine.advance(1_000)
    }
    expect({ completed, overlaps, inside: inside.size }).toEqual({ completed: ids.length, overlaps: 0, inside: 0 })
    const held = `SELECT c.held FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1`
    expect(await first.sql(held, [first.environment])).toEqual([0])
  })

  test('C160 one outlasts a claim that is given back unstarted, which gives back no token that it did not take', async () => {
    const engine = await start({ definitions: [keeper], version, frozen: true })
    await engine.store.declareLimits([{ name: 'both', policy: both.policy }])
    await engine.spawnId('keeper', {})
    await engine.tick()
    expect(await counter(engine)).toEqual([[1, 1]])
    engine.advance(60_000)
    const runs = await claim(engine)
    expect(runs).toHaveLength(1)
    await flush(
      engine,
      runs.map((run) => ({ ...finishes(run), kind: 'release', status: 'pending' })),
    )
    expect(await counter(engine)).toEqual([[1, 1]])
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await counter(engine)).toEqual([[0, 1]])
  })

  test('C160 trap 2: a cancelled run gives back what it kept in the order of the gates, and each once', async () => {
    const engine = await start({ definitions: [lettered], version, connections: 4 })
    const ids = await engine.spawnMany('lettered', [{}, {}])
    await engine.tick()
    const counters = 'FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1'
    const last = await holdRowLock(engine.fresh.connectionString, `SELECT ${counters} AND c.gate LIKE 'h%' FOR UPDATE OF c`, [
      engine.environment,
    ])
    const cancelled = ids.map((id) => engine.store.cancel(id, { tenant: 'default', by: null }))
    await untilBlocked(engine.fresh.connectionString, { blockedBy: last.pid })
    // who stands before the last counter has all the others
    const free = await engine.sql(`SELECT c.gate ${counters} ORDER BY c.gate FOR UPDATE OF c SKIP LOCKED`, [engine.environment])
    await last.release()
    expect(free).toEqual([])
    await Promise.all(cancelled)
    expect(await engine.sql(`SELECT sum(c.held)::int ${counters}`, [engine.environment])).toEqual([0])
  })
})
