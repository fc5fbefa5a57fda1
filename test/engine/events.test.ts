import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { endOf } from '../../src/core/topics.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claimRequest, finishes } from '../traps/outcomes.ts'

const opened = z.object({ day: z.number() }).nullable()

/** Waits for an event or a signal, and ends with what it was shown. */
const listener = machine({
  name: 'listener',
  state: z.object({ timeout: z.number().optional() }),
  signals: { stop: z.null() },
  events: { opened, closed: z.null() },
  output: z.object({ shown: z.array(z.json()), timedOut: z.boolean() }),
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state }) => waitFor(['opened', 'stop'], { goto: 'end', timeout: state.timeout }),
    end: ({ signals, timedOut, done }) => done({ shown: signals.all.map(({ name, payload }) => [name, payload]), timedOut }),
  },
})

const DAY = 86_400_000
const emit = (engine: TestEngine, payload: unknown = { day: 1 }, options: { retentionMs?: number; tenant?: string } = {}) =>
  engine.store.emit({
    tenant: options.tenant ?? 'default',
    name: 'opened',
    payload: JSON.stringify(payload),
    retentionMs: options.retentionMs ?? 7 * DAY,
    receipt: null,
  })
const shownBy = async (engine: TestEngine, id: string) => (await engine.run(id)).result as { shown: unknown[]; timedOut: boolean }

