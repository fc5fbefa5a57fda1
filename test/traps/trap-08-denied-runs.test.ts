import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, finishes, flush, goesOn, moves } from './outcomes.ts'

const pair = limit('pair', { concurrency: 2 })
const spread = limit('spread', { concurrency: 4, shards: 2 })

const paired = job({ name: 'paired', input: z.unknown(), limits: [pair], run: () => null })
const sharded = job({ name: 'sharded', input: z.unknown(), limits: [spread], run: () => null })
const free = job({ name: 'free', input: z.unknown(), run: () => null })
const chain = machine({
  name: 'chain',
  input: z.unknown(),
  state: z.object({}),
  initialState: () => ({}),
  limits: [pair],
  initial: 'first',
  steps: { first: ({ next }) => next('second'), second: ({ done }) => done(undefined) },
})

forEachVersion('traps 8 and 9: slots', (version) => {
  const { start } = sharedEngines(version)
  const begin = async () => {
    const engine = await start({ definitions: [paired, sharded, free, chain], version, frozen: true })
    await declare(engine)
    return engine
  }

  test('trap 8: what a claim denies is out of the window when it commits, and what it has not asked for is not', async () => {
    const engine = await begin()
    await engine.spawnMany('paired', [1, 2])
    await claim(engine)
    await engine.spawnMany('paired', [3, 4, 5])
    await engine.spawnMany('free', [1, 2, 3])
    expect(await claim(engine, { limit: 3 })).toEqual([])
    expect(await engine.sql(BLOCKED, [engine.environment])).toEqual([3])
    expect(await engine.sql(IN_WINDOW, [engine.environment])).toEqual(['free', 'free', 'free'])
  })

  test('trap 9: a step that goes on in hand gives nothing back while another of the same flush does', async () => {
    const engine = await begin()
    await engine.spawn('chain', 1)
    await engine.spawn('paired', 1)
    const runs = await claim(engine)
    const going = runs.find(({ step }) => step === 'first')!
    const ending = runs.find(({ id }) => id !== going.id)!
    await flush(engine, [goesOn(going, 'second'), finishes(ending)])
    expect(await held(engine, 'pair')).toEqual([1])
    await engine.spawnMany('paired', [2, 3])
    const next = await claim(engine)
    expect([...next, ...(await claim(engine))]).toHaveLength(1)
  })

  test('trap 9: what a cancelled run had kept is given back once, however often it is cancelled', async () => {
    const engine = await begin()
    const id = await engine.spawnId('chain', 1)
    const [run] = await claim(engine)
    await flush(engine, [{ ...moves(run!, 'second', 60_000), slots: 'keep' }])
    await engine.spawn('paired', 1)
    expect(await claim(engine)).toHaveLength(1)
    expect(await held(engine, 'pair')).toEqual([2])
    for (let times = 0; times < 3; times += 1) await engine.store.cancel(id, { tenant: 'default', by: null })
    expect(await held(engine, 'pair')).toEqual([1])
  })

  test('trap 9: a shard that holds more than its lowered share does not hide the room of another', async () => {
    const engine = await begin()
    await engine.spawnMany('sharded', [1, 2, 3, 4])
    const runs = [...(await claim(engine)), ...(await claim(engine))]
    expect(runs).toHaveLength(4)
    await declare(engine, { spread: 2 })
    await engine.spawn('sharded', 5)
    for (let claims = 0; claims < 2; claims += 1) expect(await claim(engine)).toEqual([])
    expect(await engine.sql(BLOCKED, [engine.environment])).toEqual([1])
    const [shard] = await engine.sql<readonly string[]>(ON_SECOND_SHARD, [engine.environment])
    await flush(
      engine,
      runs.filter(({ id }) => shard!.includes(id)).map((run) => finishes(run)),
    )
    expect(await claim(engine)).toHaveLength(1)
  })
})

const OF = 'JOIN pawl.environments e ON e.id = r.environment_id WHERE e.name = $1'
const BLOCKED = `SELECT count(*)::int FROM pawl.runs r ${OF} AND r.blocked_on IS NOT NULL`
const IN_WINDOW = `SELECT l.definition FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id JOIN pawl.lanes l ON l.id = r.lane_id ${OF} ORDER BY r.position`
const ON_SECOND_SHARD = `SELECT array_agg(r.id::text) FROM pawl.runs r ${OF} AND r.gate_shards[1] = 1`

const held = (engine: TestEngine, name: string) =>
  engine.sql<number>(
    `SELECT sum(c.held)::int FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1 AND c.gate LIKE $2`,
    [engine.environment, `${name}\u001f%`],
  )

const declare = (engine: TestEngine, changes: Readonly<Record<string, number>> = {}) =>
  engine.store.declareLimits(
    [...engine.registry.limits].map(([name, policy]) => ({
      name,
      policy: { ...policy, ...(changes[name] === undefined ? {} : { concurrency: changes[name] }) },
    })),
  )
