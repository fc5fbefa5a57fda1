import { afterEach, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { SCHEMA_VERSION } from '../../src/core/build.ts'
import type { Database } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { closePartition, FIRST } from '../../src/db/partition-sql.ts'
import { partition, printPartitions } from '../../src/db/partitions.ts'
import { endOf, leastId, type Period, startOf } from '../../src/db/periods.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const DAY_MS = 86_400_000
const WEEK_MS = 7 * DAY_MS

const brief = job({
  name: 'brief',
  input: z.unknown(),
  retention: '1 day',
  key: (input) => `key ${input}`,
  run: ({ input }) => input,
})
const failing = job({
  name: 'failing',
  retry: 'none',
  retention: '1 day',
  run: () => {
    throw new Error('broken')
  },
})
const parked = machine({
  name: 'parked',
  state: z.object({}),
  signals: { go: z.null() },
  retention: '1 day',
  initial: 'wait',
  steps: { wait: ({ waitFor }) => waitFor('go', { goto: 'end' }), end: ({ done }) => done(undefined) },
})
const unsure = job({ name: 'unsure', retention: '1 day', run: ({ uncertain }) => uncertain({ reason: 'no answer' }) })
const gone = job({ name: 'gone', input: z.number(), retention: 0, run: ({ input }) => input })
const parent = machine({
  name: 'parent',
  queue: 'parents',
  state: z.object({}),
  output: z.number(),
  retention: '1 day',
  initial: 'split',
  steps: {
    split: ({ join }) => join([gone.with(7, { queue: 'children' })], { goto: 'end' }),
    end: ({ children, done }) => done(children(gone).map((child) => (child.status === 'completed' ? child.result : -1))[0] ?? -1),
  },
})
const definitions = [brief, failing, parked, unsure, gone, parent]

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function start(version: 15 | 18, partitioned?: Period, options: Partial<EngineOptions> = {}): Promise<TestEngine> {
  const fresh = options.on ?? (await freshDatabase(version, { partitioned }))
  if (options.on === undefined) cleanups.push(fresh.close)
  const engine = await startEngine({ definitions, version, frozen: true, on: fresh, ...options })
  cleanups.push(engine.close)
  return engine
}

/** What `pawl partitions` does, at the time that the engine has. */
async function upkeep(engine: TestEngine, every?: Period, wrap: (database: Database) => Database = (database) => database) {
  const database = nodePostgres({ connectionString: engine.fresh.connectionString, max: 1 })
  try {
    return await partition(wrap(database), { every, now: new Date(engine.clock()).toISOString() })
  } finally {
    await database.close()
  }
}

/** Moves on until the current week, in which the tests spawn, is behind us, and what has ended is over. */
function afterThisWeek(engine: TestEngine): void {
  engine.advance(endOf('week', engine.clock()) - engine.clock() + 2 * DAY_MS)
}

/** An id of a run of that instant. */
const idAt = (ms: number, n = 1) => leastId(ms, n).replace('-0000-0000-', '-7000-8000-')

const tablesOf = (engine: TestEngine) =>
  engine.sql<string>(
    "SELECT relname::text FROM pg_class WHERE relnamespace = 'pawl'::regnamespace AND relispartition AND relkind = 'r' ORDER BY relname",
  )

const RUNS = 'SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0'
const ORPHANS = `SELECT (
  (SELECT count(*) FROM pawl.history h WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = h.run_id))
  + (SELECT count(*) FROM pawl.signals g WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = g.run_id))
  + (SELECT count(*) FROM pawl.uniques u WHERE u.environment_id > 0 AND NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = u.run_id))
  + (SELECT count(*) FROM pawl.event_waits w WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = w.run_id)))::int`

forEachVersion('partitions', (version) => {
  test('C218 an installation with runs in every status becomes partitioned, and they go on', async () => {
    const engine = await start(version)
    const calls = createCalls(engine)
    const strange = await engine.spawnId('parked', {}, { id: 'ffffffff-0000-4000-8000-000000000001' })
    const ids = {
      completed: await engine.spawnId('brief', 1),
      failed: await engine.spawnId('failing'),
      waiting: await engine.spawnId('parked', {}),
      uncertain: await engine.spawnId('unsure'),
      cancelled: await engine.spawnId('parked', {}),
    }
    await engine.tick()
    await calls.cancel(ids.cancelled)
    const delayed = await engine.spawnId('brief', 'delayed', { delay: '1h' })
    const running = await engine.spawnId('brief', 'running')
    const [inHand] = await claim(engine)
    expect(inHand?.id).toBe(running)
    const [position] = await engine.sql<string>('SELECT max(position) FROM pawl.runs')
    const indexes = `SELECT indexname::text FROM pg_indexes WHERE schemaname = 'pawl' AND tablename IN ('runs', 'history') ORDER BY 1`
    const before = await engine.sql<string>(indexes)

    expect(await upkeep(engine, 'week')).toMatchObject({ every: 'week', converted: true, dropped: [], kept: [], skipped: [] })
    expect(await engine.sql('SELECT partitioned_by FROM pawl.meta')).toEqual(['week'])
    expect(await engine.sql(indexes)).toEqual(before)
    expect(await tablesOf(engine)).toHaveLength(3 * 6)
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs_other WHERE environment_id > 0')).toEqual([1])

    for (const [status, id] of Object.entries(ids)) expect((await engine.run(id)).status).toBe(status)
    expect(await engine.history(ids.completed)).toHaveLength(1)
    expect((await flush(engine, inHand ? [finishes(inHand)] : [])).outcomes).toMatchObject([{ kind: 'applied' }])
    expect(await engine.spawn('brief', 'delayed')).toMatchObject({ kind: 'occupied', id: delayed })
    for (const id of [ids.waiting, strange]) await engine.signal({ id }, 'go', null)
    await calls.retry(ids.failed)
    const later = await engine.spawnId('brief', 'later')
    engine.advance(3_600_000)
    await engine.tick()
    for (const id of [ids.waiting, strange, later, delayed, running]) expect((await engine.run(id)).status).toBe('completed')
    expect(await engine.history(ids.failed)).toHaveLength(3)
    expect(await engine.sql('SELECT position > $1 FROM pawl.runs WHERE id = $2', [position, later])).toEqual([true])
    expect(await upkeep(engine)).toMatchObject({ converted: false, made: [], dropped: [], kept: [], skipped: [] })
  })

  test('C218 runs whose retention is over go with their partition, not one by one; their keys can be used again', async () => {
    const engine = await start(version, 'week')
    const ids = await engine.spawnMany('brief', [...Array(20).keys()])
    await engine.spawnId('parked', {}, { key: 'p' })
    await engine.tick()
    await engine.signal({ key: 'p' }, 'go', null)
    await engine.tick()
    await engine.sql(
      "INSERT INTO pawl.uniques (tenant, environment_id, scope, token, run_id) SELECT 'default', environment_id, 'kept', 'k', id FROM pawl.runs WHERE id = $1",
      [ids[0]],
    )
    const [file] = await engine.sql('SELECT relfilenode FROM pg_class WHERE oid = $1::regclass', [`pawl.runs_${FIRST}`])
    afterThisWeek(engine)
    expect((await engine.tick()).pruned).toBe(0)
    expect(await engine.sql(RUNS)).toEqual([21])
    expect(await upkeep(engine)).toMatchObject({ dropped: [FIRST], kept: [] })
    expect(await tablesOf(engine)).not.toContain(`history_${FIRST}`)
    expect(await engine.sql('SELECT count(*)::int FROM pg_class WHERE relfilenode = $1', [file])).toEqual([0])
    expect(await engine.sql(RUNS)).toEqual([0])
    expect(await engine.sql(ORPHANS)).toEqual([0])
    expect(await engine.store.getRun(ids[0] ?? '', { tenant: 'default' })).toBeNull()
    // its id was of a week without a partition now
    expect(await engine.spawn('brief', 0, { id: ids[0] ?? '' })).toMatchObject({ kind: 'created' })
    await engine.tick()
    expect(await engine.run(ids[0] ?? '')).toMatchObject({ status: 'completed' })
  })

  test('C218 a run that is alive keeps its partition; what is over beside it is deleted after two periods', async () => {
    const engine = await start(version, 'week')
    const spawnedAt = engine.clock()
    await engine.spawnMany('brief', [1, 2, 3])
    const id = await engine.spawnId('parked', {})
    const doubtful = await engine.spawnId('unsure')
    await engine.tick()
    afterThisWeek(engine)
    expect(await upkeep(engine)).toMatchObject({ dropped: [], kept: [{ name: FIRST, because: expect.any(String) }] })
    engine.advance(spawnedAt + 14 * DAY_MS - engine.clock())
    expect((await engine.tick()).pruned).toBe(0)
    engine.advance(2 * DAY_MS)
    expect((await engine.tick()).pruned).toBe(3)
    expect(await upkeep(engine)).toMatchObject({ kept: [{ name: FIRST }] })
    await engine.signal({ id }, 'go', null)
    await engine.tick()
    engine.advance(2 * DAY_MS)
    expect((await upkeep(engine)).kept).toMatchObject([{ name: FIRST, run: doubtful, because: 'uncertain' }])
    await createCalls(engine).resolve(doubtful, { decision: 'success', id: 'ticket-1', by: 'ada' })
    engine.advance(2 * DAY_MS)
    expect(await upkeep(engine)).toMatchObject({ dropped: expect.arrayContaining([FIRST]), kept: [] })
    expect(await engine.sql(RUNS)).toEqual([0])
  })

  test('C218 a run that is started again before its partition is closed keeps it, and goes on', async () => {
    const engine = await start(version, 'week')
    const id = await engine.spawnId('failing')
    const other = await engine.spawnId('parked', {})
    await engine.tick()
    afterThisWeek(engine)
    // so that nothing is left but to drop
    expect(await upkeep(engine)).toMatchObject({ kept: [{ run: other }] })
    await createCalls(engine).cancel(other)
    engine.advance(2 * DAY_MS)
    const retried = await holdRowLock(
      engine.fresh.connectionString,
      `WITH again AS (UPDATE pawl.runs SET status = 'pending', notable = NULL, finished_at = NULL, seq = seq + 1 WHERE id = $1 RETURNING *)
      INSERT INTO pawl.ready (lane_id, priority, available_at, position, run_id) SELECT lane_id, priority, available_at, position, id FROM again`,
      [id],
    )
    const upkept = upkeep(engine)
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /pawl_partition_closing|LOCK TABLE ONLY .*runs_first/ })
    await retried.release()
    expect(await upkept).toMatchObject({ dropped: [], kept: [{ run: id, because: 'pending' }] })
    expect(await engine.tick()).toMatchObject({ failed: 1 })
  })

  test('C218 once its partition is closed no run is started again; who crashed then is followed by who finishes', async () => {
    const engine = await start(version, 'week')
    const calls = createCalls(engine)
    const id = await engine.spawnId('failing')
    await engine.tick()
    afterThisWeek(engine)
    await engine.fresh.pool().query(closePartition('pawl', { name: FIRST, from: null, to: 0 }))
    await expect(calls.retry(id)).rejects.toMatchObject({ code: 'database_busy' })
    expect((await engine.run(id)).status).toBe('failed')
    // others are in nobody's way
    const other = await engine.spawnId('brief', 1, { id: idAt(engine.clock()) })
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await upkeep(engine)).toMatchObject({ dropped: [FIRST], kept: [] })
    await expect(calls.retry(id)).rejects.toMatchObject({ code: 'not_found' })
    expect((await engine.run(other)).status).toBe('completed')
  })

  test('C218 the printed SQL does the same', async () => {
    const [engine, printed] = [await start(version), await start(version)]
    const shape = async ({ sql }: TestEngine) =>
      sql<string>(`SELECT c.relname || ' ' || c.relkind::text || ' ' || coalesce(pg_get_expr(c.relpartbound, c.oid), '') || ' ' || coalesce(c.reloptions::text, '')
        FROM pg_class c WHERE c.relnamespace = 'pawl'::regnamespace AND c.relkind IN ('r', 'p', 'i', 'I', 'S') ORDER BY 1`)
    const print = async (every?: Period) => {
      const now = new Date(printed.clock()).toISOString()
      const database = nodePostgres({ connectionString: printed.fresh.connectionString, max: 1 })
      await printed.fresh.pool().query(await printPartitions(database, { every, now }))
      await database.close()
    }
    await upkeep(engine, 'month')
    await print('month')
    expect(await shape(printed)).toEqual(await shape(engine))
    for (const one of [engine, printed]) one.advance(40 * DAY_MS)
    expect((await upkeep(engine)).dropped).toEqual([FIRST])
    await print()
    expect(await shape(printed)).toEqual(await shape(engine))
  })
})

