import { afterEach, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { toDeadlines } from '../../src/core/deadlines.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { type Moment, moment, sharedEngines } from '../support/engine.ts'

const began: string[] = []
const HOUR = 3_600_000
let started: Moment<AbortSignal>

const brief = job({
  name: 'brief',
  input: z.unknown(),
  queue: 'nobody works on it',
  maxDuration: '1h',
  run: ({ run }) => void began.push(run.id),
})
const prompt = job({
  name: 'prompt',
  input: z.unknown(),
  startWithin: '10m',
  retry: { maxAttempts: 3, backoff: { kind: 'fixed', base: '1h' } },
  run: ({ run, attempt }) => {
    began.push(run.id)
    if (attempt === 1) throw new Error('the first one')
    return attempt
  },
})
const stuck = job({
  name: 'stuck',
  input: z.unknown(),
  progressWithin: '1h',
  retry: { maxAttempts: 100, backoff: { kind: 'fixed', base: '25m' } },
  run: ({ run }) => {
    began.push(run.id)
    throw new Error('never')
  },
})
const doubtful = job({
  name: 'doubtful',
  input: z.unknown(),
  progressWithin: '1h',
  retry: { maxAttempts: 100, backoff: { kind: 'fixed', base: '25m' } },
  run: ({ attempt, uncertain }) => {
    if (attempt === 1) return uncertain({ reason: 'no answer' })
    throw new Error('never')
  },
})
const steady = machine({
  name: 'steady',
  state: z.object({}),
  signals: { go: z.unknown() },
  progressWithin: '1h',
  initial: 'one',
  steps: {
    one: ({ next }) => next('two', { delay: '40m' }),
    two: ({ waitFor }) => waitFor('go', { goto: 'three' }),
    three: ({ next }) => next('four', { delay: '40m' }),
    four: ({ done }) => done(undefined),
  },
})
const long = job({
  name: 'long',
  input: z.unknown(),
  timeout: '20s',
  maxDuration: '1h',
  run: ({ abortSignal, heartbeat }) => {
    started.happen(abortSignal)
    return new Promise((_, reject) => {
      const beat = (): Promise<void> => heartbeat().then(beat, reject)
      void beat()
    })
  },
})

forEachVersion('deadlines', (version) => {
  const { start: startEngine } = sharedEngines(version)
  const definitions = [brief, prompt, stuck, doubtful, steady, long]
  const start = (options = {}) => startEngine({ definitions, version, frozen: true, ...options })
  afterEach(() => {
    began.length = 0
  })

  test('C111 a run over its maxDuration is cancelled by whatever tick there is, though nobody works on its queue', async () => {
    const engine = await start({ only: ['another'] })
    const id = await engine.spawnId('brief', null, { key: 'one of a kind' })
    const later = await engine.spawnId('brief', null, { delay: '30m' })
    const longer = await engine.spawnId('brief', null, { maxDuration: '5h' })
    expect((await engine.tick()).nextDueAt).toBe(engine.clock() + 30 * 60_000)
    engine.advance(HOUR - 1)
    expect(await engine.tick()).toMatchObject({ cancelled: 0, claimed: 0 })
    engine.advance(1)
    // a look, what is found due, a look at what is left
    expect(await engine.tick()).toMatchObject({ cancelled: 1, claimed: 0, requests: 4 })
    expect(await engine.run(id)).toMatchObject({
      status: 'cancelled',
      error: { code: 'deadline_exceeded', cause: 'timeout', deadline: 'maxDuration' },
      cancellation: { deadline: 'maxDuration' },
    })
    expect((await engine.history(id)).map(({ outcome, error }) => [outcome, error?.code])).toEqual([
      ['cancel', 'deadline_exceeded'],
    ])
    expect(await engine.spawn('brief', null, { key: 'one of a kind' })).toMatchObject({ kind: 'created' })
    // both of these count from when they were first due
    expect((await engine.run(later)).status).toBe('pending')
    engine.advance(HOUR / 2)
    expect(await engine.tick()).toMatchObject({ cancelled: 1 })
    expect([(await engine.run(later)).status, (await engine.run(longer)).status]).toEqual(['cancelled', 'pending'])
    expect(began).toEqual([])
  })

  test('C111 a running one over it is asked to stop by its own heartbeat, and says so', async () => {
    const engine = await start({ leaseMs: 3 * HOUR })
    started = moment<AbortSignal>()
    const id = await engine.spawnId('long')
    const tick = engine.tick()
    const signal = await started.promise
    engine.advance(HOUR)
    expect(await tick).toMatchObject({ cancelled: 1, stale: 0 })
    expect(signal.aborted).toBe(true)
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', error: { deadline: 'maxDuration', cause: 'timeout' } })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE id = $1 AND deadline_at IS NOT NULL', [id])).toEqual([0])
  })

  test('C111 a run started again by hand has all its time anew', async () => {
    const engine = await start({ only: ['another'] })
    const id = await engine.spawnId('brief')
    engine.advance(HOUR)
    await engine.tick()
    expect(await engine.store.retry(id, { tenant: 'default' })).toMatchObject({ kind: 'retried' })
    engine.advance(HOUR - 1)
    expect(await engine.tick()).toMatchObject({ cancelled: 0 })
    engine.advance(1)
    expect(await engine.tick()).toMatchObject({ cancelled: 1 })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['cancel', 'retried', 'cancel'])
  })

  test('C112 a run not started within its startWithin is cancelled, one that has been started is not', async () => {
    const engine = await start()
    const beside = await start({ beside: engine, only: ['another'] })
    const done = await engine.spawnId('prompt')
    await engine.tick()
    expect(began).toEqual([done])
    const never = await engine.spawnId('prompt')
    beside.advance(10 * 60_000)
    expect(await beside.tick()).toMatchObject({ cancelled: 1 })
    expect(await engine.run(never)).toMatchObject({ status: 'cancelled', attempt: 0, error: { deadline: 'startWithin' } })
    expect(await engine.run(done)).toMatchObject({ status: 'pending', attempt: 1 })
    engine.advance(HOUR)
    await engine.tick()
    expect(await engine.run(done)).toMatchObject({ status: 'completed', result: 2 })
    expect(began).toEqual([done, done])
  })

  test('C113 a run without progress for its progressWithin is cancelled: failed attempts are none', async () => {
    const engine = await start()
    const id = await engine.spawnId('stuck')
    for (const minutes of [0, 25, 25]) {
      engine.advance(minutes * 60_000)
      expect(await engine.tick()).toMatchObject({ retried: 1, cancelled: 0 })
    }
    engine.advance(10 * 60_000)
    expect(await engine.tick()).toMatchObject({ cancelled: 1, retried: 0 })
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', error: { deadline: 'progressWithin' } })
    expect(began).toHaveLength(3)
  })

  test('C113 C056 doubt stops the clock: a replay has all its time from the decision on, and no more', async () => {
    const engine = await start()
    const id = await engine.spawnId('doubtful')
    await engine.tick()
    engine.advance(1.2 * HOUR)
    await engine.tick()
    engine.advance(0.8 * HOUR)
    const { store, registry } = engine
    await createCalls({ store, registry }).resolve(id, { id: 'again', decision: 'replay' }, { by: 'alice' })
    for (let minutes = 0; minutes < 60; minutes += 5) {
      await engine.tick()
      expect(await engine.run(id)).toMatchObject({ status: 'pending' })
      engine.advance(HOUR / 12)
    }
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', error: { deadline: 'progressWithin' } })
  })

  test('C113 steps that come to their end are progress, and a wait for signals stops the clock', async () => {
    const engine = await start()
    const id = await engine.spawnId('steady', {})
    await engine.tick()
    engine.advance(40 * 60_000)
    await engine.tick()
    expect((await engine.run(id)).status).toBe('waiting')
    for (const hours of [1, 2, 30]) {
      engine.advance(hours * HOUR)
      expect(await engine.tick()).toMatchObject({ cancelled: 0, more: false })
    }
    await engine.signal({ id }, 'go')
    await engine.tick()
    engine.advance(40 * 60_000)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
    expect((await engine.tick()).nextDueAt).toBeNull()
  })
})

test('deadlines are checked where they are written', () => {
  expect(toDeadlines({}, '', 'invalid_request')).toBeUndefined()
  expect(toDeadlines({ maxDuration: '1h', progressWithin: 5 }, '', 'invalid_request')).toEqual({
    maxTotalMs: HOUR,
    maxIdleMs: 5,
  })
  expect(() => toDeadlines({ startWithin: 0 }, 'job "x".', 'invalid_configuration')).toThrow(/job "x".startWithin/)
  expect(() => job({ name: 'x', maxDuration: '-1h' as '1h', run: () => null })).toThrow(/maxDuration/)
})
