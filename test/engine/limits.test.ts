import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest, finishes, flush } from '../traps/outcomes.ts'

const heavy = limit('heavy', { concurrency: 10 })
const perMinute = limit('per-minute', { rate: { count: 100, per: '1 minute' } })
const bursty = limit('bursty', { rate: { count: 1, per: '1s', burst: 10 } })
const perKey = limit('per-key', { rate: { count: 1, per: '1 day', burst: 5 } })
const plain = (name: string, limits: Parameters<typeof job>[0]['limits']) =>
  job({ name, input: z.unknown(), limits, run: ({ input }) => input ?? null })

const DEFINITIONS = [
  plain('free', []),
  plain('weighty', [heavy.weighing(5)]),
  plain('minutely', [perMinute]),
  plain('burst', [bursty]),
  plain('keyed', [perKey.by((key: string) => key)]),
]

/** Claims and finishes until a claim finds nothing, without the clock moving. */
async function drain(engine: TestEngine): Promise<number> {
  let done = 0
  for (let empty = 0; empty < 2; ) {
    const runs = await claim(engine)
    await flush(
      engine,
      runs.map((run) => finishes(run)),
    )
    done += runs.length
    empty = runs.length === 0 ? empty + 1 : 0
  }
  return done
}

const declare = (engine: TestEngine) =>
  engine.store.declareLimits([...engine.registry.limits].map(([name, policy]) => ({ name, policy })))

const counters = (engine: TestEngine) =>
  engine.sql(
    `SELECT json_build_object('held', c.held, 'available', c.available) FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id
     WHERE e.name = $1 ORDER BY c.gate, c.shard`,
    [engine.environment],
  )

forEachVersion('limits', (version) => {
  const { start } = sharedEngines(version)
  const begin = async () => {
    const engine = await start({ definitions: DEFINITIONS, version, frozen: true, connections: 16 })
    await declare(engine)
    return engine
  }

  test('C165 runs of weight 5 under a limit of 10 run two at a time', async () => {
    const engine = await begin()
    await engine.spawnMany('weighty', [1, 2, 3, 4, 5])
    const first = await claim(engine)
    expect(first).toHaveLength(2)
    expect(await claim(engine)).toEqual([])
    await flush(engine, [finishes(first[0]!)])
    expect(await claim(engine)).toHaveLength(1)
    expect(await counters(engine)).toEqual([{ held: 10, available: null }])
  })

  test('C163 100 a minute: 250 runs take a minute and a half, and no minute sees more than the burst and what has come since', async () => {
    const engine = await begin()
    await engine.spawnMany(
      'minutely',
      Array.from({ length: 250 }, (_, n) => n),
    )
    const done: number[] = [await drain(engine)]
    while (done.reduce((sum, n) => sum + n, 0) < 250) {
      engine.advance(1_000)
      done.push(await drain(engine))
    }
    expect(done[0]).toBe(100)
    expect(done).toHaveLength(91)
    for (let second = 1; second < done.length; second += 1) expect(done[second]).toBeLessThanOrEqual(2)
  })

  test('C164 C168 a burst of ten, then one a second; after an hour of nothing exactly a burst again', async () => {
    const engine = await begin()
    await engine.spawnMany('burst', [...Array(40).keys()])
    expect(await drain(engine)).toBe(10)
    engine.advance(999)
    expect(await drain(engine)).toBe(0)
    engine.advance(1)
    expect(await drain(engine)).toBe(1)
    engine.advance(2_500)
    expect(await drain(engine)).toBe(2)
    engine.advance(500)
    expect(await drain(engine)).toBe(1)
    engine.advance(3_600_000)
    expect(await drain(engine)).toBe(10)
    expect(await drain(engine)).toBe(0)
  })

  test('a build whose limits have no rate looks after nobody who waits for tokens, until it is told that some are due', async () => {
    const engine = await begin()
    await engine.spawnMany('burst', [...Array(11).keys()])
    expect(await drain(engine)).toBe(10)
    const unrated = async () => {
      const { runs, peek } = await engine.store.claim(claimRequest(engine, { rated: false, peek: true }))
      return { runs: runs.length, more: peek?.more, looked: engine.sent.at(-1)?.includes('promote_gates') }
    }
    expect(await unrated()).toEqual({ runs: 0, more: false, looked: false })
    engine.advance(1_000)
    expect(await unrated()).toEqual({ runs: 0, more: true, looked: false })
    expect(await unrated()).toEqual({ runs: 1, more: false, looked: true })
  })

  test('C169 the first claim of a key that nobody used before admits at once', async () => {
    const engine = await begin()
    await engine.spawn('keyed', 'cold')
    expect(await claim(engine)).toHaveLength(1)
  })

  test('C163 C169 a rate without refill gives exactly its burst, whatever the number of claimers', async () => {
    const engine = await begin()
    const keys = Array.from({ length: 100 }, (_, n) => `key ${n}`)
    await engine.spawnMany('keyed', Array.from({ length: 10 }, () => keys).flat())
    const admitted = new Map<string, number>()
    const work = async () => {
      for (let empty = 0; empty < 5; ) {
        const { runs, setAside } = await engine.store.claim(claimRequest(engine, { limit: 20 }))
        for (const { input } of runs) admitted.set(String(input), (admitted.get(String(input)) ?? 0) + 1)
        await flush(
          engine,
          runs.map((run) => finishes(run)),
        )
        empty = runs.length === 0 && setAside === 0 ? empty + 1 : 0
      }
    }
    await Promise.all(Array.from({ length: 16 }, work))
    expect([...admitted.values()]).toEqual(keys.map(() => 5))
    expect(await counters(engine)).toEqual(keys.map(() => ({ held: 0, available: 0 })))
  })
})
