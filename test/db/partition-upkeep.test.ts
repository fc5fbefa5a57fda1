import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { SCHEMA_VERSION } from '../../src/core/build.ts'
import type { Database } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { closePartition, FIRST } from '../../src/db/partition-sql.ts'
import { partition } from '../../src/db/partitions.ts'
import { endOf, type Period, startOf } from '../../src/db/periods.ts'
import type { FreshDatabase } from '../support/database.ts'
import { startEngine, type TestEngine } from '../support/engine.ts'
import { holdRowLock } from '../support/races.ts'
import { rewriting } from '../support/rewriting.ts'
import { afterThisWeek, DAY_MS, definitions, idAt, ORPHANS, RUNS, start, upkeep, WEEK_MS } from './partition-world.ts'

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
