import { expect, test } from 'vitest'
import * as z from 'zod'
import { DatabaseError } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import type { BulkAction } from '../../src/core/operating.ts'
import { forEachVersion } from '../support/database.ts'
import { around, newRun, sharedEngines, type TestEngine } from '../support/engine.ts'
import { claimRequest, finishes, flush, retries } from '../traps/outcomes.ts'

const slots = limit('slots', { concurrency: 200 })
const child = job({
  name: 'child',
  input: z.object({ n: z.number() }),
  queue: 'children',
  key: ({ n }) => `child:${n}`,
  limits: [slots],
  run: () => null,
})
const parent = machine({
  name: 'parent',
  input: z.object({ n: z.number() }),
  state: z.object({ n: z.number() }),
  key: ({ n }) => `parent:${n}`,
  limits: [slots],
  initial: 'start',
  steps: {
    start: ({ state, join }) =>
      join(
        [0, 1].map((m) => child.with({ n: state.n * 2 + m })),
        { goto: 'end', limits: 'keep' },
      ),
    end: ({ done }) => done(undefined),
  },
})
const fails = job({
  name: 'fails',
  input: z.object({ n: z.number() }),
  key: ({ n }) => `key:${(n * 7) % 150}`,
  retry: { maxAttempts: 1 },
  run: ({ fail }) => fail('as told'),
})
const QUERY = {
  tenant: 'default',
  status: null,
  definition: null,
  queue: null,
  key: null,
  tag: null,
  parent: null,
  since: null,
  until: null,
  limit: 50,
  cursor: null,
}

/** Says it until nothing is left to change; how many it has changed. */
async function changeAll(engine: TestEngine, action: BulkAction, query: object): Promise<number> {
  let total = 0
  for (let cursor: string | null = null; ; ) {
    const { affected, more, nextCursor } = await engine.store.changeMany({
      action,
      by: 'ann',
      query: { ...QUERY, ...query, cursor },
    })
    total += affected
    if (!more) return total
    cursor = nextCursor
  }
}

const atOnce = (clients: number, change: (client: number) => Promise<number>) =>
  Promise.all(Array.from({ length: clients }, (_, client) => change(client))).then((counts) => counts.reduce((a, b) => a + b))
const count = async (engine: TestEngine, table: string, where = 'true'): Promise<number> => {
  const [found = Number.NaN] = await engine.sql<number>(
    `SELECT count(*)::int FROM pawl.${table} x WHERE x.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) AND ${where}`,
    [engine.environment],
  )
  return found
}
const held = (engine: TestEngine) =>
  engine.sql<number>(
    'SELECT coalesce(sum(c.held), 0)::int FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1',
    [engine.environment],
  )
const outcomes = (engine: TestEngine, outcome: string) =>
  engine.sql<number>(
    `SELECT count(*)::int FROM pawl.history h JOIN pawl.runs r ON r.id = h.run_id JOIN pawl.environments e ON e.id = r.environment_id
     WHERE e.name = $1 AND h.outcome = $2`,
    [engine.environment, outcome],
  )

const FAMILIES = 120
const many = (length: number) => Array.from({ length }, (_, n) => ({ n }))

forEachVersion('changes of many runs', (version) => {
  const { start } = sharedEngines(version)

  test('C182 C149 sent by eight at once, each run is cancelled once, every child follows, and nothing is held at the end', async () => {
    const engine = await start({ definitions: [parent, child], version, connections: 12, only: ['default'] })
    await engine.store.declareLimits([{ name: 'slots', policy: slots.policy }])
    await engine.spawnMany('parent', many(FAMILIES))
    // parents that wait keep their slots, some children run, the others are due
    await engine.tick()
    const { runs } = await engine.store.claim(claimRequest(engine, { limit: 15 }))
    expect(runs).toHaveLength(15)
    const live = await count(engine, 'runs', "x.status IN ('pending', 'running', 'waiting')")
    const filters = [{ definition: 'parent' }, { queue: 'default' }, { definition: 'child' }]
    const cancelled = await atOnce(8, (client) => changeAll(engine, 'cancel', filters[client % 3] ?? {}))
    expect(cancelled).toBe(live)
    await Promise.all([engine.tick(), engine.tick()])
    await flush(
      engine,
      runs.map((run, n) => (n < 5 ? finishes(run) : retries(run))),
    )
    await engine.tick()
    expect(await outcomes(engine, 'cancel')).toEqual([live - 5])
    expect(await count(engine, 'runs', "x.status = 'cancelled'")).toBe(live - 5)
    expect(await count(engine, 'runs', "x.status IN ('pending', 'running', 'waiting')")).toBe(0)
    for (const table of ['uniques', 'cascades']) expect(await count(engine, table)).toBe(0)
    expect(await held(engine)).toEqual([0])
    expect(await changeAll(engine, 'cancel', { tag: null })).toBe(0)
  })

  test('C149 C182 children that no page has are ended by the cascade, once, whoever else cancels them', async () => {
    const engine = await start({ definitions: [parent, child], version, connections: 12, only: ['default'] })
    await engine.store.declareLimits([{ name: 'slots', policy: slots.policy }])
    await engine.spawnMany('parent', many(FAMILIES))
    await engine.tick()
    const [cancelled] = await Promise.all([
      atOnce(4, () => changeAll(engine, 'cancel', { definition: 'parent' })),
      ...Array.from({ length: 4 }, () => engine.tick()),
    ])
    expect(cancelled).toBe(FAMILIES)
    await engine.tick()
    expect(await outcomes(engine, 'cancel')).toEqual([3 * FAMILIES])
    for (const table of ['uniques', 'cascades']) expect(await count(engine, table)).toBe(0)
    expect(await held(engine)).toEqual([0])
  })

  test('C182 sent by eight at once, each run is retried once, and no key has two runs, whoever spawns meanwhile', async () => {
    const engine = await start({ definitions: [fails], version, connections: 12 })
    const inputs = many(150)
    await engine.spawnMany('fails', inputs)
    await engine.tick()
    const again = await Promise.all([...inputs].reverse().map((input) => newRun(engine.registry, 'fails', input)))
    const [retried, spawned] = await Promise.all([
      atOnce(8, () => changeAll(engine, 'retry', { definition: 'fails' })),
      Promise.all([again.slice(0, 50), again.slice(50, 100), again.slice(100)].map((runs) => engine.store.spawn(runs))),
    ])
    const created = spawned.flat().filter(({ kind }) => kind === 'created').length
    expect(retried + created).toBe(150)
    expect(await outcomes(engine, 'retried')).toEqual([retried])
    expect(await count(engine, 'runs', "x.status = 'pending'")).toBe(150)
    expect(await count(engine, 'uniques')).toBe(150)
    expect(await engine.tick()).toMatchObject({ failed: 150 })
    expect(await count(engine, 'uniques')).toBe(0)
  })

  test.each(['cancel', 'retry'] as const)('C182 what %s has changed is counted though the reply was lost', async (action) => {
    let losing = 0
    const engine = await start({
      definitions: [fails],
      version,
      wrap: (database) =>
        around(database, async (_, send) => {
          const replies = await send()
          if (losing-- > 0) throw new DatabaseError('The reply was lost.', { fate: 'lost' })
          return replies
        }),
    })
    await engine.spawnMany('fails', many(130))
    if (action === 'retry') await engine.tick()
    losing = 1
    expect(await changeAll(engine, action, { definition: 'fails' })).toBe(130)
    expect(await changeAll(engine, action, { definition: 'fails' })).toBe(0)
  })
})
