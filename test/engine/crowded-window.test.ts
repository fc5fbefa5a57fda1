import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const rated = limit('rated', { rate: { count: 1, per: '1s', burst: 10 } })
const definitions = [
  job({ name: 'plain', input: z.unknown(), run: () => null }),
  job({ name: 'keyed', input: z.string(), concurrencyKey: (key) => key, run: () => null }),
  job({ name: 'rated', input: z.unknown(), limits: [rated], run: () => null }),
]

/** What the issue of fair admission asks for, and what one invocation of a small plan may send. */
const DENIED = 100_000
const REQUESTS = 50

const many = <T>(count: number, of: (n: number) => T) => Array.from({ length: count }, (_, n) => of(n))
const ten = (prefix: string) => many(10, (n) => `${prefix} ${n}`)

/** As many as asked for, ten thousand in a call. */
async function crowd(engine: TestEngine, definition: string, of: (n: number) => unknown, options = {}, count = DENIED) {
  for (let n = 0; n < count; n += 10_000) {
    const inputs = many(10_000, (i) => of(n + i))
    await engine.spawnMany(definition, inputs, options)
  }
}

const IN_WINDOW = `
  SELECT count(*)::int FROM pawl.ready y JOIN pawl.lanes l ON l.id = abs(y.lane_id) JOIN pawl.environments e ON e.id = l.environment_id WHERE e.name = $1`

const ends = (engine: TestEngine) => expect(engine.sql(IN_WINDOW, [engine.environment])).resolves.toEqual([0])

describe('a window that is crowded with runs that are denied', () => {
  const { start } = sharedEngines()
  const begin = () => start({ definitions, frozen: true, budget: { requests: REQUESTS } })

  test('C170 C271 ten runs of other keys behind one saturated key, in the same lane, finish in the next tick', async () => {
    const engine = await begin()
    await engine.spawnMany('keyed', ['busy'])
    const inHand = await claim(engine)
    await crowd(engine, 'keyed', () => 'busy')
    await engine.spawnMany('keyed', ten('key'))
    expect(await engine.tick()).toMatchObject({ completed: 10, more: false })
    await ends(engine)
    // and the key goes on where it stood
    await flush(
      engine,
      inHand.map((run) => finishes(run)),
    )
    expect(await claim(engine)).toHaveLength(1)
  })

  test('C170 C271 ten runs behind a thousand saturated keys finish in the next tick', async () => {
    const engine = await begin()
    const keys = many(1_000, (n) => `busy ${n}`)
    await engine.spawnMany('keyed', keys)
    // counters are made some at a time
    for (let held = 0; held < 1_000; ) held += (await claim(engine, { limit: 500 })).length
    await crowd(engine, 'keyed', (n) => `busy ${n % 1_000}`, {}, 20_000)
    await engine.spawnMany('keyed', ten('key'))
    expect(await engine.tick()).toMatchObject({ completed: 10, more: false })
    await ends(engine)
  })

  test('C170 C271 ten free runs behind those that a rate denies finish in the next tick, which knows when one of them has its turn', async () => {
    const engine = await begin()
    await crowd(engine, 'rated', () => '')
    await engine.spawnMany('plain', ten('free'))
    expect(await engine.tick()).toMatchObject({ completed: 20, more: false, nextDueAt: engine.clock() + 1_000 })
    await ends(engine)
    engine.advance(1_000)
    expect(await engine.tick()).toMatchObject({ completed: 1, more: false })
  })

  test('C170 ten runs of no urgency come before those of the highest that are due in a year', async () => {
    const engine = await begin()
    await crowd(engine, 'plain', () => '', { priority: -100, delay: '365d' })
    await engine.spawnMany('plain', ten('free'), { priority: 100 })
    expect(await engine.tick()).toMatchObject({ completed: 10, more: false, requests: 3 })
  })
})
