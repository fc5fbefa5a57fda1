import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import type { Status } from '../../src/core/status.ts'
import { forEachVersion } from '../support/database.ts'
import { moment, sharedEngines } from '../support/engine.ts'
import { echo } from './definitions.ts'

const LEASE_MS = 30_000
const PAUSE_MS = 2_000

forEachVersion('machines', (version) => {
  const { start } = sharedEngines(version)

  test('C085 a machine whose host dies between two steps goes on with the second, from the state that the first left', async () => {
    const calls: string[] = []
    const [entered, never] = [moment(), moment()]
    let dies = true
    const counter = machine({
      name: 'counter',
      state: z.object({ n: z.number() }),
      output: z.number(),
      initial: 'first',
      steps: {
        first: ({ state, next }) => {
          calls.push('first')
          return next('second', { state: { n: state.n + 1 } })
        },
        second: async ({ state, done }) => {
          calls.push('second')
          if (dies) {
            entered.happen()
            await never.promise
          }
          return done(state.n)
        },
      },
    })
    const dead = await start({ definitions: [counter] })
    const id = await dead.spawnId('counter', { n: 41 })
    const tick = dead.tick()
    await entered.promise
    dies = false
    expect(await dead.run(id)).toMatchObject({ status: 'running', step: 'second', state: { n: 42 }, visit: 2 })
    const next = await start({ definitions: [counter], beside: dead })
    next.advance(LEASE_MS + 1_000)
    expect(await next.tick()).toMatchObject({ rescued: 1 })
    next.advance(PAUSE_MS)
    await next.tick()
    expect(await next.run(id)).toMatchObject({ status: 'completed', result: 42 })
    expect(calls).toEqual(['first', 'second', 'second'])
    never.happen()
    expect((await tick).stale).toBe(1)
  })

  test('C098 a chain of ten steps ends in one tick, each step committed before the next began', async () => {
    const seen: unknown[] = []
    let readBack: () => Promise<{ visit: number; state: unknown }> = () => Promise.reject(new Error('not started'))
    const chain = machine({
      name: 'chain',
      state: z.object({ n: z.number() }),
      output: z.number(),
      initial: 'step',
      steps: {
        step: async ({ state, next, done }) => {
          seen.push(await readBack())
          return state.n === 10 ? done(state.n) : next('step', { state: { n: state.n + 1 } })
        },
      },
    })
    const engine = await start({ definitions: [chain] })
    const id = await engine.spawnId('chain', { n: 1 })
    readBack = async () => {
      const { visit, state } = await engine.run(id)
      return { visit, state }
    }
    const before = engine.database.requests
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
    // ten reads of the test's own, ten flushes, a claim, and what a first tick declares or keeps up
    expect(engine.database.requests - before).toBeLessThanOrEqual(10 + 10 + 1 + 4)
    expect(seen).toEqual(Array.from({ length: 10 }, (_, n) => ({ visit: n + 1, state: { n: n + 1 } })))
    const history = await engine.history(id)
    expect(history.map(({ visit, outcome }) => [visit, outcome]).at(-1)).toEqual([10, 'done'])
    expect(history).toHaveLength(10)
  })

  test('C100 steps branch on data and loop as often as it says', async () => {
    const collatz = machine({
      name: 'collatz',
      state: z.object({ n: z.number(), steps: z.number() }),
      output: z.number(),
      initial: 'look',
      steps: {
        look: ({ state, next, done }) => {
          if (state.n === 1) return done(state.steps)
          return next(state.n % 2 === 0 ? 'even' : 'odd')
        },
        even: ({ state, next }) => next('look', { state: { n: state.n / 2, steps: state.steps + 1 } }),
        odd: ({ state, next }) => next('look', { state: { n: state.n * 3 + 1, steps: state.steps + 1 } }),
      },
    })
    const engine = await start({ definitions: [collatz] })
    const id = await engine.spawnId('collatz', { n: 27, steps: 0 })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 111, visit: 223 })
  })

  test('a next with a delay is committed and due only then', async () => {
    const later = machine({
      name: 'later',
      state: z.object({}),
      initial: 'now',
      steps: { now: ({ next }) => next('later', { delay: '1h' }), later: ({ done }) => done(undefined) },
    })
    const engine = await start({ definitions: [later], frozen: true })
    const id = await engine.spawnId('later', {})
    expect(await engine.tick()).toMatchObject({ completed: 0, nextDueAt: engine.clock() + 3_600_000 })
    expect(await engine.run(id)).toMatchObject({ status: 'pending', step: 'later', visit: 2 })
    engine.advance(3_600_000)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
  })

  test('C057 a build without the code leaves a run as it is, and the build that has it runs its first attempt', async () => {
    const fresh = job({ name: 'fresh', run: ({ attempt }) => attempt })
    const newer = await start({ definitions: [echo, fresh] })
    const older = await start({ definitions: [echo], beside: newer })
    const id = await newer.spawnId('fresh')
    const known = await newer.spawnId('echo', 1)
    expect(await older.tick()).toMatchObject({ claimed: 1, completed: 1, more: false })
    expect((await older.run(known)).status).toBe('completed')
    expect(await older.run(id)).toMatchObject({ status: 'pending', attempt: 0, seq: 0 })
    expect(await newer.tick()).toMatchObject({ completed: 1 })
    expect(await newer.run(id)).toMatchObject({ status: 'completed', attempt: 1, result: 1 })
  })

  test('C089 a run of version 1 ends on the code of version 1 after version 2 was shipped beside it', async () => {
    const build = (which: number) =>
      machine({
        name: 'evolving',
        version: which,
        state: z.object({}),
        signals: { go: z.null() },
        output: z.string(),
        initial: 'wait',
        steps: { wait: ({ waitFor }) => waitFor('go', { goto: 'end' }), end: ({ done }) => done(`code of version ${which}`) },
      })
    const first = await start({ definitions: [build(1)] })
    const old = await first.spawnId('evolving', {})
    await first.tick()
    const second = await start({ definitions: [build(1), build(2)], beside: first })
    const fresh = await second.spawnId('evolving', {})
    await second.tick()
    for (const id of [old, fresh]) await second.signal({ id }, 'go')
    await second.tick()
    expect(await second.run(old)).toMatchObject({ version: 1, result: 'code of version 1' })
    expect(await second.run(fresh)).toMatchObject({ version: 2, result: 'code of version 2' })
  })

  test('C060 a thousand races of cancelling with finishing end in one state each, and nothing deadlocks', {
    timeout: 60_000,
  }, async () => {
    const engine = await start({ definitions: [echo], connections: 4, budget: { batch: 50, concurrency: 50 } })
    const canceller = await start({ definitions: [echo], beside: engine, connections: 4 })
    const ids = await engine.spawnMany(
      'echo',
      Array.from({ length: 1_000 }, (_, n) => n),
    )
    const cancelling = (async () => {
      const answers: string[] = []
      // from the other end, a few at a time, until both meet in the middle
      for (let at = ids.length; at > 0; at -= 10) {
        const some = ids.slice(at - 10, at)
        const done = await Promise.all(some.map((id) => canceller.store.cancel(id, { tenant: 'default', by: null })))
        answers.push(...done.map((answer) => answer?.did ?? 'unknown'))
      }
      return answers
    })()
    const [report, answers] = await Promise.all([engine.tick(), cancelling])
    await engine.tick()
    const runs = await Promise.all(ids.map((id) => engine.run(id)))
    const ended = (status: Status) => runs.filter((run) => run.status === status).length
    expect(ended('completed') + ended('cancelled')).toBe(1_000)
    expect(ended('completed')).toBeGreaterThan(0)
    expect(ended('cancelled')).toBeGreaterThanOrEqual(answers.filter((did) => did === 'cancelled').length)
    expect(report.stale).toBe(0)
    const terminal = await engine.sql<number>(
      `SELECT count(*)::int FROM pawl.history h JOIN pawl.runs r ON r.id = h.run_id
       WHERE r.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) AND h.outcome IN ('done', 'cancel')
       GROUP BY h.run_id`,
      [engine.environment],
    )
    expect(terminal).toHaveLength(1_000)
    expect(terminal.every((count) => count === 1)).toBe(true)
  })
})

