import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { blockDenied } from '../../src/db/statements/block-denied.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock } from '../support/races.ts'
import { claim, claimRequest, finishes, flush, moves } from '../traps/outcomes.ts'

const three = limit('three', { concurrency: 3 })
const ten = limit('ten', { concurrency: 10 })
const split = limit('split', { concurrency: 2, shards: 2 })
const rate = limit('rate', { rate: { count: 2, per: '20s', burst: 2 } })
const plain = (name: string, limits: Parameters<typeof job>[0]['limits']) =>
  job({ name, input: z.unknown(), limits, run: () => null })
const definitions = [
  plain('free', []),
  plain('three', [three]),
  plain('both', [three, ten]),
  plain('light', [ten]),
  plain('heavy', [ten.weighing(6)]),
  plain('split', [split]),
  plain('rated', [rate]),
]

const many = (count: number) => Array.from({ length: count }, (_, n) => n)
const OF =
  'FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id JOIN pawl.environments e ON e.id = r.environment_id WHERE e.name = $1'

forEachVersion('what gates deny leaves the window in bulk', (version) => {
  const { start } = sharedEngines(version)
  const begin = async () => {
    const engine = await start({ definitions, version, frozen: true, connections: 16 })
    await engine.store.declareLimits([...engine.registry.limits].map(([name, policy]) => ({ name, policy })))
    return engine
  }
  /** How many left the window: it looks at so many of each lane. */
  const sweep = async (engine: TestEngine, limit = 1_000): Promise<number> => {
    const lanes = await engine.sql<number>(
      'SELECT l.id FROM pawl.lanes l JOIN pawl.environments e ON e.id = l.environment_id WHERE e.name = $1 ORDER BY l.id',
      [engine.environment],
    )
    const now = new Date(engine.clock()).toISOString()
    const [row] = await engine.database.query(blockDenied('pawl', { now, environment: engine.environment, lanes, limit }))
    return Number(row?.blocked)
  }
  const blocked = (engine: TestEngine) =>
    engine.sql<string>(
      `SELECT l.definition || ' on ' || split_part(r.blocked_on, E'\\x1f', 1) ${OF} AND r.blocked_on IS NOT NULL ORDER BY r.id`,
      [engine.environment],
    )
  const counterOf = (name: string, shard = 0) =>
    `SELECT FROM pawl.limit_counters WHERE gate LIKE '${name}\u001f%' AND shard = ${shard} FOR UPDATE`
  const fill = async (engine: TestEngine, definition: string, count: number) => {
    await engine.spawnMany(definition, many(count))
    // the first claim may have to have the counters made
    const runs = [...(await claim(engine))]
    for (let turns = 0; runs.length < count && turns < 5; turns += 1) runs.push(...(await claim(engine)))
    expect(runs).toHaveLength(count)
    return runs
  }

  test('all that it looks at, once a gate is full: it is handed over in order, and nobody else is touched', async () => {
    const engine = await begin()
    const inHand = await fill(engine, 'three', 2)
    await engine.spawnMany('three', many(20))
    await engine.spawnMany('free', many(2))
    expect(await sweep(engine)).toBe(0)
    const [last] = await claim(engine, { limit: 1 })
    expect([await sweep(engine, 5), await sweep(engine)]).toEqual([5, 14])
    expect(await claim(engine)).toHaveLength(2)
    await flush(
      engine,
      [...inHand, last!].map((run) => finishes(run)),
    )
    const next = await claim(engine)
    const all = await engine.sql<string>(`SELECT r.id::text ${OF} AND l.definition = 'three' ORDER BY r.position`, [
      engine.environment,
    ])
    expect(next.map(({ id }) => id)).toEqual(all.slice(3, 6))
  })

  test('on the one of several gates that is full', async () => {
    const engine = await begin()
    await fill(engine, 'three', 3)
    await engine.spawnMany('both', many(2))
    expect(await sweep(engine)).toBe(2)
    expect(await blocked(engine)).toEqual(['both on three', 'both on three'])
  })

  test('a counter that others hold proves nothing, whatever it had', async () => {
    const engine = await begin()
    await fill(engine, 'three', 3)
    await engine.spawnMany('three', many(5))
    const lock = await holdRowLock(engine.fresh.connectionString, counterOf('three'))
    expect(await sweep(engine)).toBe(0)
    await lock.release()
    expect(await sweep(engine)).toBe(5)
  })

  test('nor does one that is not there', async () => {
    const engine = await begin()
    await engine.spawnMany('three', many(5))
    expect(await sweep(engine)).toBe(0)
    const runs = [...(await claim(engine)), ...(await claim(engine))]
    expect(runs).toHaveLength(3)
  })

  test('who is in the hands of others is passed over, and stays in the window', async () => {
    const engine = await begin()
    await fill(engine, 'three', 3)
    const [first] = await engine.spawnMany('three', many(5))
    const lock = await holdRowLock(engine.fresh.connectionString, `SELECT FROM pawl.runs WHERE id = '${first}' FOR UPDATE`)
    expect(await sweep(engine)).toBe(4)
    await lock.release()
    expect(await sweep(engine)).toBe(1)
  })

  test('who has kept his slot asks for nothing', async () => {
    const engine = await begin()
    const [keeper, ...others] = await fill(engine, 'three', 3)
    await flush(engine, [{ ...moves(keeper!, 'run'), slots: 'keep' }])
    await engine.spawnMany('three', many(3))
    expect(await sweep(engine)).toBe(3)
    expect((await claim(engine)).map(({ id }) => id)).toEqual([keeper!.id])
    expect(others).toHaveLength(2)
  })

  test('a limit in shards is full when all of them are, and all are there', async () => {
    const engine = await begin()
    const [first, second] = await fill(engine, 'split', 2)
    await flush(engine, [finishes(first!)])
    await engine.spawnMany('split', many(5))
    expect(await sweep(engine)).toBe(0)
    // the one with room is in the hands of others: it is looked at all the same
    for (const shard of [0, 1]) {
      const lock = await holdRowLock(engine.fresh.connectionString, counterOf('split', shard))
      expect(await sweep(engine)).toBe(0)
      await lock.release()
    }
    expect(await claim(engine, { limit: 1 })).toHaveLength(1)
    await engine.sql(
      `WITH gone AS (DELETE FROM pawl.limit_counters WHERE gate LIKE 'split%' AND shard = 1 RETURNING *) SELECT 1 FROM gone`,
    )
    expect(await sweep(engine)).toBe(0)
    expect(second).toBeDefined()
  })

  test('by what each weighs; behind a heavy one that waits nobody stays', async () => {
    const engine = await begin()
    const inHand = await fill(engine, 'light', 6)
    await engine.spawnMany('heavy', many(2))
    await engine.spawnMany('light', many(3))
    expect(await sweep(engine)).toBe(2)
    expect(await blocked(engine)).toEqual(['heavy on ten', 'heavy on ten'])
    // four are free, and six are waited for
    expect(await sweep(engine)).toBe(3)
    await flush(
      engine,
      inHand.map((run) => finishes(run)),
    )
    expect((await claim(engine)).map(({ definition }) => definition)).toEqual(['heavy'])
  })

  test('for tokens, and the next of them is noted', async () => {
    const engine = await begin()
    const inHand = await fill(engine, 'rated', 2)
    await flush(
      engine,
      inHand.map((run) => finishes(run)),
    )
    await engine.spawnMany('rated', many(5))
    expect(await sweep(engine)).toBe(5)
    expect(await engine.tick()).toMatchObject({ claimed: 0, more: false, nextDueAt: engine.clock() + 10_000 })
    engine.advance(10_000)
    expect(await engine.tick()).toMatchObject({ claimed: 1 })
  })

  test('it goes with the claim behind one that was denied most of what it looked at, and with no other', async () => {
    const engine = await begin()
    await fill(engine, 'three', 3)
    const sweeps = () => engine.sent.flat().filter((name) => name === 'block_denied').length
    await engine.spawnMany('free', many(6))
    await engine.spawnMany('three', many(4))
    expect(await engine.store.claim(claimRequest(engine, { limit: 10 }))).toMatchObject({ setAside: 4 })
    await claim(engine)
    expect(sweeps()).toBe(0)
    await engine.spawnMany('three', many(150))
    expect(await engine.store.claim(claimRequest(engine, { limit: 5 }))).toMatchObject({ runs: [], setAside: 5 })
    // twenty times as far
    expect(await engine.store.claim(claimRequest(engine, { limit: 5 }))).toMatchObject({ runs: [], setAside: 105 })
    expect(await engine.store.claim(claimRequest(engine, { limit: 5 }))).toMatchObject({ runs: [], setAside: 40 })
    await claim(engine)
    await claim(engine)
    expect(sweeps()).toBe(3)
  })
})
