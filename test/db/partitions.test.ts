import { expect, test } from 'vitest'
import { createCalls } from '../../src/client/calls.ts'
import { SCHEMA_VERSION } from '../../src/core/build.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'
import { closePartition, FIRST } from '../../src/db/partition-sql.ts'
import { printPartitions } from '../../src/db/partitions.ts'
import type { Period } from '../../src/db/periods.ts'
import { forEachVersion } from '../support/database.ts'
import type { TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'
import { afterThisWeek, DAY_MS, idAt, ORPHANS, RUNS, start, tablesOf, upkeep } from './partition-world.ts'

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

  test('a migration that changes how runs are stored reaches every partition, and those made later', async () => {
    const engine = await start(version, 'week')
    const filled = `SELECT count(*)::int FROM pg_class WHERE relname LIKE 'runs\\_%' AND relkind = 'r' AND 'fillfactor=32' = ANY (reloptions)`
    const leaves = `SELECT count(*)::int FROM pg_inherits WHERE inhparent = 'pawl.runs'::regclass`
    for (const name of await engine.sql<string>(
      `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pawl.runs'::regclass`,
    ))
      await engine.sql(`ALTER TABLE ${name} SET (fillfactor = 45)`)
    await engine.sql('UPDATE pawl.meta SET schema_version = 5')
    expect(await engine.sql(filled)).toEqual([0])
    const database = nodePostgres({ connectionString: engine.fresh.connectionString, max: 1 })
    expect(await migrate(database)).toMatchObject({ from: 5, to: SCHEMA_VERSION })
    await database.close()
    expect(await engine.sql(filled)).toEqual(await engine.sql(leaves))
    engine.advance(7 * DAY_MS)
    expect((await upkeep(engine)).made).not.toEqual([])
    expect(await engine.sql(filled)).toEqual(await engine.sql(leaves))
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