forEachVersion('events', (version) => {
  const { start } = sharedEngines(version)
  const begin = () => start({ definitions: [listener], frozen: true })

  test('C118 one emit wakes all five who wait, each with the payload, and no other tenant’s', async () => {
    const engine = await begin()
    const ids = await engine.spawnMany('listener', [{}, {}, {}, {}, {}])
    const foreign = await engine.spawn('listener', {}, { tenant: 'other' })
    await engine.tick()
    const before = engine.database.requests
    expect(await emit(engine)).toMatchObject({ kind: 'emitted', created: true, replayed: false, woke: true })
    expect(engine.database.requests - before).toBe(1)
    expect(await engine.tick()).toMatchObject({ claimed: 5, completed: 5 })
    for (const id of ids) expect((await shownBy(engine, id)).shown).toEqual([['opened', { day: 1 }]])
    const { id } = foreign as { id: string }
    expect(await engine.sql('SELECT status::text FROM pawl.runs WHERE id = $1', [id])).toEqual(['waiting'])
  })

  test('C119 C136 an event that is there already wakes a late joiner as it parks', async () => {
    const engine = await begin()
    await emit(engine)
    engine.advance(7 * DAY - 1)
    const id = await engine.spawnId('listener', {})
    expect(await engine.tick()).toMatchObject({ claimed: 2, completed: 1 })
    expect((await shownBy(engine, id)).shown).toEqual([['opened', { day: 1 }]])
  })

  test('C139 the payload of an event is an object to SQL, where it is emitted and in the inbox of who hears it', async () => {
    const engine = await begin()
    await emit(engine, { day: 3 })
    const id = await engine.spawnId('listener', {})
    await engine.tick()
    const ofEnvironment = 'environment_id = (SELECT id FROM pawl.environments WHERE name = $1)'
    const stored = `SELECT jsonb_typeof(payload) || ' ' || (payload ->> 'day') FROM pawl.events WHERE ${ofEnvironment}`
    expect(await engine.sql(stored, [engine.environment])).toEqual(['object 3'])
    const heard = "SELECT jsonb_typeof(payload) || ' ' || (payload ->> 'day') FROM pawl.signals WHERE run_id = $1"
    expect(await engine.sql(heard, [id])).toEqual(['object 3'])
  })

  test('C136 an expired event is as if never emitted: a late joiner waits, is listed as waiting for it, and is woken by the next one', async () => {
    const engine = await begin()
    await emit(engine)
    engine.advance(7 * DAY)
    const id = await engine.spawnId('listener', {})
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', awaits: ['event:opened', 'stop'] })
    expect(await emit(engine, { day: 2 })).toMatchObject({ created: true })
    await engine.tick()
    expect((await shownBy(engine, id)).shown).toEqual([['opened', { day: 2 }]])
  })

  test('C121 the first write wins until it expires: another one says so and changes nothing', async () => {
    const engine = await begin()
    const first = await emit(engine, { day: 1 }, { retentionMs: 60_000 })
    engine.advance(59_999)
    expect(await emit(engine, { day: 2 })).toEqual({ ...first, created: false, woke: false })
    const id = await engine.spawnId('listener', {})
    await engine.tick()
    expect((await shownBy(engine, id)).shown).toEqual([['opened', { day: 1 }]])
    engine.advance(1)
    expect(await emit(engine, { day: 3 })).toMatchObject({ created: true, emittedAt: engine.clock() })
  })

  test('C121 of sixteen emits at once one is the first, and each is told the same', async () => {
    const engine = await start({ definitions: [listener], connections: 16 })
    const answers = await Promise.all(Array.from({ length: 16 }, (_, day) => emit(engine, { day })))
    const times = answers.map((answer) => (answer.kind === 'emitted' ? answer.emittedAt : 0))
    expect(answers.filter((answer) => answer.kind === 'emitted' && answer.created)).toHaveLength(1)
    expect(new Set(times).size).toBe(1)
  })

  test('C129 an event without a payload is not a timeout, and a timeout is none of an event', async () => {
    const engine = await begin()
    const told = await engine.spawnId('listener', { timeout: 60_000 })
    await engine.tick()
    await emit(engine, null, { retentionMs: 1_000 })
    engine.advance(60_000)
    const late = await engine.spawnId('listener', { timeout: 60_000 })
    await engine.tick()
    engine.advance(60_000)
    await engine.tick()
    expect(await shownBy(engine, told)).toEqual({ shown: [['opened', null]], timedOut: false })
    expect(await shownBy(engine, late)).toEqual({ shown: [], timedOut: true })
  })

  test('registrations end with the wait: when it is told, runs out, is ended by a signal, or is cancelled', async () => {
    const engine = await begin()
    const registered =
      'SELECT count(*)::int FROM pawl.event_waits w JOIN pawl.environments e ON e.id = w.environment_id WHERE e.name = $1'
    const [, timed, signalled, cancelled] = await engine.spawnMany('listener', [{}, { timeout: 60_000 }, {}, {}])
    await engine.tick()
    await engine.signal({ id: signalled ?? '' }, 'stop')
    await engine.store.cancel(cancelled ?? '', { tenant: 'default', by: null })
    engine.advance(60_000)
    await engine.tick()
    expect((await engine.run(timed ?? '')).result).toMatchObject({ timedOut: true })
    expect(await engine.sql(registered, [engine.environment])).toEqual([1])
    await emit(engine)
    expect(await engine.sql(registered, [engine.environment])).toEqual([0])
  })

  test('of one event a run is told once: waiting for it again waits for the next', async () => {
    const again = machine({
      name: 'again',
      state: z.object({ days: z.array(z.number()) }),
      events: { opened },
      output: z.array(z.number()),
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor('opened', { goto: 'read' }),
        read: ({ signals, state, waitFor, done }) => {
          const days = [...state.days, signals.first('opened')?.payload?.day ?? -1]
          return days.length === 2 ? done(days) : waitFor('opened', { goto: 'read', state: { days } })
        },
      },
    })
    const engine = await start({ definitions: [again], frozen: true })
    const id = await engine.spawnId('again', { days: [] })
    await emit(engine, { day: 1 }, { retentionMs: 60_000 })
    expect(await engine.tick()).toMatchObject({ claimed: 2 })
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', state: { days: [1] } })
    engine.advance(60_000)
    await emit(engine, { day: 2 })
    await engine.tick()
    expect((await engine.run(id)).result).toEqual([1, 2])
  })

  test('C136 upkeep deletes expired events, and no others', async () => {
    const engine = await begin()
    await emit(engine, { day: 1 }, { retentionMs: 60_000 })
    engine.advance(59_999)
    const names = 'SELECT name FROM pawl.events WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)'
    const keep = async () => {
      await engine.sql("UPDATE pawl.environments SET upkeep_at = '-infinity'")
      await engine.store.upkeep({ source: 'test', nextInMs: 0, minRetentionSeconds: 0 })
      return engine.sql(names, [engine.environment])
    }
    expect(await keep()).toEqual(['opened'])
    engine.advance(1)
    expect(await keep()).toEqual([])
  })
})

const relayed = job({ name: 'relayed', input: z.unknown(), run: ({ input }) => input ?? null })

