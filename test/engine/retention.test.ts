import { afterEach, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { pruneEnded } from '../../src/db/statements/upkeep.ts'
import { type FreshDatabase, forEachVersion } from '../support/database.ts'
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts'

const DAY_MS = 86_400_000
const MINUTE_MS = 60_000

const brief = job({ name: 'brief', input: z.unknown(), retention: '1 day', run: ({ input }) => input ?? null })
const failing = job({
  name: 'failing',
  retry: 'none',
  retention: { completed: '1 day', failed: '3 days' },
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
const definitions = [brief, failing, parked]

forEachVersion('retention', (version) => {
  const open: TestEngine[] = []
  /** The shared upkeep is one for the whole database, so each test has one of its own. */
  const start = async (options: Partial<EngineOptions> & { readonly on?: FreshDatabase } = {}) => {
    const engine = await startEngine({ definitions, version, frozen: true, ...options })
    open.unshift(engine)
    return engine
  }
  afterEach(async () => {
    for (const engine of open.splice(0)) await engine.close()
  })

  test('C211 C213 runs that ended are deleted when their retention is over, counted from their end; others stay', async () => {
    const engine = await start()
    const early = await engine.spawnId('brief', 'early')
    const long = await engine.spawnId('brief', 'long', { delay: '10 days' })
    const broken = await engine.spawnId('failing')
    expect(await engine.tick()).toMatchObject({ completed: 1, failed: 1 })
    engine.advance(DAY_MS - 1_000)
    expect((await engine.tick()).pruned).toBe(0)
    engine.advance(MINUTE_MS)
    expect((await engine.tick()).pruned).toBe(1)
    expect(await engine.store.getRun(early, { tenant: 'default' })).toBeNull()
    expect((await engine.run(broken)).status).toBe('failed')
    engine.advance(9 * DAY_MS)
    expect(await engine.tick()).toMatchObject({ completed: 1, pruned: 1 })
    // created ten days ago, ended just now
    expect(await engine.run(long)).toMatchObject({ status: 'completed', result: 'long' })
    expect((await engine.store.listRuns({ ...EVERYTHING, definition: 'failing' })).items).toEqual([])
    engine.advance(DAY_MS + MINUTE_MS)
    expect((await engine.tick()).pruned).toBe(1)
  })

  test('C217 each queue has its own, for the definitions that say nothing, counted from the end of a run', async () => {
    const silent = job({
      name: 'silent',
      input: z.unknown(),
      retry: 'none',
      run: ({ input }) => (input === 'fail' ? Promise.reject(new Error('told')) : null),
    })
    const queues = {
      short: { retention: '1h' },
      split: { retention: { completed: '1h', failed: '2 days' } },
      long: { retention: '60 days' },
    } as const
    const engine = await start({ definitions: [silent, brief], queues })
    const spawn = (queue: string, input: unknown, definition = 'silent') => engine.spawnId(definition, input, { queue })
    const ids = {
      short: await spawn('short', 1),
      completed: await spawn('split', 1),
      failed: await spawn('split', 'fail'),
      elsewhere: await spawn('elsewhere', 1),
      // what the definition says goes before what the queue says
      own: await spawn('long', 1, 'brief'),
      long: await spawn('long', 1),
    }
    const left = async () => {
      const found = await Promise.all(
        Object.entries(ids).map(async ([name, id]) => ((await engine.store.getRun(id, { tenant: 'default' })) ? name : '')),
      )
      return found.filter(Boolean)
    }
    await engine.tick()
    const after = async (ms: number) => {
      engine.advance(ms)
      await engine.tick()
      engine.advance(MINUTE_MS)
      await engine.tick()
      return left()
    }
    expect(await after(3_600_000 - 5 * MINUTE_MS)).toEqual(Object.keys(ids))
    expect(await after(10 * MINUTE_MS)).toEqual(['failed', 'elsewhere', 'own', 'long'])
    expect(await after(DAY_MS)).toEqual(['failed', 'elsewhere', 'long'])
    expect(await after(DAY_MS)).toEqual(['elsewhere', 'long'])
    expect(await after(10 * DAY_MS)).toEqual(['long'])
    expect(await after(60 * DAY_MS)).toEqual([])
    expect(await engine.sql(ORPHANS)).toEqual([0])
  })

  test('C211 one pass deletes 2,000 at most, the next ones the rest', async () => {
    const engine = await start({ budget: { batch: 500, concurrency: 500 } })
    await engine.spawnMany('brief', Array.from({ length: 4_500 }))
    await engine.tick()
    engine.advance(2 * DAY_MS)
    const passes: number[] = []
    for (let pass = 0; pass < 3; pass += 1) {
      passes.push((await engine.tick()).pruned)
      engine.advance(2_000)
    }
    // while there is more it is due again in a second, not in a minute
    expect(passes).toEqual([2_000, 2_000, 500])
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0')).toEqual([0])
  })

  test('C214 C219 nothing that belonged to a deleted run is left, and its key and idempotency key can be used again', async () => {
    const engine = await start()
    const receipt = { key: 'request-1', fingerprint: 'f' }
    const first = await engine.spawn('parked', {}, { key: 'k', receipt })
    await engine.tick()
    await engine.signal({ key: 'k' }, 'go')
    await engine.tick()
    engine.advance(2 * DAY_MS)
    expect((await engine.tick()).pruned).toBe(1)
    expect(await engine.sql(ORPHANS)).toEqual([0])
    // the receipt has a life of its own: until then a repeat is answered as the first time
    expect(await engine.spawn('parked', {}, { key: 'k', receipt })).toMatchObject({ kind: 'replayed', id: idOf(first) })
    engine.advance(8 * DAY_MS)
    await engine.tick()
    expect(await engine.sql('SELECT count(*)::int FROM pawl.receipts WHERE environment_id > 0')).toEqual([0])
    expect(await engine.spawn('parked', {}, { key: 'k', receipt })).toMatchObject({ kind: 'created' })
  })

  test('C215 what is not at its end survives a year', async () => {
    const engine = await start()
    const ids = [await engine.spawnId('parked', {}), await engine.spawnId('brief', 1, { delay: '800 days' })]
    await engine.tick()
    engine.advance(365 * DAY_MS)
    expect((await engine.tick()).pruned).toBe(0)
    expect((await Promise.all(ids.map((id) => engine.run(id)))).map(({ status }) => status)).toEqual(['waiting', 'pending'])
  })

  test('C216 passes at once delete each run once, and one of them does the upkeep', async () => {
    const first = await start({ budget: { batch: 500, concurrency: 500 } })
    await first.spawnMany('brief', Array.from({ length: 1_000 }))
    await first.tick()
    const others = [await start({ on: first.fresh }), await start({ on: first.fresh })]
    const engines = [first, ...others]
    for (const engine of engines) engine.advance(2 * DAY_MS)
    const prune = async (engine: TestEngine) => {
      const now = new Date(engine.clock()).toISOString()
      const statement = pruneEnded('pawl', { now, environment: engine.environment, limit: 100, minRetentionSeconds: 86_400 })
      const [rows = []] = await engine.database.batch([statement])
      return Number(rows[0]?.pruned)
    }
    let pruned = 0
    for (let round = 0; round < 4; round += 1) {
      const counts = await Promise.all(engines.map(prune))
      pruned += counts.reduce((sum, count) => sum + count, 0)
      expect(await first.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0')).toEqual([1_000 - pruned])
    }
    expect(pruned).toBeGreaterThanOrEqual(400)
    const reports = await Promise.all(engines.map((engine) => engine.tick()))
    expect(reports.reduce((sum, report) => sum + report.pruned, 0)).toBe(1_000 - pruned)
    expect(await first.sql(ORPHANS)).toEqual([0])
  })

  test('C152 the results of children are kept for a parent that still waits, though their own retention is over', async () => {
    const gone = job({ name: 'gone', input: z.number(), retention: 0, run: ({ input }) => input })
    const parent = machine({
      name: 'parent',
      state: z.object({}),
      output: z.array(z.number()),
      retention: '1 day',
      initial: 'split',
      steps: {
        split: ({ join }) => join([gone.with(1), gone.with(2), gone.with(3, { delay: '10 days' })], { goto: 'end' }),
        end: ({ children, done }) => done(children(gone).map((child) => (child.status === 'completed' ? child.result : -1))),
      },
    })
    const engine = await start({ definitions: [parent, gone] })
    const id = await engine.spawnId('parent', {})
    const [bystander] = await engine.spawnMany('gone', [9])
    await engine.tick()
    engine.advance(5 * DAY_MS)
    await engine.tick()
    expect(await engine.store.getRun(bystander ?? '', { tenant: 'default' })).toBeNull()
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0')).toEqual([4])
    engine.advance(5 * DAY_MS)
    await engine.tick()
    expect((await engine.run(id)).result).toEqual([1, 2, 3])
    // nobody waits for them any more; the cursor goes round a lane before it begins anew
    for (let pass = 0; pass < 3; pass += 1) {
      engine.advance(DAY_MS)
      await engine.tick()
    }
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0')).toEqual([0])
  })
})

describe('upkeep', () => {
  test('a pass that finds more of it is followed by another within seconds', async () => {
    const engine = await startEngine({ definitions, frozen: true, budget: { batch: 500, concurrency: 500 } })
    await engine.spawnMany('brief', Array.from({ length: 2_100 }))
    await engine.tick()
    engine.advance(2 * DAY_MS)
    expect((await engine.tick()).pruned).toBe(2_000)
    expect((await engine.tick()).pruned).toBe(0)
    engine.advance(1_000)
    expect((await engine.tick()).pruned).toBe(100)
    engine.advance(30_000)
    const before = engine.database.requests
    await engine.tick()
    expect(engine.database.requests - before).toBe(1)
    await engine.close()
  })
})

const EVERYTHING = {
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

const ORPHANS = `
  SELECT (
    (SELECT count(*) FROM pawl.history h WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = h.run_id))
    + (SELECT count(*) FROM pawl.signals g WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = g.run_id))
    + (SELECT count(*) FROM pawl.uniques u WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = u.run_id))
    + (SELECT count(*) FROM pawl.event_waits w WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = w.run_id))
    + (SELECT count(*) FROM pawl.cascades c WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = c.parent_id))
    + (SELECT count(*) FROM pawl.ready y WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = y.run_id))
    + (SELECT count(*) FROM pawl.claims)
  )::int`

function idOf(admission: { readonly kind: string; readonly id?: string }): string | undefined {
  return admission.id
}