describe('results', () => {
  const { start } = sharedEngines()

  test('C192 every status can be told from every other, and an unknown id is none', async () => {
    const [entered, mayEnd] = [moment(), moment()]
    const ways = machine({
      name: 'ways',
      state: z.object({ way: z.string() }),
      signals: { a: z.null() },
      retry: 'none',
      initial: 'go',
      steps: {
        go: async ({ state, waitFor, fail, discard, done }) => {
          if (state.way === 'waiting') return waitFor('a', { goto: 'go' })
          if (state.way === 'failed') return fail('it failed')
          if (state.way === 'discarded') return discard('not worth it')
          if (state.way === 'running') {
            entered.happen()
            await mayEnd.promise
          }
          return done(undefined)
        },
      },
    })
    const engine = await start({ definitions: [ways, echo] })
    const wanted: Status[] = ['waiting', 'failed', 'discarded', 'running', 'completed', 'cancelled']
    const ids = await engine.spawnMany(
      'ways',
      wanted.map((way) => ({ way })),
    )
    await engine.store.cancel(ids.at(-1) ?? '', { tenant: 'default', by: null })
    const tick = engine.tick()
    await entered.promise
    // a claim of its own: the flush of the others has come back when it has
    while ((await engine.run(ids[4] ?? '')).status !== 'completed');
    const delayed = await engine.spawnId('echo', 1, { delay: '1h' })
    const statuses = await Promise.all([...ids, delayed].map(async (id) => (await engine.run(id)).status))
    expect(statuses).toEqual([...wanted, 'pending'])
    expect(await engine.run(ids[1] ?? '')).toMatchObject({ error: { message: 'it failed' } })
    expect(await engine.store.getRun(crypto.randomUUID(), { tenant: 'default' })).toBeNull()
    expect(await engine.store.getRun(ids[0] ?? '', { tenant: 'another' })).toBeNull()
    mayEnd.happen()
    await tick
  })

  test('C193 C194 waiting for a result gives it when it comes in time; else the run as it is, and the work goes on', async () => {
    const engine = await start({ definitions: [echo] })
    let clock = 0
    let onPause: () => Promise<unknown> = async () => {}
    const pacing = {
      nowMs: () => clock,
      pause: async (ms: number) => {
        clock += ms
        await onPause()
      },
    }
    const calls = createCalls({ store: engine.store, registry: engine.registry, pacing })
    const late = await engine.spawnId('echo', 'late')
    expect(await calls.waitForRun(late, 5_000)).toMatchObject({ id: late, status: 'pending', result: null })
    expect(clock).toBe(5_000)
    onPause = () => engine.tick()
    const prompt = await engine.spawnId('echo', 'prompt')
    expect(await calls.waitForRun(prompt, 5_000)).toMatchObject({ id: prompt, status: 'completed', result: 'prompt' })
    expect(await engine.run(late)).toMatchObject({ status: 'completed', result: 'late' })
  })
})