describe('partitions', () => {
  const version = 18

  test('C218 one that was closed for nothing is opened again', async () => {
    const engine = await start(version, 'week')
    const id = await engine.spawnId('failing')
    const alive = await engine.spawnId('parked', {})
    const lively = await engine.spawnId('parked', {})
    await engine.tick()
    await engine.fresh.pool().query(closePartition('pawl', { name: FIRST, from: null, to: 0 }))
    // what was alive before goes on
    await engine.signal({ id: lively }, 'go', null)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect((await engine.run(alive)).status).toBe('waiting')
    afterThisWeek(engine)
    expect(await upkeep(engine)).toMatchObject({ dropped: [], kept: [{ because: 'waiting' }] })
    await createCalls(engine).retry(id)
    expect(await engine.tick()).toMatchObject({ failed: 1 })
  })

  test('C218 a child whose result its parent has not read yet keeps its partition', async () => {
    const engine = await start(version, 'week', { only: ['parents'] })
    const children = await start(version, undefined, { on: engine.fresh, only: ['children'] })
    const id = await engine.spawnId('parent', {}, { id: idAt(engine.clock() + WEEK_MS) })
    await engine.tick()
    await children.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'pending' })
    afterThisWeek(engine)
    expect((await upkeep(engine)).kept).toMatchObject([{ name: FIRST, because: 'needed' }])
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 7 })
    expect(await upkeep(engine)).toMatchObject({ dropped: [FIRST], kept: [] })
  })

  test('C218 three at once: one of them converts, each partition is made and dropped once', async () => {
    const engine = await start(version)
    const others = [await start(version, undefined, { on: engine.fresh }), await start(version, undefined, { on: engine.fresh })]
    const engines = [engine, ...others]
    await engine.spawnMany('brief', [1, 2, 3])
    await engine.tick()
    const converted = await Promise.all(engines.map((one) => upkeep(one, 'week')))
    expect(converted.filter((report) => report.converted)).toHaveLength(1)
    expect(converted.flatMap(({ made }) => made)).toHaveLength(4)
    for (const one of engines) afterThisWeek(one)
    const reports = await Promise.all(engines.map((one) => upkeep(one)))
    expect(reports.flatMap(({ dropped }) => dropped)).toEqual([FIRST])
    expect(reports.flatMap(({ made }) => made)).toHaveLength(1)
    expect(await engine.sql(RUNS)).toEqual([0])
  })

  test('C218 what has no partition goes to the others, and a period of which some lie there stays without', async () => {
    const engine = await start(version, 'week')
    const far = endOf('week', engine.clock() + 7 * WEEK_MS)
    const id = await engine.spawnId('brief', 1, { id: idAt(far) })
    expect(await engine.sql('SELECT tableoid::regclass::text FROM pawl.runs WHERE id = $1', [id])).toEqual(['pawl.runs_other'])
    await engine.tick()
    engine.advance(startOf('week', far) - engine.clock() - WEEK_MS)
    const name = new Date(far).toISOString().slice(0, 10).replaceAll('-', '')
    const { made, skipped } = await upkeep(engine)
    expect(skipped).toEqual([name])
    expect(made).toHaveLength(4)
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
    // another period from now on: behind what there is
    const monthly = await upkeep(engine, 'month')
    expect(monthly.every).toBe('month')
    expect((await upkeep(engine)).made).toEqual([])
    engine.advance(60 * DAY_MS)
    expect((await engine.tick()).pruned).toBe(1)
  })

  test('C218 it gives up when it does not get the tables, changes nothing, and can be asked again', async () => {
    const engine = await start(version, 'week')
    await engine.spawnId('brief', 1)
    await engine.tick()
    afterThisWeek(engine)
    await upkeep(engine)
    const reader = await holdRowLock(engine.fresh.connectionString, 'SELECT count(*) FROM pawl.runs')
    engine.advance(WEEK_MS)
    const impatient = (database: Database) =>
      rewriting(database, (sql) => sql.replaceAll("'300ms'", "'1ms'").replaceAll('pg_sleep(0.1)', 'pg_sleep(0)'))
    await expect(upkeep(engine, undefined, impatient)).rejects.toMatchObject({ code: 'database_busy' })
    await reader.release()
    expect((await upkeep(engine)).made).toHaveLength(1)
  })
})

