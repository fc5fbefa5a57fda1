import { afterEach, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { isPawlError } from '../../src/core/errors.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import type { RunRecord } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { type Moment, moment, sharedEngines, type TestEngine } from '../support/engine.ts'

/** What a handler under test is waiting for, and what it has been told. */
let started: Moment<AbortSignal>
let mayEnd: Moment
const told: unknown[] = []

const count: string[] = []
const counted = job({ name: 'counted', input: z.unknown(), run: ({ run }) => void count.push(run.id) })
const stubborn = job({
  name: 'stubborn',
  input: z.unknown(),
  timeout: '20s',
  run: async ({ abortSignal }) => {
    started.happen(abortSignal)
    await mayEnd.promise
    return 'ended well'
  },
})
const beats = job({
  name: 'beats',
  retry: { maxAttempts: 1 },
  run: async ({ abortSignal, heartbeat }) => {
    started.happen(abortSignal)
    await mayEnd.promise
    await heartbeat().catch((error: unknown) => {
      told.push(error, abortSignal.aborted)
      throw error
    })
    told.push('went on')
  },
})
const waiter = machine({
  name: 'waiter',
  state: z.object({}),
  signals: { go: z.unknown() },
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('go', { goto: 'end', timeout: '1h' }),
    end: ({ done }) => done(undefined),
  },
})
const goes = machine({
  name: 'goes',
  state: z.object({}),
  signals: { go: z.unknown() },
  initial: 'start',
  steps: {
    start: async ({ next, waitFor, retry, done, run }) => {
      started.happen(new AbortController().signal)
      await mayEnd.promise
      if (run.tags.includes('wait')) return waitFor('go', { goto: 'end' })
      if (run.tags.includes('retry')) return retry({ after: 0 })
      return run.tags.includes('done') ? done(undefined) : next('end')
    },
    end: ({ done, run }) => {
      count.push(run.id)
      return done(undefined)
    },
  },
})
const one = limit('one at a time', { concurrency: 1 })
const gated = job({ name: 'gated', input: z.unknown(), limits: [one], run: ({ run }) => void count.push(run.id) })
const hangs = job({
  name: 'hangs',
  limits: [one],
  timeout: '20s',
  run: ({ abortSignal }) => {
    started.happen(abortSignal)
    return new Promise(() => {})
  },
})

const DEFINITIONS = [counted, stubborn, beats, waiter, goes, gated, hangs]
const BY = { tenant: 'default', by: 'ann', reason: 'not wanted any more' }
const ERROR = {
  code: 'cancelled',
  cause: 'cancelled',
  by: 'ann',
  reason: 'not wanted any more',
  message: 'The run was cancelled by ann: not wanted any more.',
}

