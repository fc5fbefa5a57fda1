import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import type { Statement } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { blockDenied } from '../../src/db/statements/block-denied.ts'
import { type ClaimRunsParams, claimRuns } from '../../src/db/statements/claim-runs.ts'
import { encodeParameters } from '../../src/db/values.ts'
import { prepareWorld } from '../support/claim-world.ts'
import { startEngine, type TestEngine } from '../support/engine.ts'
import { type Measured, measure } from '../support/plans.ts'
import { claim as take } from '../traps/outcomes.ts'
import { claimParams } from './claim-params.ts'

const spread = limit('spread', { concurrency: 4_000, shards: 8 })
const definitions = [
  job({ name: 'free', input: z.unknown(), run: () => null }),
  job({ name: 'keyed', input: z.string(), concurrencyKey: (key) => key, run: () => null }),
  job({ name: 'spread', input: z.unknown(), limits: [spread], run: () => null }),
]

const KEYS = 100
const TENANTS = 500
const FEW = 1_000
const MANY = 100_000
const AT_ONCE = 10_000
/** Buffers of the large world per buffer of the small one. */
const MOST = 2

interface World {
  readonly engine: TestEngine
  readonly client: pg.PoolClient
}

const many = <T>(count: number, of: (n: number) => T) => Array.from({ length: count }, (_, n) => of(n))

/** So many due of each: of a hundred keys in turn, of a limit in shards, of one key that is taken, and of five hundred tenants. */
async function world(due: number): Promise<World> {
  const engine = await startEngine({ definitions })
  const client = await engine.fresh.pool({ max: 1 }).connect()
  await prepareWorld(client)
  // declares the limits, and makes the counters
  await engine.spawnMany('keyed', [...many(KEYS, (n) => `key ${n}`), 'busy'])
  await engine.spawnMany(
    'spread',
    many(8, () => ''),
  )
  for (let done = 0; done < KEYS + 9; ) done += (await engine.tick()).completed
  await engine.spawnMany('keyed', ['busy'], { queue: 'busy' })
  expect(await take(engine)).toHaveLength(1)
  for (let from = 0; from < due; from += AT_ONCE) {
    const count = Math.min(AT_ONCE, due - from)
    await engine.spawnMany(
      'keyed',
      many(count, (n) => `key ${n % KEYS}`),
    )
    await engine.spawnMany(
      'keyed',
      many(count, () => 'busy'),
      { queue: 'busy' },
    )
    await engine.spawnMany(
      'spread',
      many(count, () => ''),
    )
  }
  for (let tenant = 0; tenant < TENANTS; tenant += 1)
    await engine.spawnMany(
      'free',
      many(due / TENANTS, () => ''),
      { tenant: `tenant ${tenant}` },
    )
  await client.query('ANALYZE')
  return { engine, client }
}

/** In a transaction that is rolled back. */
async function undone<T>({ client }: World, work: () => Promise<T>): Promise<T> {
  await client.query('BEGIN')
  return work().finally(() => client.query('ROLLBACK'))
}

/** What the first execution alone does (hints, a prune) is not counted: the second one is. It must have moved so many runs. */
async function tried(world: World, statement: Statement, moves: number): Promise<Measured> {
  const { client } = world
  const moved = await undone(world, async () => {
    const { rows } = await client.query(statement.text, encodeParameters(statement))
    return rows.reduce((sum, row) => sum + (row.id ? 1 : Number(row.blocked ?? row.seq ?? 0)), 0)
  })
  expect(moved).toBe(moves)
  await client.query(`PREPARE tried AS ${statement.text}`)
  try {
    return await undone(world, () => measure(client, 'tried', statement))
  } finally {
    await client.query('DEALLOCATE tried')
  }
}

const claims = (more: Partial<ClaimRunsParams>) => claimRuns('pawl', { ...claimParams, versions: [1], ...more })

const CASES = [
  ['a hundred keys whose gates are open', 100, () => claims({ definitions: ['keyed'], queues: ['default'], admits: 'open' })],
  ['a hundred keys, all gates asked', 100, () => claims({ definitions: ['keyed'], queues: ['default'], admits: 'all' })],
  ['a limit in eight shards that is open', 100, () => claims({ definitions: ['spread'], admits: 'open' })],
  ['a limit in eight shards, all gates asked', 100, () => claims({ definitions: ['spread'], admits: 'all' })],
  ['a saturated key, which blocks a hundred', 100, () => claims({ definitions: ['keyed'], queues: ['busy'], admits: 'all' })],
  ['five hundred tenants in turn', 100, () => claims({ definitions: ['free'] })],
  [
    'a crowd of a saturated key, of which a thousand leave at once',
    1_000,
    (lanes: readonly number[]) => blockDenied('pawl', { now: null, environment: 'production', lanes, limit: 1_000 }),
  ],
] as const

describe('what a claim touches beside a backlog', () => {
  let few: World
  let lots: World
  beforeAll(async () => {
    few = await world(FEW)
    lots = await world(MANY)
  }, 300_000)
  afterAll(async () => {
    for (const { client, engine } of [few, lots]) {
      client.release()
      await engine.close()
    }
  })

  describe.each(['force_custom_plan', 'force_generic_plan'])('%s', (mode) => {
    beforeAll(async () => {
      for (const { client } of [few, lots]) await client.query(`SET plan_cache_mode = ${mode}`)
    })
    test.each(CASES)(`C034 C271 %s: as much beside ${MANY} due runs as beside a thousand`, async (_, moves, statement) => {
      const lane = `SELECT id FROM pawl.lanes WHERE queue = 'busy'`
      const measured = async (world: World) => tried(world, statement(await world.engine.sql<number>(lane)), moves)
      const [beside, besideMany] = [await measured(few), await measured(lots)]
      expect(besideMany.scanned.filter((table) => ['runs', 'ready', 'claims'].includes(table))).toEqual([])
      expect(besideMany.buffers, JSON.stringify({ few: beside.buffersOf, many: besideMany.buffersOf })).toBeLessThanOrEqual(
        MOST * beside.buffers,
      )
    })
  })
})
