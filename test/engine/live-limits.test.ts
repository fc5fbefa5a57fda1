import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { type LimitPolicy, limit } from '../../src/core/limit.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest, finishes, flush } from '../traps/outcomes.ts'
import { raceCount, raceTimeout } from '../traps/race-count.ts'

const limited = limit('limited', { concurrency: 8 })
const definitions = [
  job({ name: 'work', input: z.unknown(), limits: [limited], run: () => null }),
  job({ name: 'heavy', input: z.unknown(), limits: [limited.weighing(2)], run: () => null }),
]

type Policy = LimitPolicy

const slots = (concurrency: number, shards = 1): Policy => ({ concurrency, rate: undefined, shards })
const rate = (perMs: number, burst: number, concurrency?: number): Policy => ({
  concurrency,
  rate: { count: 1, perMs, burst },
  shards: 1,
})
const HOUR = 3_600_000

const declare = (engine: TestEngine, policy: Policy) => engine.store.declareLimits([{ name: 'limited', policy }])

/** Each is declared after the one before while claims and flushes go on, round and round. At most so many runs may be in hand, where that is looked at. */
const CHANGES: Readonly<
  Record<string, { readonly policies: readonly Policy[]; readonly most: number; readonly weights: boolean }>
> = {
  'lowered and raised': { policies: [8, 1, 5, 2].map((concurrency) => slots(concurrency)), most: 8, weights: true },
  'lowered and raised over shards': { policies: [8, 2, 5].map((concurrency) => slots(concurrency, 4)), most: 8, weights: false },
  'spread over more and fewer shards': { policies: [1, 8, 2].map((shards) => slots(8, shards)), most: Infinity, weights: false },
}

/** Claims and finishes with eight claimers while the limit changes; the most that were ever in hand. */
async function churn(engine: TestEngine, total: number, policies: readonly Policy[]): Promise<number> {
  let [left, most, inHand] = [total, 0, 0]
  const work = async () => {
    while (left > 0) {
      const { runs } = await engine.store.claim(claimRequest(engine, { limit: 4 }))
      inHand += runs.length
      most = Math.max(most, inHand)
      // others have their turn while it is in hand
      await new Promise((resolve) => setImmediate(resolve))
      inHand -= runs.length
      left -= runs.length
      const outcomes = runs.map((run) => finishes(run))
      if (runs.length > 0) await flush(engine, outcomes)
      else await idle(engine)
    }
  }
  const change = async () => {
    for (let n = 0; left > 0; n += 1) await declare(engine, policies[n % policies.length] as Policy)
  }
  await Promise.all([change(), ...Array.from({ length: 8 }, work)])
  return most
}

/** What a tick without work does besides. */
async function idle(engine: TestEngine): Promise<void> {
  engine.advance(1)
  await engine.store.upkeep({ source: 'test', nextInMs: 60_000, minRetentionSeconds: 1_000_000 })
}

const heldOf = (engine: TestEngine) =>
  engine.sql<number>(
    'SELECT coalesce(sum(c.held), 0)::int FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1',
    [engine.environment],
  )
const many = (count: number) => Array.from({ length: count }, () => ({}))
const COUNT = raceCount(80)

forEachVersion('limits that are changed while they are asked', (version) => {
  const { start } = sharedEngines(version)

  test.each(Object.entries(CHANGES))(
    'C171 %s: everybody has their turn, and every slot is free at the end',
    async (_, { policies, most, weights }) => {
      const engine = await start({ definitions, version, frozen: true, connections: 16 })
      await declare(engine, policies[0] as Policy)
      const names = weights ? ['work', 'heavy'] : ['work']
      for (const name of names) await engine.spawnMany(name, many(COUNT / names.length))
      expect(await churn(engine, COUNT, policies)).toBeLessThanOrEqual(most)
      expect(await heldOf(engine)).toEqual([0])
    },
    raceTimeout(COUNT),
  )

  test.each([
    ['more slots', slots(1), slots(3)],
    ['tokens in place of slots', slots(1), rate(HOUR, 5)],
    ['slots in place of tokens', rate(HOUR, 1), slots(3)],
    ['more tokens', rate(HOUR, 1), rate(1, 4)],
    ['tokens that come sooner', rate(HOUR, 1), rate(100, 1)],
  ] as const)(
    'C171 a limit is given %s: the next tick lets in who waits, or knows when he can come',
    async (_, before, after) => {
      const engine = await start({ definitions, version, frozen: true })
      await engine.tick()
      await declare(engine, before)
      await engine.tick()
      await engine.spawnMany('work', many(6))
      expect(await claim(engine)).toHaveLength(1)
      expect(await claim(engine)).toHaveLength(0)
      expect(await engine.tick()).toMatchObject({ claimed: 0 })
      await declare(engine, after)
      const first = await engine.tick()
      engine.advance(100)
      const second = await engine.tick()
      expect(first.claimed + second.claimed).toBeGreaterThan(0)
    },
  )

  test('a limit that is new, or declared as it was, makes nothing due', async () => {
    const engine = await start({ definitions, version, frozen: true })
    await engine.tick()
    const upkeepAt = () => engine.sql<Date>('SELECT upkeep_at FROM pawl.environments WHERE name = $1', [engine.environment])
    const before = await upkeepAt()
    await declare(engine, slots(8))
    await engine.store.declareLimits([{ name: 'new', policy: slots(1) }])
    expect(await upkeepAt()).toEqual(before)
    await declare(engine, slots(7))
    expect(await upkeepAt()).not.toEqual(before)
  })
})