forEachVersion('cancelling', (version) => {
  const { start: startEngine } = sharedEngines(version)
  const start = (options = {}) => startEngine({ definitions: DEFINITIONS, version, ...options })
  afterEach(() => {
    count.length = 0
    told.length = 0
  })
  const begin = async (engine: TestEngine) => {
    started = moment<AbortSignal>()
    mayEnd = moment()
    const tick = engine.tick()
    return { signal: await started.promise, tick }
  }

  test('C174 C177 a run that has not run ends at once, whatever holds it, and says who and why', async () => {
    const engine = await start()
    const due = await engine.spawnId('counted')
    const delayed = await engine.spawnId('counted', null, { delay: '1h', key: 'order:1' })
    const held = await engine.spawnId('counted')
    await engine.sql(`UPDATE pawl.runs SET hold = 'paused' WHERE id = $1`, [held])
    const blocked = await engine.spawnId('gated')
    await engine.sql(`UPDATE pawl.runs SET blocked_on = 'x' WHERE id = $1`, [blocked])
    for (const id of [due, delayed, held, blocked]) {
      expect(await engine.store.cancel(id, BY)).toEqual({ id, did: 'cancelled', status: 'cancelled' })
      expect(await engine.store.cancel(id, { ...BY, by: 'bob' })).toEqual({ id, did: 'already_cancelled', status: 'cancelled' })
      const run = await engine.run(id)
      expect(run).toMatchObject({ status: 'cancelled', attempt: 0, hold: null, blockedOn: null, availableAt: null, error: ERROR })
      expect((await engine.history(id)).map(({ outcome, error }) => [outcome, error?.by])).toEqual([['cancel', 'ann']])
    }
    expect(await engine.sql('SELECT count(*)::int FROM pawl.ready WHERE run_id = ANY ($1)', [[due, held, blocked]])).toEqual([0])
    engine.advance(3_600_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0, more: false, nextDueAt: null })
    expect(count).toEqual([])
    expect(await engine.spawn('counted', null, { key: 'order:1' })).toMatchObject({ kind: 'created' })
  })

  test('C175 a waiting run that is cancelled waits for nothing any more: a later signal is refused and its timeout does not come', async () => {
    const engine = await start()
    const id = await engine.spawnId('waiter', {})
    await engine.tick()
    await engine.sql(
      `INSERT INTO pawl.event_waits (tenant, environment_id, topic, run_id) SELECT 'default', environment_id, 'event:x', id FROM pawl.runs WHERE id = $1`,
      [id],
    )
    expect(await engine.store.cancel(id, BY)).toEqual({ id, did: 'cancelled', status: 'cancelled' })
    expect(await engine.signal({ id }, 'go')).toEqual({ kind: 'no_target' })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.event_waits WHERE run_id = $1', [id])).toEqual([0])
    engine.advance(7_200_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0, promoted: 0, nextDueAt: null })
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', awaits: null, error: ERROR })
  })

  test('C176 the heartbeat of a cancelled run is refused, its signal has fired, and the run ends cancelled though no attempt is left', async () => {
    const engine = await start()
    const id = await engine.spawnId('beats')
    const { tick } = await begin(engine)
    expect(await engine.store.cancel(id, BY)).toEqual({ id, did: 'requested', status: 'running' })
    expect(await engine.store.cancel(id, BY)).toEqual({ id, did: 'already_requested', status: 'running' })
    expect(await engine.run(id)).toMatchObject({ status: 'running', cancellation: ERROR })
    mayEnd.happen()
    expect(await tick).toMatchObject({ cancelled: 1, failed: 0, retried: 0 })
    expect([isPawlError(told[0], 'cancelled'), ...told.slice(1)]).toEqual([true, true])
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', error: ERROR })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['cancel'])
  })

  test('C176 the heartbeat that the invocation sends for all it holds tells the handler', async () => {
    const engine = await start({ leaseMs: 1_500 })
    const id = await engine.spawnId('stubborn')
    const { signal, tick } = await begin(engine)
    const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve))
    await engine.store.cancel(id, BY)
    await aborted
    expect(isPawlError(signal.reason, 'cancelled')).toBe(true)
    mayEnd.happen()
    await tick
    // it ended within its grace, and well: a final outcome that is committed stands
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 'ended well' })
  })

  test.each([
    ['moves on', [], 'cancelled'],
    ['waits', ['wait'], 'cancelled'],
    ['wants another attempt', ['retry'], 'cancelled'],
    ['is done', ['done'], 'completed'],
  ] as const)(
    'C060 C176 a step that %s after it was asked to stop leaves one end: cancelled, unless it had come to its own',
    async (_, tags, status) => {
      const engine = await start()
      const id = await engine.spawnId('goes', {}, { tags })
      const { tick } = await begin(engine)
      await engine.store.cancel(id, BY)
      mayEnd.happen()
      await tick
      const run = await engine.run(id)
      expect([run.status, (await engine.history(id)).length, count]).toEqual([status, 1, []])
      if (status === 'cancelled') expect(run.error).toEqual(ERROR)
      expect(await engine.store.cancel(id, BY)).toMatchObject({
        did: status === 'cancelled' ? 'already_cancelled' : 'already_ended',
      })
      expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: null })
    },
  )

  test('C177 cancelling an ended run changes nothing of it', async () => {
    const engine = await start()
    const id = await engine.spawnId('counted')
    await engine.tick()
    const before = await engine.run(id)
    expect(await engine.store.cancel(id, BY)).toEqual({ id, did: 'already_ended', status: 'completed' })
    expect(await engine.run(id)).toEqual(before)
  })

  test('C178 with one place and one slot the next job runs though the handler of the cancelled one hangs', async () => {
    const engine = await start({ leaseMs: 1_500, cancelGraceMs: 1, budget: { concurrency: 1, batch: 1 } })
    const id = await engine.spawnId('hangs')
    const next = await engine.spawnId('gated', null, { priority: 1 })
    const { tick } = await begin(engine)
    await engine.store.cancel(id, BY)
    expect(await tick).toMatchObject({ claimed: 2, completed: 1, cancelled: 1 })
    expect(count).toEqual([next])
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', error: ERROR })
    expect(await heldSlots(engine)).toEqual([0])
  })

  test('a run that lost its host after the request ends at its rescue, though nobody works on its queue', async () => {
    const engine = await start({ frozen: true })
    const id = await engine.spawnId('counted')
    await engine.store.claim({ ...CLAIM, definitions: engine.registry.definitions })
    expect(await engine.store.cancel(id, BY)).toMatchObject({ did: 'requested' })
    const elsewhere = await startEngine({ definitions: DEFINITIONS, version, beside: engine, only: ['another'] })
    elsewhere.advance(60_000)
    expect(await elsewhere.tick()).toMatchObject({ rescued: 1, cancelled: 1, claimed: 0 })
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', losses: 1, error: ERROR })
    expect(await elsewhere.tick()).toMatchObject({ more: false, nextDueAt: null })
  })

  test('C179 an uncertain run keeps its evidence and the request; it is not replayed, and ends by a decision', async () => {
    const engine = await start()
    const id = await engine.spawnId('counted')
    await engine.sql(
      `WITH gone AS (DELETE FROM pawl.ready WHERE run_id = $1)
       UPDATE pawl.runs SET status = 'uncertain', notable = 'uncertain', uncertainty = '{"evidence": "card 42"}' WHERE id = $1`,
      [id],
    )
    expect(await engine.store.cancel(id, BY)).toEqual({ id, did: 'requested', status: 'uncertain' })
    expect(await engine.store.cancel(id, BY)).toMatchObject({ did: 'already_requested', status: 'uncertain' })
    const run: RunRecord = await engine.run(id)
    expect(run).toMatchObject({ status: 'uncertain', finishedAt: null, cancellation: ERROR })
    expect(run.cancelRequestedAt).not.toBeNull()
    expect(await engine.sql('SELECT uncertainty FROM pawl.runs WHERE id = $1', [id])).toEqual([{ evidence: 'card 42' }])
    const { store, registry } = engine
    expect(await store.retry(id, { tenant: 'default' })).toMatchObject({ kind: 'not_retryable' })
    const calls = createCalls({ store, registry })
    const replay = calls.resolve(id, { id: 'decision 1', decision: 'replay', by: 'ann' })
    await expect(replay).rejects.toMatchObject({ code: 'conflict' })
    expect(await engine.tick()).toMatchObject({ claimed: 0 })
    expect([(await engine.run(id)).status, count]).toEqual(['uncertain', []])
    expect(
      await calls.resolve(id, { id: 'decision 2', decision: 'failure', error: 'it never arrived', by: 'ann' }),
    ).toMatchObject({ status: 'failed' })
    expect(await engine.run(id)).toMatchObject({ status: 'failed', cancellation: ERROR })
  })
})

const CLAIM = {
  claimId: '00000000-0000-7000-8000-00000000c1a1',
  queues: null,
  limit: 10,
  maxBytes: 8_388_608,
  leaseMs: 30_000,
  laneCursor: 0,
  alone: false,
  besides: [],
  peek: false,
}

function heldSlots(engine: TestEngine): Promise<readonly number[]> {
  return engine.sql(
    `SELECT held FROM pawl.limit_counters WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1) AND gate LIKE 'one at a time%'`,
    [engine.environment],
  )
}
