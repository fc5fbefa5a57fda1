import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest, finishes, flush } from '../traps/outcomes.ts'
import { raceCount, raceTimeout } from '../traps/race-count.ts'
import { churn } from './churn.ts'

const three = limit('three', { concurrency: 3 })
const one = limit('one', { concurrency: 1 })
const other = limit('other', { concurrency: 1 })
const unknown = limit('nobody-declares-it', { concurrency: 1 })
const both = limit('both', { concurrency: 5, rate: { count: 2, per: '1 hour' } })
const sharded = limit('sharded', { concurrency: 16, shards: 8 })
const shardedRate = limit('sharded-rate', { rate: { count: 16, per: '1 day' }, shards: 4 })
const plain = (name: string, limits: Parameters<typeof job>[0]['limits'], queue?: string) =>
  job({ name, input: z.unknown(), limits, queue, run: ({ input }) => input ?? null })

const chain = machine({
  name: 'chain',
  input: z.enum(['keep', 'release', 'switch', 'wrong', 'default']),
  state: z.object({}),
  initialState: () => ({}),
  signals: { go: z.unknown() },
  limits: [one],
  initial: 'first',
  steps: {
    first: ({ input, next }) => {
      if (input === 'default') return next('second', { delay: '1 minute' })
      const limits = { keep: 'keep', release: 'release', switch: [other], wrong: [unknown] } as const
      return next('second', { delay: '1 minute', limits: limits[input] })
    },
    second: ({ done }) => done(undefined),
  },
})

const DEFINITIONS = [
  plain('free', []),
  plain('threefold', [three]),
  plain('either', [both]),
  plain('single', [one]),
  plain('partitioned', [three.by((key: string) => key)]),
  plain('composed', [three, one]),
  plain('spread', [sharded]),
  plain('spread-rate', [shardedRate]),
  plain('queued', [], 'orders'),
  plain('switched', [other]),
  chain,
]

const declare = (engine: TestEngine, changes: Readonly<Record<string, number>> = {}) =>
  engine.store.declareLimits([
    ...[...engine.registry.limits].map(([name, policy]) => ({
      name,
      policy: { ...policy, ...(changes[name] === undefined ? {} : { concurrency: changes[name] }) },
    })),
    { name: 'queue:orders', policy: { concurrency: 4, rate: undefined, shards: 1 } },
  ])

const held = (engine: TestEngine, name: string) =>
  engine.sql<number>(
    `SELECT sum(c.held)::int FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1 AND c.gate LIKE $2`,
    [engine.environment, `${name}\u001f%`],
  )

const upkeep = async (engine: TestEngine) => {
  await engine.sql("UPDATE pawl.environments SET upkeep_at = '-infinity' WHERE name = $1", [engine.environment])
  await engine.store.upkeep({ source: 'test', nextInMs: 60_000, minRetentionSeconds: 1_000_000 })
}

const many = (count: number) => Array.from({ length: count }, (_, n) => n)

/** In the long form four times as many as races: 20,000. */
const CHURN = raceCount(400, 4)

