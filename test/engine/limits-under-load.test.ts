import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest, finishes, flush } from '../traps/outcomes.ts'
import { churn, running } from './churn.ts'

const perKey = limit('per-key', { concurrency: 3 })
const bursty = limit('bursty', { rate: { count: 1, per: '1s', burst: 10 } })
const A_MINUTE = { count: 100, per: '1 minute', burst: 12 } as const
const steady = limit('steady', { rate: A_MINUTE })
const spread = limit('spread', { rate: A_MINUTE, shards: 4 })
const plain = (name: string, options: Partial<Parameters<typeof job>[0]> = {}) =>
  job({ name, input: z.string(), run: ({ input }) => input, ...options })

const DEFINITIONS = [
  plain('free'),
  plain('exclusive', { concurrencyKey: (key) => String(key) }),
  plain('partitioned', { limits: [perKey.by((key: string) => key)] }),
  plain('rated', { limits: [bursty] }),
  plain('steady', { limits: [steady] }),
  plain('spread', { limits: [spread] }),
  plain('capped', { queue: 'capped' }),
]

const CLAIMERS = 8
const STEP_MS = 100

const declare = (engine: TestEngine) =>
  engine.store.declareLimits([
    ...[...engine.registry.limits].map(([name, policy]) => ({ name, policy })),
    { name: 'queue:capped', policy: { concurrency: 4, rate: undefined, shards: 1 } },
  ])

forEachVersion('limits with eight claimers at once', (version) => {
  const { start } = sharedEngines(version)
  const begin = async () => {
    const queues = { capped: { concurrency: 4 } }
    const engine = await start({ definitions: DEFINITIONS, queues, version, frozen: true, connections: 16 })
    await declare(engine)
    return engine
  }
  const same = (key: string, count: number) => Array.from({ length: count }, () => key)

  test('C156 two hundred runs of one key never overlap, and all of them end', async () => {
    const engine = await begin()
    await engine.spawnMany('exclusive', same('one', 200))
    expect(await churn(engine, 200, 8)).toBe(1)
  })

  test('C155 a queue never has more than its cap in hand, whoever claims from it', async () => {
    const engine = await begin()
    await engine.spawnMany('capped', same('', 200))
    expect(await churn(engine, 200, 8)).toBe(4)
  })

  test('C159 while holders are dead there are fewer slots, never more; once they are found missing, all of them', async () => {
    const engine = await begin()
    await engine.spawnMany('partitioned', same('one', 20))
    const dead = await claim(engine, { limit: 2, leaseMs: 1_000 })
    const [alive] = await claim(engine, { limit: 1, leaseMs: 3_600_000 })
    const eightClaim = async (request = {}) => {
      const requests = Array.from({ length: 8 }, () => claim(engine, { limit: 5, leaseMs: 3_600_000, ...request }))
      return (await Promise.all(requests)).flat()
    }
    expect([dead.length, (await eightClaim()).length]).toEqual([2, 0])
    await flush(engine, [finishes(alive!)])
    expect(await eightClaim()).toHaveLength(1)
    expect([await running(engine), (await eightClaim()).length]).toEqual([3, 0])
    engine.advance(1_000)
    const found = [...(await eightClaim({ peek: true })), ...(await eightClaim()), ...(await eightClaim())]
    expect([found.length, await running(engine)]).toEqual([2, 3])
  })

  test.each([
    ['in one bucket', 'steady'],
    ['in four shards', 'spread'],
  ])('C163 C164 100 a minute, %s: no minute sees more than that and the burst, and none is lost', async (_, name) => {
    const engine = await begin()
    const total = 250
    await engine.spawnMany(name, same('', total))
    const startedAt: number[] = []
    const first = engine.clock()
    const work = async () => {
      for (let empty = 0; startedAt.length < total && empty < 2_000; ) {
        const at = engine.clock()
        const runs = await claim(engine, { limit: 7 })
        startedAt.push(...runs.map(() => at))
        await flush(
          engine,
          runs.map((run) => finishes(run)),
        )
        empty = runs.length === 0 ? empty + 1 : 0
        engine.advance(STEP_MS)
      }
    }
    await Promise.all(Array.from({ length: CLAIMERS }, work))
    startedAt.sort((left, right) => left - right)
    expect(startedAt).toHaveLength(total)
    // one that claims at an older instant may be given what came until that of another
    const apart = STEP_MS * CLAIMERS
    for (const [index, from] of startedAt.entries()) {
      const inMinute = startedAt.slice(index).filter((at) => at - from < 60_000).length
      expect(inMinute).toBeLessThanOrEqual(A_MINUTE.burst + ((60_000 + apart) * A_MINUTE.count) / 60_000)
    }
    const tookMs = startedAt.at(-1)! - first
    const neededMs = ((total - A_MINUTE.burst) * 60_000) / A_MINUTE.count
    expect(tookMs).toBeGreaterThanOrEqual(neededMs - apart)
    expect(await running(engine)).toBe(0)
  })

  test('C170 C271 ten runs of other keys behind a thousand of a saturated one, in the same lane, finish in the next tick', async () => {
    const engine = await begin()
    await engine.spawnMany('partitioned', same('saturated', 1_003))
    expect(await claim(engine, { limit: 3 })).toHaveLength(3)
    await engine.spawnMany(
      'partitioned',
      Array.from({ length: 10 }, (_, n) => `key ${n}`),
    )
    expect(await engine.tick()).toMatchObject({ claimed: 10, completed: 10, more: false })
    // out of the window: the next tick does not meet them
    expect(await engine.store.claim(claimRequest(engine))).toMatchObject({ runs: [], setAside: 0 })
    expect(await engine.sql(IN_WINDOW, [engine.environment])).toEqual([0])
  })

  test('C170 C271 ten free runs behind a thousand that a rate denies finish in the next tick', async () => {
    const engine = await begin()
    await engine.spawnMany('rated', same('', 1_010))
    await engine.spawnMany('free', same('', 10))
    expect(await engine.tick()).toMatchObject({ completed: 20, more: false, nextDueAt: engine.clock() + 1_000 })
    engine.advance(1_000)
    expect(await engine.tick()).toMatchObject({ completed: 1, more: false })
  })
})

const IN_WINDOW = `
  SELECT count(*)::int FROM pawl.ready y JOIN pawl.lanes l ON l.id = abs(y.lane_id) JOIN pawl.environments e ON e.id = l.environment_id WHERE e.name = $1`