/** Emits, and signals another run, with the commit that ends it. */
const teller = job({
  name: 'teller',
  input: z.object({ to: z.string().optional(), key: z.string().optional(), name: z.string().optional() }),
  retry: 'none',
  run: ({ input: { to, key, name = 'opened' }, done }) =>
    done(1, {
      emit: [{ name, payload: { day: 5 } }],
      signal: [...(to ? [{ to: { id: to }, name: 'stop' }] : []), ...(key ? [{ to: { key }, name: 'stop' }] : [])],
    }),
})

/** Waits for the end of another run. */
const follower = machine({
  name: 'follower',
  state: z.object({ id: z.string().optional(), key: z.string().optional(), timeout: z.number().optional() }),
  output: z.json(),
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state: { id, key, timeout } }) =>
      waitFor(endOf(id ?? { definition: relayed, key: key ?? '' }), { goto: 'end', timeout }),
    end: ({ children, timedOut, done }) =>
      done([
        timedOut,
        ...children(relayed).map((end) => (end.status === 'completed' ? end.result : `${end.status} ${end.error?.message}`)),
      ] as z.core.util.JSONType),
  },
})

describe('events and signals of steps', () => {
  const { start } = sharedEngines()
  const begin = () => start({ definitions: [listener, teller], frozen: true })

  test('a step’s events and signals are committed with its outcome and told in the same tick', async () => {
    const engine = await begin()
    const [heard, stopped] = await engine.spawnMany('listener', [{}, {}])
    const keyed = await engine.spawnId('listener', {}, { key: 'keyed' })
    await engine.tick()
    await engine.spawnId('teller', { to: stopped, key: 'keyed' })
    await engine.tick()
    expect((await shownBy(engine, heard ?? '')).shown).toEqual([['opened', { day: 5 }]])
    // told of both, in whichever order: the first one woke it
    for (const id of [stopped ?? '', keyed]) expect((await engine.run(id)).status).toBe('completed')
    expect(await engine.sql('SELECT count(*)::int FROM pawl.outbox')).toEqual([0])
  })

  test('what a step tells arrives once, however often it is relayed', async () => {
    const engine = await begin()
    const id = await engine.spawnId('listener', {})
    await engine.tick()
    await engine.spawnId('teller', { to: id })
    await engine.tick()
    const signals = 'SELECT count(*)::int FROM pawl.signals WHERE run_id = $1'
    expect(await engine.sql(signals, [id])).toEqual([2])
    expect(await engine.store.relay(10)).toEqual({ told: 0, more: false })
    expect(await engine.sql(signals, [id])).toEqual([2])
  })

  test('an event that nobody declares is a failure of the step, and nothing is told', async () => {
    const engine = await begin()
    const id = await engine.spawnId('teller', { name: 'typo' })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', error: { code: 'invalid_event' } })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.outbox')).toEqual([0])
  })

  test('what an invocation that died has left untold is told by the next tick, which needs no upkeep for it', async () => {
    const engine = await begin()
    const id = await engine.spawnId('listener', {})
    await engine.tick()
    await engine.sql(
      `INSERT INTO pawl.outbox (created_at, environment_id, tenant, kind, subject, body)
       SELECT now(), id, 'default', 'event', 'opened', '{"payload": {"day": 9}, "retentionMs": 60000}' FROM pawl.environments WHERE name = $1`,
      [engine.environment],
    )
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect((await shownBy(engine, id)).shown).toEqual([['opened', { day: 9 }]])
  })
})

