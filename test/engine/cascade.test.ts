import { afterEach, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { type Moment, moment, sharedEngines, type TestEngine } from '../support/engine.ts'
import { children, claim, claimOne, finishes, flush, joins } from '../traps/outcomes.ts'
import { lockRun } from '../traps/session.ts'

const ran: unknown[] = []
let started: Moment
let mayEnd: Moment

const leaf = job({ name: 'leaf', input: z.unknown(), queue: 'leaves', run: ({ input }) => void ran.push(input) })
const family = machine({
  name: 'family',
  input: z.object({ children: z.number(), depth: z.number() }),
  state: z.object({ children: z.number(), depth: z.number() }),
  initial: 'start',
  steps: {
    start: ({ state: { children, depth }, join, self }) => {
      const own = Array.from({ length: children }, (_, n) =>
        depth > 1 ? self.with({ children, depth: depth - 1 }) : leaf.with(n),
      )
      return join(own, { goto: 'end' })
    },
    end: ({ done }) => done(undefined),
  },
})
const mixed = machine({
  name: 'mixed',
  state: z.object({}),
  initial: 'start',
  steps: {
    start: ({ join }) => join([leaf.with('follows'), leaf.with('outlives', { outlivesParent: true })], { goto: 'end' }),
    end: ({ done }) => done(undefined),
  },
})
const early = machine({
  name: 'early',
  state: z.object({}),
  initial: 'start',
  steps: {
    start: ({ join }) => join([leaf.with('late')], { goto: 'end', need: 0 }),
    end: async ({ next }) => {
      started.happen()
      await mayEnd.promise
      return next('end')
    },
  },
})

const SCOPE = { tenant: 'default', by: 'ann' }

forEachVersion('cancelling a family', (version) => {
  const { start: startEngine } = sharedEngines(version)
  /** Leaves are not run, so that they are there to be cancelled. */
  const start = (options = {}) =>
    startEngine({ definitions: [leaf, family, mixed, early], version, only: ['default'], ...options })
  afterEach(() => {
    ran.length = 0
  })
  const statuses = (engine: TestEngine) =>
    engine.sql<string>(
      `SELECT definition || ' ' || status || ' ' || count(*) FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id
       WHERE l.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) GROUP BY definition, status ORDER BY 1`,
      [engine.environment],
    )

  test('C149 cancelling a parent cancels its children and theirs, and says that they follow', async () => {
    const engine = await start()
    const id = await engine.spawnId('family', { children: 2, depth: 3 })
    await engine.tick()
    expect(await statuses(engine)).toEqual(['family waiting 7', 'leaf pending 8'])
    expect(await engine.store.cancel(id, SCOPE)).toEqual({ id, did: 'cancelled', status: 'cancelled', children: 'cancelling' })
    expect(await engine.store.cancel(id, SCOPE)).toMatchObject({ did: 'already_cancelled', children: 'cancelling' })
    expect(await statuses(engine)).toEqual(['family cancelled 1', 'family waiting 6', 'leaf pending 8'])
    expect(await engine.tick()).toMatchObject({ cancelled: 14, more: false, nextDueAt: null })
    expect(await statuses(engine)).toEqual(['family cancelled 7', 'leaf cancelled 8'])
    expect(await engine.store.cancel(id, SCOPE)).toEqual({ id, did: 'already_cancelled', status: 'cancelled' })
    const [child] = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = $1 LIMIT 1', [id])
    expect(await engine.run(child!)).toMatchObject({ error: { code: 'cancelled', cause: 'cancelled', by: `run:${id}` } })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.cascades', [])).toEqual([0])
    expect(ran).toEqual([])
  })

  test('C149 a child that outlives its parent goes on', async () => {
    const engine = await start()
    const id = await engine.spawnId('mixed', {})
    await engine.tick()
    await engine.store.cancel(id, SCOPE)
    await engine.tick()
    expect(await statuses(engine)).toEqual(['leaf cancelled 1', 'leaf pending 1', 'mixed cancelled 1'])
    const all = await startEngine({ definitions: [leaf, mixed], version, beside: engine })
    await all.tick()
    expect(ran).toEqual(['outlives'])
  })

  test('C149 a parent whose deadline is over takes its children along', async () => {
    const engine = await start()
    await engine.spawnId('family', { children: 3, depth: 1 }, { maxDuration: '1h' })
    await engine.tick()
    engine.advance(3_600_000)
    expect(await engine.tick()).toMatchObject({ cancelled: 4 })
    expect(await statuses(engine)).toEqual(['family cancelled 1', 'leaf cancelled 3'])
  })

  test('C149 a running parent is asked to stop, and its children do not wait for that', async () => {
    const engine = await start()
    started = moment()
    mayEnd = moment()
    const id = await engine.spawnId('early', {})
    const tick = engine.tick()
    await started.promise
    expect(await engine.store.cancel(id, SCOPE)).toEqual({ id, did: 'requested', status: 'running', children: 'cancelling' })
    const other = await start({ beside: engine })
    expect(await other.tick()).toMatchObject({ cancelled: 1 })
    expect(await statuses(engine)).toEqual(['early running 1', 'leaf cancelled 1'])
    mayEnd.happen()
    await tick
    expect(await statuses(engine)).toEqual(['early cancelled 1', 'leaf cancelled 1'])
  })

  test('C149 trap 22: ten thousand children follow in bounded rounds, whatever statistics there are', {
    timeout: 120_000,
  }, async () => {
    const engine = await start()
    // statistics that know of nothing but one large family
    const other = await start()
    await other.spawnId('family', { children: 2_000, depth: 1 })
    await other.tick()
    await engine.sql('ANALYZE')
    const id = await engine.spawnId('family', { children: 10_000, depth: 1 })
    await engine.tick()
    await engine.store.cancel(id, SCOPE)
    const rounds = engine.sent.length
    expect(await engine.tick()).toMatchObject({ cancelled: 10_000, more: false })
    expect(engine.sent.slice(rounds).filter((names) => names.includes('follow_parents')).length).toBeGreaterThanOrEqual(20)
    expect(await statuses(engine)).toEqual(['family cancelled 1', 'leaf cancelled 10000'])
    expect(
      await engine.sql('SELECT count(*)::int FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id WHERE r.parent_id = $1', [id]),
    ).toEqual([0])
  })

  test('C149 trap 2: a child that somebody holds is left to a later tick and holds nothing up', async () => {
    const engine = await start()
    const id = await engine.spawnId('family', { children: 3, depth: 1 })
    await engine.tick()
    const [child] = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = $1 ORDER BY id LIMIT 1', [id])
    await engine.store.cancel(id, SCOPE)
    const held = await lockRun(engine.fresh.connectionString, child!)
    expect(await engine.tick()).toMatchObject({ cancelled: 2, more: true })
    await held.release()
    expect(await engine.tick()).toMatchObject({ cancelled: 1, more: false })
  })

  test('C149 trap 11: the end of children by cascade wakes no parent that was cancelled', async () => {
    const engine = await start()
    const id = await engine.spawnId('family', { children: 2, depth: 2 })
    await engine.tick()
    const [middle] = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = $1 ORDER BY id LIMIT 1', [id])
    await engine.store.cancel(middle!, SCOPE)
    expect(await engine.tick()).toMatchObject({ cancelled: 2, claimed: 0 })
    // the other child of the root is still waited for
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
  })

  test('C149 children of a parent that was started again are no part of its cancellation, which the earlier ones still follow', async () => {
    const engine = await start()
    const id = await engine.spawnId('early', {})
    const [first, second] = [await children(engine, 'leaf', 2), await children(engine, 'leaf', 2)]
    await flush(engine, [joins(await claimOne(engine), first, 1)])
    await flush(engine, [finishes((await claim(engine, { limit: 1 }))[0]!)])
    await engine.store.cancel(id, SCOPE)
    await engine.store.retry(id, SCOPE)
    // nobody has ticked in between
    await flush(engine, [joins(await claimOne(engine, { queues: ['default'] }), second)])
    expect(await engine.store.endDue()).toEqual({ ended: 1, moved: true })
    expect(await statuses(engine)).toEqual(['early waiting 1', 'leaf cancelled 1', 'leaf completed 1', 'leaf pending 2'])
    expect(await engine.store.endDue()).toEqual({ ended: 0, moved: false })
    // cancelled once more, it takes them along
    await engine.store.cancel(id, SCOPE)
    expect(await engine.store.endDue()).toEqual({ ended: 2, moved: true })
  })
})