test('C218 work goes on while the tables are partitioned, and partitions are made and dropped under it', async () => {
  const ran = new Map<string, number>()
  const counted = job({
    name: 'counted',
    input: z.string(),
    retention: 0,
    run: ({ input }) => {
      ran.set(input, (ran.get(input) ?? 0) + 1)
    },
  })
  const engine = await start(18, undefined, { definitions: [counted], frozen: false })
  const beside = await start(18, undefined, { definitions: [counted], frozen: false, on: engine.fresh })
  const ids: string[] = []
  let isOver = false
  /** Under an id of the past, as these are once time is moved on, a spawn may be told that the partition is being dropped. */
  const spawn = async (one: TestEngine, id: string): Promise<unknown> => {
    try {
      return await one.spawnId('counted', id, { id })
    } catch (error) {
      expect(error).toMatchObject({ constraint: 'pawl_partition_closing' })
      return spawn(one, id)
    }
  }
  const work = async (one: TestEngine, ms: number) => {
    while (!isOver) {
      const batch = Array.from({ length: 10 }, (_, i) => idAt(Date.now() + (i % 3) * ms, ids.length + i + 1))
      ids.push(...batch)
      await Promise.all(batch.map((id) => spawn(one, id)))
      await one.tick()
    }
  }
  const working = Promise.all([work(engine, WEEK_MS), work(beside, DAY_MS)])
  const database = nodePostgres({ connectionString: engine.fresh.connectionString, max: 1 })
  const upkeepIn = (days: number) =>
    partition(database, { every: 'week', now: new Date(Date.now() + days * DAY_MS).toISOString() })
  for (let days = 0; days < 30; days += 5) {
    await upkeepIn(days).catch((error) => expect(error).toMatchObject({ code: 'database_busy' }))
  }
  isOver = true
  await working
  await engine.tick()
  expect(ids.filter((id) => ran.get(id) !== 1)).toEqual([])
  expect(ids.length).toBeGreaterThan(20)
  expect(await engine.sql("SELECT count(*)::int FROM pawl.runs WHERE status <> 'completed' AND environment_id > 0")).toEqual([0])
  expect(await engine.sql(ORPHANS)).toEqual([0])
  await upkeepIn(40)
  await database.close()
  expect(
    await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0 AND tableoid <> $1::regclass', [
      'pawl.runs_other',
    ]),
  ).toEqual([0])
})