describe('the end of another run', () => {
  const { start } = sharedEngines()
  const begin = () => start({ definitions: [follower, relayed], frozen: true })

  test('C148 a run waits for another’s result without a slot, and is given it when that ends', async () => {
    const engine = await start({ definitions: [follower, relayed], budget: { concurrency: 1, batch: 1 }, frozen: true })
    const target = await engine.spawnId('relayed', { n: 1 }, { delay: '1h', key: 'job:1' })
    const ids = [await engine.spawnId('follower', { id: target }), await engine.spawnId('follower', { key: 'job:1' })]
    await engine.tick()
    for (const id of ids) expect(await engine.run(id)).toMatchObject({ status: 'waiting', awaits: [`run:${target}`] })
    engine.advance(3_600_000)
    expect(await engine.tick()).toMatchObject({ completed: 3 })
    for (const id of ids) expect((await engine.run(id)).result).toEqual([false, { n: 1 }])
  })

  test('C148 one that has ended already answers at once; one that failed is told with its error', async () => {
    const engine = await begin()
    const target = await engine.spawnId('relayed', 7)
    const cancelled = await engine.spawnId('relayed', 8, { delay: '1h' })
    await engine.tick()
    const late = await engine.spawnId('follower', { id: target })
    expect(await engine.tick()).toMatchObject({ claimed: 2, completed: 1 })
    expect((await engine.run(late)).result).toEqual([false, 7])
    const early = await engine.spawnId('follower', { id: cancelled })
    await engine.tick()
    await engine.store.cancel(cancelled, { tenant: 'default', by: null })
    await engine.tick()
    expect((await engine.run(early)).result).toEqual([false, 'cancelled The run was cancelled.'])
  })

  test('C148 C152 the result survives the retention of the run that gave it, and that run is kept until it has been told', async () => {
    const engine = await begin()
    const target = await engine.spawnId('relayed', 1, { delay: '1m' })
    const id = await engine.spawnId('follower', { id: target })
    await engine.tick()
    engine.advance(60_000)
    // it ends, and its host dies before it has told anybody
    const [run] = (await engine.store.claim(claimRequest(engine))).runs
    if (!run) throw new Error('nothing was claimed')
    await engine.store.flush({ outcomes: [finishes(run, '1')], endedClaims: [] }, null)
    const keep = async () => {
      await engine.sql("UPDATE pawl.environments SET upkeep_at = '-infinity'")
      await engine.store.upkeep({ source: 'test', nextInMs: 0, minRetentionSeconds: 0 })
      return engine.sql('SELECT count(*)::int FROM pawl.runs WHERE id = $1', [target])
    }
    engine.advance(365 * DAY)
    expect(await keep()).toEqual([1])
    await engine.store.relay(10)
    expect(await keep()).toEqual([0])
    await engine.tick()
    expect((await engine.run(id)).result).toEqual([false, 1])
  })

  test('C148 a wait for an end can run out; the run that is waited for goes on', async () => {
    const engine = await begin()
    const target = await engine.spawnId('relayed', 1, { delay: '1h' })
    const id = await engine.spawnId('follower', { id: target, timeout: 60_000 })
    await engine.tick()
    engine.advance(60_000)
    await engine.tick()
    expect((await engine.run(id)).result).toEqual([true])
    engine.advance(3_600_000)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await engine.sql('SELECT awaited FROM pawl.runs WHERE id = $1', [target])).toEqual([false])
  })

  test('C148 an unknown id, a key that nobody holds, another tenant’s run and the run itself are errors of the step', async () => {
    const engine = await begin()
    const foreign = (await engine.spawn('relayed', 1, { tenant: 'other' })) as { id: string }
    const unknown = '01890000-0000-7000-8000-000000000000'
    const own = '01890000-0000-7000-8000-000000000001'
    const states = [{ id: unknown }, { key: 'nobody' }, { id: foreign.id }]
    const ids = await engine.spawnMany('follower', states, { maxAttempts: 1 })
    await engine.spawn('follower', { id: own }, { id: own, maxAttempts: 1 })
    await engine.tick()
    for (const id of ids) expect(await engine.run(id)).toMatchObject({ status: 'failed', error: { code: 'not_found' } })
    expect(await engine.run(own)).toMatchObject({ status: 'failed', error: { code: 'invalid_outcome' } })
  })
})

describe('an event that ten thousand wait for', () => {
  const { start } = sharedEngines()

  test('C118 is told in bounded batches, to each of them once', { timeout: 120_000 }, async () => {
    const engine = await start({ definitions: [listener], budget: { batch: 500, concurrency: 500, wallMs: 600_000 } })
    await engine.spawnMany(
      'listener',
      Array.from({ length: 10_000 }, () => ({})),
    )
    expect((await engine.tick()).waiting).toBe(10_000)
    const before = engine.sent.length
    await emit(engine)
    const batches = engine.sent.slice(before).filter((names) => names.includes('tell_event'))
    expect(batches).toHaveLength(11)
    const told = 'SELECT count(*)::int FROM pawl.signals WHERE name = $1 GROUP BY run_id'
    expect(new Set(await engine.sql(told, ['event:opened']))).toEqual(new Set([1]))
    expect(await engine.tick()).toMatchObject({ claimed: 10_000, completed: 10_000 })
    expect(
      await engine.sql('SELECT (SELECT count(*) FROM pawl.event_waits)::int + (SELECT count(*) FROM pawl.outbox)::int'),
    ).toEqual([0])
  })
})
