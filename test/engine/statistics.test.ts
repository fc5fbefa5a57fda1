import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import type { ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { claim, fails, finishes, flush, retries, waits } from '../traps/outcomes.ts'

const two = limit('two', { concurrency: 2 })
const hourly = limit('hourly', { rate: { count: 1, per: '1 hour' } })
const definitions = [
  job({ name: 'free', input: z.number(), queue: 'free', run: () => 'ran' }),
  job({ name: 'gated', input: z.number(), queue: 'gated', limits: [two], run: () => 'ran' }),
  job({ name: 'hourly', input: z.number(), queue: 'hourly', limits: [hourly], run: () => 'ran' }),
]
const RUNS = 120

forEachVersion('statistics', (version) => {
  const { start } = sharedEngines(version)

  test('C185 due is what can be claimed now: nothing in hand, blocked, short of a token, delayed, held, waiting or ended', async () => {
    const engine = await start({ definitions, version, frozen: true })
    await engine.tick()
    const due = async () => {
      const { queues } = await engine.store.stats(null)
      return Object.fromEntries(queues.map(({ name, due, oldestDueAt }) => [name, [due, oldestDueAt]]))
    }
    const began = engine.clock()
    await engine.spawnMany('gated', Array(5).fill(0))
    await engine.spawnMany('hourly', Array(3).fill(0))
    expect(await due()).toEqual({ gated: [5, began], hourly: [3, began] })
    const inHand = [...(await claim(engine)), ...(await claim(engine))]
    expect(inHand).toHaveLength(3)
    expect(await due()).toEqual({ gated: [0, null], hourly: [0, null] })
    await flush(
      engine,
      inHand.map((run, n) => (n === 0 ? waits(run, ['go']) : finishes(run))),
    )
    // those two that the limit has room for now
    expect((await due()).gated).toEqual([2, began])
    await engine.spawn('free', 0, { delay: '1h' })
    const paused = [await engine.spawnId('free', 0), await engine.spawnId('free', 0, { delay: '30m' })]
    for (const id of paused) await engine.store.pauseRun(id, { tenant: 'default', by: null })
    expect((await due()).free).toEqual([0, null])
    engine.advance(3_600_000)
    expect(await due()).toMatchObject({ free: [1, began + 3_600_000] })
  })

  test('C184 while eight claimers move runs from state to state, every look adds up to what there is, and each run is counted once', async () => {
    const engine = await start({ definitions, version, frozen: true, connections: 16 })
    await engine.store.declareLimits([...engine.registry.limits].map(([name, policy]) => ({ name, policy })))
    for (const name of ['free', 'gated']) await engine.spawnMany(name, Array(RUNS).fill(0))
    // those that were surely completed, and those that may have been
    let [completed, completing, moved, looks] = [0, 0, 0, 0]
    let isOver = false
    const watch = async () => {
      while (!isOver) {
        const least = completed
        const { exact, byStatus } = await engine.store.stats(null)
        looks += 1
        const total = Object.values(byStatus).reduce((sum, count) => sum + count, 0)
        expect({ exact, total }).toEqual({ exact: true, total: 2 * RUNS })
        // it is what the others leave of the total: too few where one run was counted twice
        expect(byStatus.completed).toBeGreaterThanOrEqual(least)
        expect(byStatus.completed).toBeLessThanOrEqual(completing)
      }
    }
    const ways = [
      (run: ClaimedRun) => finishes(run),
      (run: ClaimedRun) => fails(run),
      (run: ClaimedRun) => waits(run, ['go']),
      (run: ClaimedRun) => retries(run, 1_000),
    ]
    const work = async () => {
      for (let empty = 0; empty < 3; ) {
        const runs = await claim(engine, { limit: 5 })
        const outcomes = runs.map((run) => (ways[moved++ % ways.length] ?? finishes)(run))
        const ended = outcomes.filter(({ status }) => status === 'completed').length
        completing += ended
        await flush(engine, outcomes)
        completed += ended
        empty = runs.length === 0 ? empty + 1 : 0
      }
    }
    const watching = Promise.all([watch(), watch()])
    await Promise.all(Array.from({ length: 8 }, work)).finally(() => {
      isOver = true
    })
    await watching
    expect(looks).toBeGreaterThan(5)
    expect(completed).toBeGreaterThan(RUNS / 4)
  })
})
