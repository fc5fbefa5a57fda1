import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { type CommonOptions, toCall } from '../../src/core/definition.ts'
import { isPawlError } from '../../src/core/errors.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import { createRegistry } from '../../src/core/registry.ts'
import { createStore } from '../../src/db/store.ts'
import { forEachVersion } from '../support/database.ts'
import { type EngineOptions, newRun, sharedEngines, type TestEngine } from '../support/engine.ts'
import { echo } from './definitions.ts'

const HOUR = 3_600_000
const MAIL = z.object({ to: z.string(), body: z.string().optional(), fails: z.boolean().optional() })
type Mail = z.infer<typeof MAIL>

/** A job named `mail` with that of the options which is under test. */
const mailer = (options: Pick<CommonOptions<Mail, Mail>, 'key' | 'keyScope' | 'unique' | 'throttle' | 'queue' | 'retention'>) =>
  job({
    name: 'mail',
    input: MAIL,
    retry: { maxAttempts: 1 },
    ...options,
    run: ({ input, fail }) => (input.fails ? fail('as told') : input.to),
  })

forEachVersion('keys and uniqueness', (version) => {
  const engines = sharedEngines(version)
  const start = (definition: Parameters<typeof mailer>[0], options: Partial<EngineOptions> = {}) =>
    engines.start({ definitions: [mailer(definition)], frozen: true, ...options })
  const entries = (engine: TestEngine) =>
    engine.sql<number>(
      'SELECT count(*)::int FROM pawl.uniques WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)',
      [engine.environment],
    )
  const A = { to: 'a' }

  test('C017 a key is held by what lives, and free once it has ended, unless more is asked', async () => {
    const engine = await start({})
    const first = await engine.spawnId('mail', A, { key: 'k' })
    expect(await engine.spawn('mail', A, { key: 'k' })).toMatchObject({ kind: 'occupied', id: first, status: 'pending' })
    await engine.tick()
    expect(await engine.spawn('mail', A, { key: 'k' })).toMatchObject({ kind: 'created' })
  })

  test('C017 C018 a key held in completed answers the completed run, is free after a failure, and after the run is deleted', async () => {
    const engine = await start({ keyScope: { statuses: ['completed'] }, retention: '1h' })
    const done = await engine.spawnId('mail', A, { key: 'k' })
    const failing = await engine.spawnId('mail', { to: 'b', fails: true }, { key: 'f' })
    expect(await engine.tick()).toMatchObject({ completed: 1, failed: 1 })
    expect(await engine.spawn('mail', A, { key: 'k' })).toMatchObject({ kind: 'occupied', id: done, status: 'completed' })
    expect(await engine.spawn('mail', A, { key: 'f' })).toMatchObject({ kind: 'created' })
    expect((await engine.run(failing)).status).toBe('failed')
    engine.advance(HOUR + 61_000)
    await engine.tick()
    expect(await engine.spawn('mail', A, { key: 'k' })).toMatchObject({ kind: 'created' })
  })

  test('C018 C219 a key held while its run is retained is free once the run is deleted, and not before', async () => {
    const engine = await start({ keyScope: 'retained', retention: { completed: '1h', failed: '2h' } })
    const ids = {
      completed: await engine.spawnId('mail', A, { key: 'completed' }),
      failed: await engine.spawnId('mail', { to: 'b', fails: true }, { key: 'failed' }),
      cancelled: await engine.spawnId('mail', A, { key: 'cancelled' }),
    }
    await engine.store.cancel(ids.cancelled, { tenant: 'default', by: null })
    await engine.tick()
    for (const [status, id] of Object.entries(ids))
      expect(await engine.spawn('mail', A, { key: status })).toMatchObject({ kind: 'occupied', id, status })
    engine.advance(HOUR + 61_000)
    await engine.tick()
    expect(await engine.spawn('mail', A, { key: 'failed' })).toMatchObject({ kind: 'occupied', id: ids.failed })
    expect(await engine.spawn('mail', A, { key: 'completed' })).toMatchObject({ kind: 'created' })
    engine.advance(HOUR)
    await engine.tick()
    expect(await engine.spawn('mail', A, { key: 'cancelled' })).toMatchObject({ kind: 'created' })
  })

  test('C017 a key with a period is held until then although its run has ended, and longer while the run lives', async () => {
    const engine = await start({ keyScope: { period: '1h' } })
    const short = await engine.spawnId('mail', A, { key: 'short' })
    const long = await engine.spawnId('mail', A, { key: 'long', delay: '3h' })
    await engine.tick()
    engine.advance(HOUR - 1)
    expect(await engine.spawn('mail', A, { key: 'short' })).toMatchObject({ kind: 'occupied', id: short, status: 'completed' })
    engine.advance(1)
    expect(await engine.spawn('mail', A, { key: 'short' })).toMatchObject({ kind: 'created' })
    engine.advance(HOUR)
    expect(await engine.spawn('mail', A, { key: 'long' })).toMatchObject({ kind: 'occupied', id: long, status: 'pending' })
    engine.advance(HOUR)
    await engine.tick()
    expect((await engine.run(long)).status).toBe('completed')
    expect(await engine.spawn('mail', A, { key: 'long' })).toMatchObject({ kind: 'created' })
  })

  test('C019 the same input again answers the run that is there, whatever the order of its members; another input is another run', async () => {
    const engine = await start({ unique: {} })
    const first = await engine.spawnId('mail', { to: 'a', body: 'x' })
    expect(await engine.spawn('mail', { body: 'x', to: 'a' })).toMatchObject({ kind: 'occupied', id: first })
    expect(await engine.spawn('mail', { to: 'a', body: 'y' })).toMatchObject({ kind: 'created' })
    expect(await engine.spawn('mail', { to: 'a', body: 'x' }, { tenant: 'other' })).toMatchObject({ kind: 'created' })
    expect(await entries(engine)).toEqual([3])
    await engine.tick()
    expect(await entries(engine)).toEqual([0])
    expect(await engine.spawn('mail', { to: 'a', body: 'x' })).toMatchObject({ kind: 'created' })
  })

  test('C019 two items of one batch that are the same are one run, each with its answer', async () => {
    const engine = await start({ unique: {} })
    const live = await engine.spawnId('mail', A)
    const runs = await Promise.all(
      [{ to: 'b' }, { to: 'b' }, A, { to: 'c' }].map((input) => newRun(engine.registry, 'mail', input)),
    )
    const [first, second, third, fourth] = await engine.store.spawn(runs)
    expect(first).toMatchObject({ kind: 'created', id: runs[0]?.id })
    expect(second).toMatchObject({ kind: 'occupied', id: runs[0]?.id, status: 'pending' })
    expect(third).toMatchObject({ kind: 'occupied', id: live })
    expect(fourth).toMatchObject({ kind: 'created' })
  })

  test('C020 of uniqueness on some members the others make no difference', async () => {
    const engine = await start({ unique: { by: ['to'] } })
    const first = await engine.spawnId('mail', { to: 'a', body: 'one' })
    expect(await engine.spawn('mail', { to: 'a', body: 'two' })).toMatchObject({ kind: 'occupied', id: first })
    expect(await engine.spawn('mail', { to: 'b', body: 'one' })).toMatchObject({ kind: 'created' })
  })

  test('C020 uniqueness on a text made of the input; where it is none, a run is like no other', async () => {
    const engine = await start({ unique: { by: ({ to }) => (to === '' ? undefined : to.toLowerCase()) } })
    const first = await engine.spawnId('mail', { to: 'A' })
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'occupied', id: first })
    expect(await engine.spawn('mail', { to: '' })).toMatchObject({ kind: 'created' })
    expect(await engine.spawn('mail', { to: '' })).toMatchObject({ kind: 'created' })
  })

  test('C021 the same in another queue is the same within the definition, and another within the queue', async () => {
    const across = await start({ unique: {} })
    const first = await across.spawnId('mail', A)
    expect(await across.spawn('mail', A, { queue: 'slow' })).toMatchObject({ kind: 'occupied', id: first })
    const within = await start({ unique: { within: 'queue' } })
    const second = await within.spawnId('mail', A)
    expect(await within.spawn('mail', A, { queue: 'slow' })).toMatchObject({ kind: 'created' })
    expect(await within.spawn('mail', A, { queue: 'default' })).toMatchObject({ kind: 'occupied', id: second })
  })

  test('C022 after the period from insertion the same is accepted, one microsecond before it is not, whether the run has ended or not', async () => {
    const engine = await start({ unique: { period: '1h' } })
    const first = await engine.spawnId('mail', A)
    const waiting = await engine.spawnId('mail', { to: 'later' }, { delay: '1 day' })
    await engine.tick()
    expect((await engine.run(first)).status).toBe('completed')
    const end = new Date(engine.clock() + HOUR)
    // instants in SQL have microseconds
    const before = `${new Date(end.getTime() - 1).toISOString().slice(0, -1)}999Z`
    for (const input of [A, { to: 'later' }]) {
      expect(await spawnAt(engine, before, input)).toMatchObject({ kind: 'occupied' })
      expect(await spawnAt(engine, end.toISOString(), input)).toMatchObject({ kind: 'created' })
      expect(await spawnAt(engine, end.toISOString(), input)).toMatchObject({ kind: 'occupied' })
    }
    expect((await engine.run(waiting)).status).toBe('pending')
  })

  test('C022 a period may begin when the run is to start', async () => {
    const engine = await start({ unique: { period: '1h', from: 'schedule' } })
    const delayed = await engine.spawnId('mail', A, { delay: '2h' })
    const at = new Date(engine.clock() + 3 * HOUR)
    const dated = await engine.spawnId('mail', { to: 'b' }, { at })
    engine.advance(3 * HOUR - 1)
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'occupied', id: delayed })
    engine.advance(1)
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'created' })
    engine.advance(HOUR - 1)
    expect(await engine.spawn('mail', { to: 'b' })).toMatchObject({ kind: 'occupied', id: dated })
    engine.advance(1)
    expect(await engine.spawn('mail', { to: 'b' })).toMatchObject({ kind: 'created' })
  })

  test('C022 of a period with statuses, a run that ended otherwise counts no longer', async () => {
    const engine = await start({ unique: { by: ['to'], period: '1h', statuses: ['completed'] } })
    const done = await engine.spawnId('mail', A)
    await engine.spawnId('mail', { to: 'b', fails: true })
    await engine.tick()
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'occupied', id: done, status: 'completed' })
    expect(await engine.spawn('mail', { to: 'b' })).toMatchObject({ kind: 'created' })
  })

  test('C019 uniqueness while retained lasts until the run is deleted', async () => {
    const engine = await start({ unique: { whileRetained: true }, retention: '1h' })
    const first = await engine.spawnId('mail', A)
    await engine.tick()
    engine.advance(HOUR - 1)
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'occupied', id: first, status: 'completed' })
    engine.advance(61_001)
    await engine.tick()
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'created' })
  })

  test('C173 C270 of throttled spawns the first in a period runs, and all others are answered with it', async () => {
    const engine = await start({ throttle: { by: ['to'], per: '1h' } })
    const first = await engine.spawnId('mail', { to: 'a', body: '1' })
    const runs = await Promise.all(
      Array.from({ length: 100 }, (_, n) => newRun(engine.registry, 'mail', { to: 'a', body: String(n) })),
    )
    expect(new Set((await engine.store.spawn(runs)).map((answer) => ('id' in answer ? answer.id : answer.kind)))).toEqual(
      new Set([first]),
    )
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    engine.advance(HOUR - 1)
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'occupied', id: first, status: 'completed' })
    expect(await engine.spawn('mail', { to: 'b' })).toMatchObject({ kind: 'created' })
    engine.advance(1)
    expect(await engine.spawn('mail', A)).toMatchObject({ kind: 'created' })
  })

  test('a run with a key and uniqueness takes both or neither', async () => {
    const engine = await start({ unique: { by: ['to'] } })
    const first = await engine.spawnId('mail', A, { key: 'k' })
    const [otherKey, otherInput, free, again] = await engine.store.spawn(
      await Promise.all([
        newRun(engine.registry, 'mail', A, { key: 'other' }),
        newRun(engine.registry, 'mail', { to: 'b' }, { key: 'k' }),
        newRun(engine.registry, 'mail', { to: 'c' }, { key: 'other' }),
        newRun(engine.registry, 'mail', { to: 'b' }, { key: 'third' }),
      ]),
    )
    expect(otherKey).toMatchObject({ kind: 'occupied', id: first })
    expect(otherInput).toMatchObject({ kind: 'occupied', id: first })
    // what the first two wanted beside was not left behind
    expect(free).toMatchObject({ kind: 'created' })
    expect(again).toMatchObject({ kind: 'created' })
    expect(await entries(engine)).toEqual([6])
    await engine.tick()
    expect(await entries(engine)).toEqual([0])
  })

  test('a retry takes the key and the uniqueness again, or says who has them', async () => {
    const engine = await start({ unique: { by: ['to'] } })
    const first = await engine.spawnId('mail', { to: 'a', fails: true }, { key: 'k' })
    await engine.tick()
    expect(await entries(engine)).toEqual([0])
    const second = await engine.spawnId('mail', { to: 'a' }, { key: 'other' })
    expect(await engine.store.retry(first, SCOPE)).toEqual({ kind: 'key_taken', holder: second })
    expect(await engine.spawn('mail', { to: 'x' }, { key: 'k' })).toMatchObject({ kind: 'created' })
    await engine.tick()
    expect(await engine.store.retry(first, SCOPE)).toEqual({ kind: 'retried', id: first })
    expect(await engine.spawn('mail', { to: 'y' }, { key: 'k' })).toMatchObject({ kind: 'occupied', id: first })
    expect(await engine.spawn('mail', { to: 'a' })).toMatchObject({ kind: 'occupied', id: first })
    await engine.tick()
    expect(await entries(engine)).toEqual([0])
  })

  test('a retried run whose key is reserved holds it as a live one, and its period is the one it began with', async () => {
    const engine = await start({ keyScope: { period: '1h' } })
    const first = await engine.spawnId('mail', { to: 'a', fails: true }, { key: 'k' })
    await engine.tick()
    expect(await engine.store.retry(first, SCOPE)).toEqual({ kind: 'retried', id: first })
    engine.advance(2 * HOUR)
    expect(await engine.spawn('mail', A, { key: 'k' })).toMatchObject({ kind: 'occupied', id: first, status: 'pending' })
    await engine.tick()
    expect(await engine.spawn('mail', A, { key: 'k' })).toMatchObject({ kind: 'created' })
  })

  test('a retry that is refused leaves no key behind', async () => {
    const waits = machineThatWaits()
    const engine = await engines.start({ definitions: [waits], frozen: true })
    const id = await engine.spawnId('waits', {}, { key: 'k' })
    await engine.tick()
    await engine.store.cancel(id, { tenant: 'default', by: null })
    expect(await engine.store.retry(id, SCOPE)).toMatchObject({ kind: 'not_retryable' })
    expect(await engine.spawn('waits', {}, { key: 'k' })).toMatchObject({ kind: 'created' })
  })
})