test('partitions: says what has to be there first', async () => {
  const engine = await start(18)
  await expect(upkeep(engine)).rejects.toMatchObject({ code: 'invalid_configuration', field: 'every' })
  await expect(upkeep(engine, 'year' as Period)).rejects.toMatchObject({ code: 'invalid_configuration', field: 'every' })
  await engine.sql('CREATE VIEW public.mine AS SELECT id FROM pawl.runs')
  await expect(upkeep(engine, 'day')).rejects.toMatchObject({ code: 'invalid_configuration', got: 'view mine of runs' })
  await engine.sql('DROP VIEW public.mine')
  await engine.sql('UPDATE pawl.meta SET schema_version = $1', [SCHEMA_VERSION - 1])
  await expect(upkeep(engine, 'day')).rejects.toMatchObject({ code: 'schema_outdated' })
})

test('partitions: a role that has rights on the tables has them on the partitioned ones', async () => {
  const engine = await start(18)
  const role = `worker_${engine.fresh.name}`
  await engine.fresh
    .pool()
    .query(
      `CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA pawl TO ${role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pawl TO ${role}`,
    )
  await upkeep(engine, 'day')
  const connect = (fresh: FreshDatabase) =>
    nodePostgres({ connectionString: fresh.connectionString.replace('//postgres@', `//${role}@`), max: 1 })
  const worker = await startEngine({ definitions, on: engine.fresh, connect })
  const id = await worker.spawnId('brief', 1)
  expect(await worker.tick()).toMatchObject({ completed: 1 })
  expect(await worker.history(id)).toHaveLength(1)
  await worker.close()
  await engine.fresh.pool().query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
})

/** The same database, sent other SQL. */
function rewriting(database: Database, rewrite: (sql: string) => string): Database {
  return {
    driver: database.driver,
    requests: 0,
    query: (statement) => database.query(statement),
    batch: (statements) => database.batch(statements),
    close: () => database.close(),
    transaction: (fn) =>
      database.transaction!((tx) => fn({ query: (s) => tx.query(s), execute: (sql) => tx.execute(rewrite(sql)) })),
  }
}
