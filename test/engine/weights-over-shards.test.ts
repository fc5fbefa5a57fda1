import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { type Limit, limit } from '../../src/core/limit.ts'
import type { ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimOne, finishes, flush } from '../traps/outcomes.ts'

const DAY = 86_400_000
const slots = limit('slots', { concurrency: 4, shards: 2 })
const many = limit('many', { concurrency: 32, shards: 16 })
const tokens = limit('tokens', { rate: { count: 4, per: '1 day' }, shards: 2 })
const both = limit('both', { concurrency: 4, rate: { count: 1_000, per: '1 minute' }, shards: 2 })
const definitionsOf = (limited: Limit) => [
  job({ name: `${limited.name}-light`, input: z.unknown(), limits: [limited], run: () => null }),
  job({ name: `${limited.name}-heavy`, input: z.unknown(), limits: [limited.weighing(2)], run: () => null }),
]

/** A light run in hand for each of those shards: claims look at the shards in an order of their own. */
async function holdOneIn(engine: TestEngine, name: string, shards: readonly number[]): Promise<readonly ClaimedRun[]> {
  await engine.spawnMany(`${name}-light`, Array.from(shards))
  const runs: ClaimedRun[] = []
  while (runs.length < shards.length) runs.push(...(await claim(engine, { limit: 1 })))
  const held = `UPDATE pawl.limit_counters c SET held = (c.shard = ANY ($2::int[]))::int FROM pawl.environments e WHERE e.id = c.environment_id AND e.name = $1`
  await engine.sql(held, [engine.environment, shards])
  const place = `UPDATE pawl.runs SET gate_shards = ARRAY[$2]::smallint[] WHERE id = $1`
  for (const [index, run] of runs.entries()) await engine.sql(place, [run.id, shards[index]])
  return runs
}

const held = (engine: TestEngine) =>
  engine.sql(
    `SELECT sum(c.held)::int FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1`,
    [engine.environment],
  )

forEachVersion('weights over shards', (version) => {
  const { start } = sharedEngines(version)
  const begin = async (limited: Limit) => {
    const engine = await start({ definitions: definitionsOf(limited), version, frozen: true })
    await engine.store.declareLimits([{ name: limited.name, policy: limited.policy }])
    await engine.tick()
    return engine
  }

  test('C165 a heavy run goes to the shard that has room for it, whichever that is', async () => {
    for (const [limited, taken] of [
      [slots, [0]],
      [slots, [1]],
      [both, [0]],
      [both, [1]],
      [many, Array.from({ length: 16 }, (_, shard) => shard).filter((shard) => shard !== 11)],
    ] as const) {
      const engine = await begin(limited)
      const light = await holdOneIn(engine, limited.name, taken)
      await engine.spawnId(`${limited.name}-heavy`)
      const heavy = await claimOne(engine)
      expect(await held(engine)).toEqual([taken.length + 2])
      await flush(
        engine,
        [...light, heavy].map((run) => finishes(run)),
      )
      expect(await held(engine)).toEqual([0])
    }
  })

  test.for([slots, both])(
    'C165 C271 one for which no shard has room is in nobody’s way and asks for no ticks until one has: $name',
    async (limited) => {
      const engine = await begin(limited)
      const light = await holdOneIn(engine, limited.name, [0, 1])
      const id = await engine.spawnId(`${limited.name}-heavy`)
      expect(await engine.tick()).toMatchObject({ completed: 0 })
      expect(await engine.tick()).toMatchObject({ more: false, requests: 1 })
      expect((await engine.run(id)).blockedOn).toContain(limited.name)
      await flush(engine, [finishes(light[1]!)])
      expect(await engine.tick()).toMatchObject({ completed: 1 })
      await flush(engine, [finishes(light[0]!)])
      expect(await held(engine)).toEqual([0])
    },
  )

  test('C165 C163 one for which no shard has the tokens is looked at again when one has', async () => {
    const engine = await begin(tokens)
    const spend = `UPDATE pawl.limit_counters c SET available = 1.5 - c.shard * 0.5, refilled_at = $2 FROM pawl.environments e WHERE e.id = c.environment_id AND e.name = $1`
    await engine.spawnMany('tokens-light', [1])
    await engine.tick()
    await engine.sql(spend, [engine.environment, new Date(engine.clock()).toISOString()])
    await engine.spawnId('tokens-heavy')
    await engine.tick()
    expect(await engine.tick()).toMatchObject({ more: false, nextDueAt: engine.clock() + DAY / 4 })
    engine.advance(DAY / 4)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
  })
})