forEachVersion('gates', (version) => {
  const { start } = sharedEngines(version)
  const begin = async (frozen = true) => {
    const engine = await start({
      definitions: DEFINITIONS,
      queues: { orders: { concurrency: 4 } },
      version,
      frozen,
      connections: 16,
    })
    await declare(engine)
    return engine
  }

  test(
    'C158 under churn a gate of three never has more, all finish, and every slot is free at the end',
    async () => {
      const engine = await begin()
      for (let spawned = 0; spawned < CHURN; spawned += 200)
        await engine.spawnMany('threefold', many(Math.min(200, CHURN - spawned)))
      expect(await churn(engine, CHURN, 8)).toBe(3)
      expect(await held(engine, 'three')).toEqual([0])
    },
    raceTimeout(CHURN),
  )

  test('C155 the cap of a queue holds over four claims at once', async () => {
    const engine = await begin()
    await engine.spawnMany('queued', many(20))
    const claims = await Promise.all(many(4).map(() => claim(engine, { limit: 5 })))
    expect(claims.flat().length).toBeLessThanOrEqual(4)
    expect([...claims.flat(), ...(await claim(engine))]).toHaveLength(4)
  })

  test('C157 partitions do not count against each other', async () => {
    const engine = await begin()
    await engine.spawnMany(
      'partitioned',
      ['a', 'b', 'c', 'd', 'e'].flatMap((key) => [key, key, key, key]),
    )
    const runs = await claim(engine)
    expect(
      runs
        .map(({ input }) => input)
        .sort()
        .join(''),
    ).toBe('aaabbbcccdddeee')
  })

  test('C159 killed holders leave fewer slots, never more, until their leases end; then all are free again', async () => {
    const engine = await begin()
    await engine.spawnMany('threefold', many(6))
    expect(await claim(engine, { leaseMs: 1_000 })).toHaveLength(3)
    expect(await claim(engine)).toEqual([])
    engine.advance(60_000)
    const rescued = await engine.store.claim(claimRequest(engine, { peek: true, alone: false }))
    expect(rescued.runs.length).toBeLessThanOrEqual(3)
    await flush(
      engine,
      rescued.runs.map((run) => finishes(run)),
    )
    expect(await held(engine, 'three')).toEqual([0])
  })

  test('C159 a counter that says something else than the runs in hand is set right, kept slots included', async () => {
    const engine = await begin()
    await engine.spawn('chain', 'keep')
    await engine.tick()
    await engine.spawnMany('threefold', many(2))
    await claim(engine)
    await engine.sql(
      'UPDATE pawl.limit_counters SET held = 7 WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)',
      [engine.environment],
    )
    await upkeep(engine)
    expect([await held(engine, 'three'), await held(engine, 'one')]).toEqual([[2], [1]])
  })

  test('idle counters are dropped, and what comes later has them made again', async () => {
    const engine = await begin()
    await engine.spawnMany('partitioned', ['a', 'b'])
    await flush(
      engine,
      (await claim(engine)).map((run) => finishes(run)),
    )
    await engine.spawn('partitioned', 'late', { delay: 60_000 })
    await upkeep(engine)
    expect(await held(engine, 'three')).toEqual([null])
    engine.advance(60_000)
    const first = await engine.store.claim(claimRequest(engine))
    expect({ runs: first.runs.length, setAside: first.setAside }).toEqual({ runs: 0, setAside: 1 })
    expect(await claim(engine)).toHaveLength(1)
  })

  test('C160 a machine that keeps its slot over a pause is overlapped by nobody, and gives it back once', async () => {
    const engine = await begin()
    const kept = await engine.spawnId('chain', 'keep')
    await engine.tick()
    await engine.spawnMany('single', [1, 2])
    expect(await claim(engine)).toEqual([])
    expect(await held(engine, 'one')).toEqual([1])
    engine.advance(60_000)
    await engine.tick()
    expect(await engine.run(kept)).toMatchObject({ status: 'completed' })
    expect(await held(engine, 'one')).toEqual([0])
  })

  test('C160 what a cancelled machine kept goes to who waits for it', async () => {
    const engine = await begin()
    const kept = await engine.spawnId('chain', 'keep')
    await engine.tick()
    await engine.spawnMany('single', [1])
    expect(await claim(engine)).toEqual([])
    await engine.store.cancel(kept, { tenant: 'default', by: null })
    expect(await claim(engine)).toHaveLength(1)
    expect(await held(engine, 'one')).toEqual([1])
  })

  test('C161 a slot that is released or switched, or given back at a pause, admits another at once', async () => {
    for (const how of ['release', 'switch', 'default'] as const) {
      const engine = await begin()
      const id = await engine.spawnId('chain', how)
      await engine.spawnMany('single', [1])
      await claim(engine).then((runs) =>
        flush(
          engine,
          runs.map((run) => ({ ...finishes(run), kind: 'release', status: 'pending' })),
        ),
      )
      expect(await engine.tick()).toMatchObject({ completed: 1 })
      expect((await engine.sql('SELECT gates FROM pawl.runs WHERE id = $1', [id]))[0]).toEqual(
        { release: null, switch: ['other\u001f'], default: ['one\u001f'] }[how],
      )
      expect(await held(engine, 'one')).toEqual([0])
      await engine.spawnMany('switched', [1])
      expect(await claim(engine)).toHaveLength(1)
      engine.advance(60_000)
      const second = await claim(engine)
      expect(second).toHaveLength(how === 'switch' ? 0 : 1)
    }
  })

  test('C162 more than there is cannot be committed', async () => {
    const engine = await begin()
    await engine.spawn('either', 1)
    for (const column of ['held', 'available'])
      await expect(engine.sql(`UPDATE pawl.limit_counters SET ${column} = -1`)).rejects.toThrow(/not_negative/)
  })

  test('C166 C167 trap 20: a weight that never fits, and a limit that nobody declares, are refused where they are written, by name', async () => {
    expect(() => three.weighing(4)).toThrow(/limit "three".weight/)
    expect(() => sharded.weighing(3)).toThrow(/limit "sharded".weight/)
    expect(() => limit('l', { concurrency: 2, shards: 3 })).toThrow(/shards/)
    const engine = await begin()
    const id = await engine.spawnId('chain', 'wrong', { maxAttempts: 1 })
    await engine.tick()
    expect((await engine.run(id)).error).toMatchObject({
      code: 'unknown_limit',
      message: expect.stringContaining('nobody-declares-it'),
    })
  })

  test('C171 trap 9: a limit lowered while its slots are held aborts no flush, and admits nobody until enough are given back', async () => {
    const engine = await begin()
    await engine.spawnMany('threefold', many(6))
    const runs = await claim(engine)
    await declare(engine, { three: 1 })
    const left: number[] = []
    for (const run of runs) {
      expect((await flush(engine, [finishes(run)])).outcomes).toMatchObject([{ kind: 'applied' }])
      left.push((await claim(engine)).length)
    }
    expect(left).toEqual([0, 0, 1])
    await declare(engine)
    await upkeep(engine)
    expect(await claim(engine)).toHaveLength(2)
  })

  test('C171 trap 20: a run heavier than its lowered limit takes the whole of it, and nobody overtakes it', async () => {
    const engine = await begin()
    await engine.sql(
      `UPDATE pawl.limits SET concurrency = 2 WHERE name = 'three' AND environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`,
      [engine.environment],
    )
    await engine.spawn('threefold', 'light')
    const heavy = await engine.spawnId('threefold', 'heavy')
    await engine.sql('UPDATE pawl.runs SET gate_units = ARRAY[3] WHERE id = $1', [heavy])
    await engine.spawn('threefold', 'later')
    const [light] = await claim(engine)
    expect(await claim(engine)).toEqual([])
    await flush(engine, [finishes(light!)])
    const whole = await claim(engine)
    expect(whole.map(({ input }) => input)).toEqual(['heavy'])
    await flush(engine, [finishes(whole[0]!)])
    expect((await claim(engine)).map(({ input }) => input)).toEqual(['later'])
    expect(await held(engine, 'three')).toEqual([1])
  })

  test('what one gate rejects is not charged to another, and both of a limit have to admit', async () => {
    const engine = await begin()
    await engine.spawnMany('composed', many(3))
    expect(await claim(engine)).toHaveLength(1)
    expect([await held(engine, 'three'), await held(engine, 'one')]).toEqual([[1], [1]])
    await engine.spawnMany('either', many(4))
    const first = await claim(engine)
    expect(first).toHaveLength(2)
    await flush(
      engine,
      first.map((run) => finishes(run)),
    )
    expect(await claim(engine)).toEqual([])
    engine.advance(1_800_000)
    expect(await claim(engine)).toHaveLength(1)
  })

  test('a run given back unstarted has its token back', async () => {
    const engine = await begin()
    await engine.spawnMany('either', many(2))
    for (let times = 0; times < 3; times += 1) {
      const runs = await claim(engine)
      expect(runs).toHaveLength(2)
      await flush(
        engine,
        runs.map((run) => ({ ...finishes(run), kind: 'release', status: 'pending' })),
      )
    }
  })

  test('shards admit as much as there is and never more', async () => {
    const engine = await begin()
    await engine.spawnMany('spread', many(60))
    const taken = async () => {
      const runs = []
      for (let times = 0; times < 12; times += 1) runs.push(...(await claim(engine, { limit: 4 })))
      return runs
    }
    const claims = await Promise.all(many(4).map(taken))
    expect(claims.flat()).toHaveLength(16)
    await flush(
      engine,
      claims.flat().map((run) => finishes(run)),
    )
    expect(await held(engine, 'sharded')).toEqual([0])
    expect(await churn(engine, 44, 8)).toBeLessThanOrEqual(16)
    await engine.spawnMany('spread-rate', many(40))
    expect(await taken()).toHaveLength(16)
  })

  test('C170 C271 trap 8: ten free runs behind a thousand denied ones finish in the next tick', async () => {
    const engine = await begin()
    await engine.spawnMany('single', many(1))
    await claim(engine)
    await engine.spawnMany('single', many(1_000))
    const free = await engine.spawnMany('free', many(10))
    expect(await engine.tick()).toMatchObject({ completed: 10 })
    expect((await engine.run(free[9]!)).status).toBe('completed')
    const { length } = engine.sent
    await engine.spawn('free', 1)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(engine.sent.length - length).toBeLessThanOrEqual(4)
  })

  test('C275 lanes beyond those that one claim opens have their turn in the same pass', async () => {
    const engine = await begin()
    for (const tenant of many(70)) await engine.spawnMany('free', [1, 2], { tenant: `tenant ${tenant}` })
    const report = await engine.tick()
    expect(report).toMatchObject({ completed: 140, more: false })
  })

  test('C275 the one run of a tenant is not behind the backlog of another', async () => {
    const engine = await begin()
    await engine.spawnMany('free', many(1_000), { tenant: 'flood' })
    const single = await engine.spawnId('free', 'single', { tenant: 'small' })
    expect((await claim(engine, { limit: 10 })).map(({ id }) => id)).toContain(single)
  })
})
