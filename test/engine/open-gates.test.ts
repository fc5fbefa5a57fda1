import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock } from '../support/races.ts'
import { claimRequest, finishes, flush } from '../traps/outcomes.ts'
import { churn } from './churn.ts'

const ten = limit('ten', { concurrency: 10 })
const weighed = limit('weighed', { concurrency: 10 })
const rated = limit('rated', { concurrency: 8, rate: { count: 5, per: '1 day' } })
const sharded = limit('sharded', { concurrency: 80, shards: 8 })
const plain = (name: string, limits: Parameters<typeof job>[0]['limits']) =>
  job({ name, input: z.unknown(), limits, run: ({ input }) => input ?? null })
const DEFINITIONS = [
  plain('free', []),
  plain('tenfold', [ten]),
  plain('light', [weighed]),
  plain('heavy', [weighed.weighing(9)]),
  plain('rated', [rated]),
  plain('both', [ten, rated]),
  plain('spread', [sharded]),
]

const many = (count: number) => Array.from({ length: count }, (_, n) => n)

forEachVersion('gates that are wide open', (version) => {
  const { start } = sharedEngines(version)
  const begin = async () => {
    const engine = await start({ definitions: DEFINITIONS, version, frozen: true, connections: 16 })
    await engine.store.declareLimits([...engine.registry.limits].map(([name, policy]) => ({ name, policy })))
    return engine
  }
  const counters = (engine: TestEngine, name: string) =>
    engine.sql<string>(
      `SELECT c.shard || ': ' || c.held || coalesce(', ' || c.available, '') FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id
       WHERE e.name = $1 AND c.gate LIKE $2 AND (c.held > 0 OR c.available IS NOT NULL) ORDER BY c.shard`,
      [engine.environment, `${name}\u001f%`],
    )
  const claim = (engine: TestEngine, limit = 100) => engine.store.claim(claimRequest(engine, { limit, gated: 'open' }))
  const blocked = (engine: TestEngine) =>
    engine.sql<number>(
      `SELECT count(*)::int FROM pawl.runs r JOIN pawl.environments e ON e.id = r.environment_id WHERE e.name = $1 AND r.blocked_on IS NOT NULL`,
      [engine.environment],
    )
  const sentLast = (engine: TestEngine) => engine.sent.at(-1)?.filter((name) => name.startsWith('claim_'))

  test('a claim takes all that there is room for, and charges each gate for what it took', async () => {
    const engine = await begin()
    await engine.spawnMany('tenfold', many(3))
    await engine.spawnMany('both', many(2))
    await engine.spawnMany('free', many(2))
    const { runs, setAside } = await claim(engine)
    expect([runs.length, setAside]).toEqual([7, 0])
    expect(sentLast(engine)).toEqual(['claim_open_gates'])
    expect([await counters(engine, 'ten'), await counters(engine, 'rated')]).toEqual([['0: 5'], ['0: 2, 3']])
    await flush(
      engine,
      runs.map((run) => finishes(run)),
    )
    expect([await counters(engine, 'ten'), await counters(engine, 'rated')]).toEqual([[], ['0: 0, 3']])
  })

  test('what more ask for than there is room is left, with all who ask it, and the next claim asks all', async () => {
    const engine = await begin()
    await engine.spawnMany('tenfold', many(11))
    await engine.spawnMany('free', many(2))
    const first = await claim(engine)
    expect([first.runs.length, first.setAside, first.passedOver]).toEqual([2, 11, 0])
    expect(await blocked(engine)).toEqual([0])
    const second = await claim(engine)
    expect(sentLast(engine)).toEqual(['claim_gated_runs'])
    expect([second.runs.length, second.setAside]).toEqual([10, 1])
    expect(await blocked(engine)).toEqual([1])
    expect(await engine.tick()).toMatchObject({ completed: 0 })
  })

  test('tokens are no fewer than what is asked for, or the gate is not open', async () => {
    const engine = await begin()
    await engine.spawnMany('rated', many(6))
    expect((await claim(engine)).runs).toHaveLength(0)
    expect((await claim(engine)).runs).toHaveLength(5)
  })

  test('who weighs more, or has kept a slot, is for a claim that asks all; nobody overtakes it', async () => {
    const engine = await begin()
    const heavy = await engine.spawnId('heavy')
    const light = await engine.spawnMany('light', many(3))
    const first = await claim(engine)
    expect([first.runs.length, first.setAside]).toEqual([0, 4])
    expect((await claim(engine)).runs.map(({ id }) => id)).toEqual([heavy, light[0]])
    const kept = await engine.spawnId('tenfold')
    await engine.sql('UPDATE pawl.runs SET held_gates = gates WHERE id = $1', [kept])
    const calm = await begin()
    expect((await claim(calm)).runs).toHaveLength(0)
    await calm.sql('UPDATE pawl.runs SET held_gates = NULL WHERE id = $1', [kept])
  })

  test('where somebody waits nobody is let in past them, though there is room', async () => {
    const engine = await begin()
    const [first = '', second = ''] = await engine.spawnMany('tenfold', many(2))
    await engine.sql('UPDATE pawl.runs SET blocked_on = gates[1] WHERE id = $1', [first])
    await engine.sql('DELETE FROM pawl.ready WHERE run_id = $1', [first])
    const reply = await claim(engine)
    expect([reply.runs.length, reply.setAside]).toEqual([0, 1])
    expect((await engine.run(second)).status).toBe('pending')
  })

  test('a counter that others hold proves nothing: who asks it is passed over, and claims go on asking little', async () => {
    const engine = await begin()
    await engine.spawnMany('tenfold', many(2))
    const lock = `SELECT FROM pawl.limit_counters c WHERE c.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) FOR UPDATE`
    const held = await holdRowLock(engine.fresh.connectionString, lock, [engine.environment])
    const reply = await claim(engine)
    await held.release()
    expect([reply.runs.length, reply.setAside, reply.passedOver]).toEqual([0, 0, 2])
    expect((await claim(engine)).runs).toHaveLength(2)
    expect(sentLast(engine)).toEqual(['claim_open_gates'])
  })

  test('counters that are not there are made ahead of the next claim', async () => {
    const engine = await begin()
    await engine.spawnMany('tenfold', many(2))
    await engine.sql(
      'DELETE FROM pawl.limit_counters WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)',
      [engine.environment],
    )
    expect(await claim(engine)).toMatchObject({ runs: [], setAside: 1 })
    expect((await claim(engine)).runs).toHaveLength(2)
    expect(engine.sent.at(-1)).toEqual(expect.arrayContaining(['mint_gates', 'claim_open_gates']))
  })

  test('a flush that claims takes from the counter that it has given back to', async () => {
    const engine = await begin()
    await engine.spawnMany('spread', many(60))
    const shards = new Set<string>()
    let { runs } = await claim(engine, 5)
    for (let times = 0; times < 10; times += 1) {
      for (const counter of await counters(engine, 'sharded')) shards.add(counter)
      const outcomes = runs.map((run) => finishes(run))
      const request = { outcomes, endedClaims: [...new Set(runs.map(({ claimId }) => claimId))] }
      const reply = await engine.store.flush(request, claimRequest(engine, { limit: 5, gated: 'open', alone: false }))
      runs = [...(reply.claim?.runs ?? [])]
    }
    expect([...shards]).toEqual([expect.stringMatching(/^\d: 5$/)])
  })

  test('claims that found themselves in one counter leave it to one of them', async () => {
    const engine = await begin()
    await engine.spawnMany('spread', many(60))
    const own = await claim(engine, 5)
    const mine = await counters(engine, 'sharded')
    // others have taken as much from the same one, as they may when they come between two of our transactions
    await engine.sql(
      `UPDATE pawl.limit_counters SET held = held + 5 WHERE held > 0 AND environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`,
      [engine.environment],
    )
    const request = { outcomes: own.runs.map((run) => finishes(run)), endedClaims: [] }
    await engine.store.flush(request, claimRequest(engine, { limit: 5, gated: 'open', alone: false }))
    const after = await counters(engine, 'sharded')
    expect([mine.length, after.length]).toEqual([1, 2])
    expect(after).toEqual(expect.arrayContaining([...mine]))
  })

  test('over eight claimers no gate has more than it may, and nothing is held at the end', async () => {
    const engine = await begin()
    await engine.spawnMany('tenfold', many(150))
    await engine.spawnMany('spread', many(150))
    expect(await churn(engine, 300, 8, 'open')).toBeLessThanOrEqual(90)
    expect([await counters(engine, 'ten'), await counters(engine, 'sharded')]).toEqual([[], []])
  })
})
