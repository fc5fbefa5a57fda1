import { afterEach, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { endOf, leastId } from '../../src/db/periods.ts'
import { claimRuns } from '../../src/db/statements/claim-runs.ts'
import { promoteDue } from '../../src/db/statements/promote-due.ts'
import { pruneEnded } from '../../src/db/statements/upkeep.ts'
import { forEachVersion, freshDatabase } from '../support/database.ts'
import { startEngine, type TestEngine } from '../support/engine.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const plain = job({ name: 'plain', input: z.unknown(), retention: '1 day', run: () => {} })
const keyed = job({ name: 'keyed', input: z.string(), concurrencyKey: (key) => key, run: () => {} })
const definitions = [plain, keyed]

/** An id of the n-th week from now. */
function idOfWeek(week: number, n = 1): string {
  let ms = Date.now()
  for (let passed = 0; passed < week; passed += 1) ms = endOf('week', ms)
  return leastId(ms, n).replace('-0000-0000-', '-7000-8000-')
}

forEachVersion('rows of two partitions that lie at the same place of each', (version) => {
  const open: TestEngine[] = []
  /** Two new runs whose rows have the same ctid. */
  const twins = async (definition: string, options: readonly object[], inputs: readonly unknown[] = ['a', 'b']) => {
    const fresh = await freshDatabase(version, { partitioned: 'week' })
    const engine = await startEngine({ definitions, on: fresh, version, frozen: true })
    open.push(engine)
    const ids = [idOfWeek(1), idOfWeek(2)]
    for (const [n, id] of ids.entries()) await engine.spawnId(definition, inputs[n], { ...options[n], id })
    const places = await engine.sql<string>('SELECT ctid::text FROM pawl.runs WHERE id = ANY ($1::uuid[])', [ids])
    expect(places[0]).toBe(places[1])
    expect(await engine.sql('SELECT count(DISTINCT tableoid)::int FROM pawl.runs WHERE id = ANY ($1::uuid[])', [ids])).toEqual([
      2,
    ])
    const statuses = () => engine.sql<string>('SELECT status FROM pawl.runs WHERE id = ANY ($1::uuid[]) ORDER BY id', [ids])
    return { engine, ids, statuses }
  }
  afterEach(async () => {
    for (const engine of open.splice(0)) {
      await engine.close()
      await engine.fresh.close()
    }
  })

  test.each(['ungated', 'open', 'all'] as const)('C218 a claim of one takes one (admits: %s)', async (admits) => {
    const { engine, ids, statuses } = await twins('plain', [])
    const statement = claimRuns('pawl', {
      now: new Date(engine.clock()).toISOString(),
      environment: engine.environment,
      claimId: crypto.randomUUID(),
      definitions: ['plain'],
      versions: [1],
      leaseMs: 30_000,
      limit: 1,
      maxBytes: 1_000_000,
      laneCursor: 0,
      alone: true,
      queues: null,
      satellites: 10,
      knownLanes: [],
      admits,
    })
    const [rows = []] = await engine.database.batch([statement])
    expect(rows.map(({ id }) => id)).toEqual([ids[0]])
    expect(await statuses()).toEqual(['running', 'pending'])
    expect(await engine.sql('SELECT run_id FROM pawl.ready')).toEqual([ids[1]])
  })

  test('C218 a claim asks each run for its own gates', async () => {
    const { engine, ids, statuses } = await twins('keyed', [])
    const runs = [...(await claim(engine)), ...(await claim(engine))]
    expect(runs.map(({ id }) => id).sort()).toEqual(ids)
    expect(await engine.sql('SELECT gate FROM pawl.limit_counters WHERE held = 1')).toHaveLength(2)
    await flush(
      engine,
      runs.map((run) => finishes(run)),
    )
    expect(await statuses()).toEqual(['completed', 'completed'])
  })

  test('C218 what becomes due is what is due', async () => {
    const { engine, ids } = await twins('plain', [{ delay: '1h' }, { delay: '2h' }])
    engine.advance(3 * 3_600_000)
    const statement = promoteDue('pawl', {
      now: new Date(engine.clock()).toISOString(),
      environment: engine.environment,
      limit: 1,
    })
    expect((await engine.database.batch([statement]))[0]).toMatchObject([{ promoted: 1 }])
    expect(await engine.sql('SELECT run_id FROM pawl.ready')).toEqual([ids[0]])
    expect(await engine.sql('SELECT id FROM pawl.runs WHERE timer_at IS NOT NULL')).toEqual([ids[1]])
  })

  test('C218 what is deleted is what is over', async () => {
    const { engine, ids } = await twins('plain', [])
    expect(await engine.tick()).toMatchObject({ completed: 2 })
    await engine.sql('UPDATE pawl.runs SET retention_seconds = 8640000 WHERE id = $1', [ids[1]])
    // the rows have moved with that: written anew, they share a place again
    const places = await engine.sql<string>('SELECT ctid::text FROM pawl.runs WHERE id = ANY ($1::uuid[]) ORDER BY id', [ids])
    await engine.sql('UPDATE pawl.runs SET updated_at = updated_at WHERE id = $1 AND ctid::text <> $2', [ids[0], places[1]])
    expect(await engine.sql('SELECT count(DISTINCT ctid)::int FROM pawl.runs WHERE id = ANY ($1::uuid[])', [ids])).toEqual([1])
    const now = new Date(engine.clock() + 20 * 86_400_000).toISOString()
    const statement = pruneEnded('pawl', { now, environment: engine.environment, limit: 10, minRetentionSeconds: 86_400 })
    expect((await engine.database.batch([statement]))[0]).toMatchObject([{ pruned: 1 }])
    expect(await engine.sql('SELECT id FROM pawl.runs WHERE environment_id > 0')).toEqual([ids[1]])
  })
})