const SCOPE = { tenant: 'default' }

function machineThatWaits() {
  return machine({
    name: 'waits',
    state: z.object({}),
    signals: { go: z.null() },
    initial: 'wait',
    steps: { wait: ({ waitFor }) => waitFor('go', { goto: 'wait' }) },
  })
}

async function spawnAt(engine: TestEngine, now: string, input: unknown) {
  const store = createStore({ database: engine.database, environment: engine.environment, now: () => now })
  return (await store.spawn([await newRun(engine.registry, 'mail', input)]))[0]
}

describe('what uniqueness may be', () => {
  const refused = (options: Parameters<typeof mailer>[0] & { batch?: unknown; debounce?: unknown }) => {
    try {
      mailer(options)
    } catch (error) {
      if (isPawlError(error, 'invalid_configuration')) return error
      throw error
    }
    throw new Error('accepted')
  }

  test('C017 trap 10 statuses may be added to a key scope, live ones neither added nor left out', () => {
    const scope = (keyScope: unknown) => refused({ keyScope: keyScope as never })
    expect(scope({ statuses: ['running'] })).toMatchObject({ field: 'job "mail".keyScope.statuses', got: '"running"' })
    expect(scope('never').allowed).toContain('"retained"')
    expect(scope({ period: '0s' }).field).toBe('job "mail".keyScope.period')
  })

  test('a period longer than the retention is refused: what is held goes with its run', () => {
    expect(refused({ unique: { period: '8 days' } })).toMatchObject({ field: 'job "mail".unique.period', got: '"8 days"' })
    expect(refused({ unique: { period: '2h' }, retention: '1h' }).allowed).toContain('1h')
    expect(refused({ throttle: { per: '2h' }, retention: '1h' }).field).toBe('job "mail".throttle.per')
    expect(refused({ keyScope: { period: '2h' }, retention: '1h' }).field).toBe('job "mail".keyScope.period')
  })

  test('what does not go together is refused by name', () => {
    expect(refused({ unique: {}, throttle: { per: '1h' } })).toMatchObject({
      got: '"unique and throttle"',
      allowed: 'one of them',
    })
    expect(refused({ key: () => 'k', debounce: { wait: '1s' } }).field).toBe('job "mail".key')
    expect(refused({ unique: { from: 'schedule' } }).field).toBe('job "mail".unique.from')
    expect(refused({ unique: { whileRetained: true, period: '1h' } }).field).toBe('job "mail".unique.whileRetained')
    expect(refused({ unique: { by: [] } }).field).toBe('job "mail".unique.by')
    expect(refused({ debounce: { wait: '10s', max: '5s' } }).field).toBe('job "mail".debounce.max')
    expect(refused({ batch: { wait: '10s', size: 0 } }).field).toBe('job "mail".batch.size')
  })

  test('C020 an input without members cannot be unique by some', async () => {
    const loose = job({ name: 'loose', input: z.json(), unique: { by: ['to'] as never }, run: () => null })
    const call = toCall({ definition: 'loose', version: 1, input: 'text', options: {} })
    await expect(toNewRun(call, { registry: createRegistry([loose, echo]), tenant: 'default' })).rejects.toMatchObject({
      code: 'invalid_input',
    })
  })
})
