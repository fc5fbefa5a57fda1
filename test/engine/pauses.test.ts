import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import type { ClaimedRun } from '../../src/core/store.ts'
import { claimRuns } from '../../src/db/statements/claim-runs.ts'
import { moment, sharedEngines, type TestEngine } from '../support/engine.ts'
import { measure } from '../support/plans.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const mail = job({ name: 'mail', queue: 'mails', input: z.number(), run: ({ input }) => input })
const other = job({ name: 'other', queue: 'others', input: z.number(), run: ({ input }) => input })
const mails2 = job({ name: 'mail', version: 2, queue: 'mails', input: z.number(), run: ({ input }) => -input })
const flaky = job({
  name: 'flaky',
  input: z.number(),
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: '1m' } },
  run: ({ input, attempt }) => {
    if (attempt === 1) throw new Error('first')
    return input
  },
})
const order = machine({
  name: 'order',
  state: z.object({ paid: z.boolean().optional() }),
  output: z.string(),
  signals: { paid: z.object({}) },
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('paid', { goto: 'end', timeout: '1h' }),
    end: ({ signals, timedOut, done }) => done(`${signals.first('paid') ? 'paid' : 'unpaid'} ${timedOut}`),
  },
})
const one = limit('one', { concurrency: 1 })
const single = job({ name: 'single', input: z.number(), limits: [one], run: ({ input }) => input })
const definitions = [mail, other, mails2, flaky, order, single]

const pauseOf = (kind: 'queue' | 'definition', name: string, tenant: string | null = null) => ({
  kind,
  name,
  tenant,
  by: 'ops@example.org',
  declared: false,
})
const scope = { tenant: 'default', by: 'ops@example.org' }
const statusOf = async (engine: TestEngine, id: string) => (await engine.run(id)).status

describe('a pause', () => {
  const engines = sharedEngines()
  const start = (options = {}) => engines.start({ definitions, frozen: true, ...options })

  test('C180 of a queue: it claims nothing, what is spawned into it waits too, and resumed it goes on in order', async () => {
    const order: number[] = []
    const noted = [mail, mails2, other].map(({ name, version }) => {
      const queue = name === 'mail' ? 'mails' : 'others'
      return job({ name, version, queue, input: z.number(), run: ({ input }) => order.push(input) })
    })
    const engine = await start({ definitions: noted, budget: { batch: 1, concurrency: 1 } })
    const ids = [...(await engine.spawnMany('mail', [1, 2]))]
    const paused = await engine.store.pause(pauseOf('queue', 'mails'))
    expect(paused).toEqual({ did: 'paused', paused: true, by: 'ops@example.org', since: engine.clock() })
    // another version: a lane that is born into the pause
    ids.push(await engine.spawnId('mail', 3, { version: 2 }), await engine.spawnId('mail', 4))
    const beside = await engine.spawnId('other', 5)
    expect(await engine.tick()).toMatchObject({ claimed: 1, more: false })
    expect(await statusOf(engine, beside)).toBe('completed')
    expect(await Promise.all(ids.map((id) => statusOf(engine, id)))).toEqual(Array(4).fill('pending'))
    expect(await engine.store.resume(pauseOf('queue', 'mails'))).toEqual({ did: 'resumed', paused: false, by: null, since: null })
    expect((await engine.tick()).completed).toBe(4)
    expect(order).toEqual([5, 1, 2, 3, 4])
  })

  test('C180 says what it did, again and again, and refuses names that nobody knows', async () => {
    const { store, ...engine } = await start()
    await engine.spawnId('mail', 1)
    expect(await store.resume(pauseOf('queue', 'mails'))).toMatchObject({ did: 'not_paused', paused: false })
    const first = await store.pause(pauseOf('queue', 'mails'))
    engine.advance(5_000)
    const again = await store.pause({ ...pauseOf('queue', 'mails'), by: 'somebody else' })
    expect(again).toEqual({ ...first, did: 'already_paused' })
    expect(await store.pause(pauseOf('queue', 'mials'))).toBeNull()
    expect(await store.resume(pauseOf('queue', 'mials'))).toBeNull()
    expect(await store.pause({ ...pauseOf('queue', 'new'), declared: true })).toMatchObject({ did: 'paused' })
    expect(await engine.sql('SELECT name FROM pawl.pauses ORDER BY name')).toEqual(['mails', 'new'])
  })

  test('C180 of a definition holds all its versions; a queue and its definition are resumed apart', async () => {
    const engine = await start()
    await engine.spawnMany('mail', [1, 2])
    await engine.spawnId('mail', 3, { version: 2 })
    await engine.store.pause(pauseOf('definition', 'mail'))
    await engine.store.pause(pauseOf('queue', 'mails'))
    expect((await engine.tick()).claimed).toBe(0)
    await engine.store.resume(pauseOf('queue', 'mails'))
    expect((await engine.tick()).claimed).toBe(0)
    await engine.store.resume(pauseOf('definition', 'mail'))
    expect((await engine.tick()).completed).toBe(3)
  })

  test('C180 C275 a tenant pauses its own runs of a queue alone; a pause for all of them outlasts it', async () => {
    const engine = await start()
    await engine.spawn('mail', 1, { tenant: 'a' })
    await engine.spawn('mail', 2, { tenant: 'b' })
    await engine.store.pause(pauseOf('queue', 'mails', 'a'))
    expect((await engine.tick()).claimed).toBe(1)
    expect(await engine.store.pause(pauseOf('queue', 'mails', 'c'))).toBeNull()
    await engine.store.pause({ ...pauseOf('queue', 'mails'), by: 'root' })
    expect(await engine.store.resume(pauseOf('queue', 'mails', 'a'))).toMatchObject({ did: 'resumed', paused: true, by: 'root' })
    expect((await engine.tick()).claimed).toBe(0)
    await engine.store.resume(pauseOf('queue', 'mails'))
    expect((await engine.tick()).claimed).toBe(1)
  })

  test('C180 a lane that is made while its queue is being paused is paused', async () => {
    const engine = await start()
    await engine.spawnId('other', 0)
    const { connectionString } = engine.fresh
    // the lanes that exist are being written: the pause has looked for pauses and lanes, and is held up before its commit
    const held = await holdRowLock(connectionString, 'SELECT FROM pawl.lanes FOR UPDATE')
    const pausing = engine.store.pause(pauseOf('queue', 'others'))
    await untilBlocked(connectionString, { blockedBy: held.pid })
    const spawning = engine.spawnId('other', 1, { tenant: 'new' })
    await untilBlocked(connectionString, { queryMatches: /ensure_environment|environments \(name\)/ })
    await held.release()
    await Promise.all([pausing, spawning])
    expect((await engine.tick()).claimed).toBe(0)
  })

  test('C180 runs of a paused definition that stand in the line of a shared limit keep its room from nobody, and have their place after it', async () => {
    const order: string[] = []
    const stopped = job({ name: 'stopped', limits: [one], run: () => order.push('stopped') })
    const going = job({ name: 'going', limits: [one], run: () => order.push('going') })
    const running = moment()
    const go = moment()
    const holder = job({
      name: 'holder',
      limits: [one],
      run: async () => {
        running.happen()
        await go.promise
      },
    })
    const engine = await start({ definitions: [holder, stopped, going] })
    await engine.spawnId('holder')
    const ticking = engine.tick()
    await running.promise
    const beside = await engines.start({ definitions: [stopped, going], beside: engine, frozen: true })
    await engine.spawnMany('stopped', Array(250).fill(null))
    await beside.tick()
    const last = await engine.spawnId('going')
    await beside.tick()
    expect((await engine.run(last)).blockedOn).not.toBeNull()
    await engine.store.pause(pauseOf('definition', 'stopped'))
    go.happen()
    await ticking
    await beside.tick()
    expect(await statusOf(engine, last)).toBe('completed')
    await engine.spawnId('going')
    await engine.store.resume(pauseOf('definition', 'stopped'))
    await beside.tick()
    await beside.tick()
    expect(order).toEqual(['going', ...Array(250).fill('stopped'), 'going'])
  })

  test('C180 one that stood next for the room of a limit passes it on when its queue is paused', async () => {
    const engine = await start()
    const [holder, heir] = [
      await engine.spawnId('single', 1, { queue: 'mails' }),
      await engine.spawnId('single', 2, { queue: 'mails' }),
    ]
    const behind = await engine.spawnId('single', 3, { queue: 'others' })
    const [run] = await claim(engine, { limit: 1 })
    expect([run?.id, await claim(engine)]).toEqual([holder, []])
    await flush(engine, [finishes(run as ClaimedRun)])
    expect(await engine.sql('SELECT run_id FROM pawl.ready WHERE run_id = ANY ($1)', [[heir, behind]])).toEqual([heir])
    await engine.store.pause(pauseOf('queue', 'mails'))
    await engine.tick()
    expect([await statusOf(engine, heir), await statusOf(engine, behind)]).toEqual(['pending', 'completed'])
  })

  test('C180 100,000 runs of a paused queue cost a claim next to nothing', async () => {
    const engine = await start()
    await engine.spawnMany('mail', [1, 2, 3])
    await engine.store.pause(pauseOf('queue', 'mails'))
    const client = await engine.fresh.pool({ max: 1 }).connect()
    const statement = claimRuns('pawl', {
      now: null,
      environment: engine.environment,
      claimId: '00000000-0000-7000-8000-000000000001',
      definitions: ['mail', 'other'],
      versions: [1, 1],
      leaseMs: 30_000,
      limit: 100,
      maxBytes: 1_000_000,
      laneCursor: 0,
      alone: true,
      queues: null,
      satellites: 10,
      knownLanes: [],
      admits: 'ungated',
    })
    // which plan is chosen is test/cost's question; beside three runs a scan would be a fair choice
    await client.query(
      `SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; PREPARE claiming AS ${statement.text}`,
    )
    const touched = async () => {
      await client.query('BEGIN')
      const { buffers, scanned } = await measure(client, 'claiming', statement)
      await client.query('ROLLBACK')
      expect(scanned.filter((table) => ['runs', 'ready'].includes(table))).toEqual([])
      return buffers
    }
    await touched()
    const few = await touched()
    await client.query(
      `INSERT INTO pawl.ready (lane_id, priority, available_at, position, run_id)
      SELECT l.id, 0, now(), 1000000 + n, gen_random_uuid() FROM pawl.lanes l, generate_series(1, 100000) n
      WHERE l.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) AND l.queue = 'mails'`,
      [engine.environment],
    )
    await client.query('VACUUM ANALYZE pawl.ready')
    await touched()
    // the index is a level or two deeper at each of the claim's looks into it; reading them would be a thousand pages
    expect(await touched()).toBeLessThanOrEqual(few + 60)
    await client.query('DELETE FROM pawl.ready WHERE position > 1000000')
    client.release()
  })
})

describe('a run that is paused', () => {
  const engines = sharedEngines()
  const start = (options = {}) => engines.start({ definitions, frozen: true, ...options })

  test('C181 is not claimed, shows who holds it since when, and goes on where it was', async () => {
    const engine = await start()
    const [first, second] = (await engine.spawnMany('mail', [1, 2])) as [string, string]
    const answer = await engine.store.pauseRun(first, scope)
    const hold = { reason: 'paused', by: 'ops@example.org', since: new Date(engine.clock()).toISOString() }
    expect(answer).toEqual({ id: first, did: 'paused', status: 'pending', hold })
    expect(await engine.store.pauseRun(first, { ...scope, by: 'else' })).toEqual({ ...answer, did: 'already_paused' })
    expect((await engine.tick()).completed).toBe(1)
    expect(await engine.run(first)).toMatchObject({ status: 'pending', hold: 'paused', holdDetail: { by: hold.by } })
    expect(await statusOf(engine, second)).toBe('completed')
    expect(await engine.store.resumeRun(first, scope)).toEqual({ id: first, did: 'resumed', status: 'pending', hold: null })
    expect(await engine.store.resumeRun(first, scope)).toMatchObject({ did: 'not_paused' })
    expect((await engine.tick()).completed).toBe(1)
    expect(await engine.store.pauseRun(first, scope)).toMatchObject({ did: 'already_ended', status: 'completed', hold: null })
    expect(await engine.store.pauseRun(first, { ...scope, tenant: 'else' })).toBeNull()
  })

  test('C181 while it waits: a signal and a timer still reach it, and it runs once it is resumed', async () => {
    const engine = await start()
    const signalled = await engine.spawnId('order', {})
    const timed = await engine.spawnId('order', {})
    await engine.tick()
    for (const id of [signalled, timed]) await engine.store.pauseRun(id, scope)
    expect(await engine.run(timed)).toMatchObject({ status: 'waiting', hold: 'paused', awaits: ['paid'] })
    await engine.signal({ id: signalled }, 'paid', {})
    engine.advance(3_600_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0, more: false })
    expect(await engine.run(signalled)).toMatchObject({ status: 'pending', hold: 'paused' })
    expect(await engine.run(timed)).toMatchObject({ status: 'pending', hold: 'paused', timedOut: true })
    for (const id of [signalled, timed]) await engine.store.resumeRun(id, scope)
    await engine.tick()
    expect((await engine.run(signalled)).result).toBe('paid false')
    expect((await engine.run(timed)).result).toBe('unpaid true')
  })

  test('C181 while it runs: its step ends and is committed, and what follows waits, also where it would have gone on at once', async () => {
    const entered = moment()
    const release = moment()
    const steps = machine({
      name: 'steps',
      state: z.object({ n: z.number() }),
      output: z.number(),
      initial: 'first',
      steps: {
        first: async ({ next, state }) => {
          entered.happen()
          await release.promise
          return next('second', { state: { n: state.n + 1 } })
        },
        second: ({ state, done }) => done(state.n),
      },
    })
    const engine = await start({ definitions: [steps] })
    const id = await engine.spawnId('steps', { n: 1 })
    const ticking = engine.tick()
    await entered.promise
    expect(await engine.store.pauseRun(id, scope)).toMatchObject({ did: 'paused', status: 'running' })
    release.happen()
    await ticking
    expect(await engine.run(id)).toMatchObject({ status: 'pending', hold: 'paused', step: 'second', state: { n: 2 } })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['continue'])
    // its claim has nothing left under it: nobody takes the run for lost
    engine.advance(31_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0, rescued: 0 })
    await engine.store.resumeRun(id, scope)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 2, hold: null })
  })

  test('C181 resumed while it still runs, or still waits, it is claimed by nobody else and goes on as if nothing had been', async () => {
    const patient = machine({
      name: 'patient',
      state: z.object({}),
      output: z.string(),
      signals: { go: z.object({}) },
      initial: 'wait',
      steps: { wait: ({ waitFor }) => waitFor('go', { goto: 'end' }), end: ({ done }) => done('end') },
    })
    const engine = await start({ definitions: [...definitions, patient] })
    const waiting = await engine.spawnId('patient', {})
    await engine.tick()
    const running = await engine.spawnId('mail', 1)
    const [run] = await claim(engine)
    for (const id of [waiting, running]) {
      expect(await engine.store.pauseRun(id, scope)).toMatchObject({ did: 'paused' })
      expect(await engine.store.resumeRun(id, scope)).toMatchObject({ did: 'resumed' })
    }
    expect(await claim(engine)).toEqual([])
    // left in the window, each tick would look at them and say that there is more
    expect(await engine.sql('SELECT run_id FROM pawl.ready WHERE run_id = ANY ($1)', [[waiting, running]])).toEqual([])
    expect([await statusOf(engine, waiting), await statusOf(engine, running)]).toEqual(['waiting', 'running'])
    expect((await flush(engine, [finishes(run as ClaimedRun)])).outcomes).toMatchObject([{ kind: 'applied' }])
    await engine.signal({ id: waiting }, 'go', {})
    expect((await engine.tick()).completed).toBe(1)
    expect((await engine.run(waiting)).result).toBe('end')
  })

  test('C181 between attempts and while it is delayed: its time goes on, and resumed it keeps to it', async () => {
    const engine = await start()
    const retried = await engine.spawnId('flaky', 1)
    const delayed = await engine.spawnId('mail', 2, { delay: '2m' })
    await engine.tick()
    for (const id of [retried, delayed]) await engine.store.pauseRun(id, scope)
    engine.advance(60_000)
    expect((await engine.tick()).claimed).toBe(0)
    // the retry has become due while it was held, the other has not
    for (const id of [retried, delayed]) await engine.store.resumeRun(id, scope)
    expect((await engine.tick()).completed).toBe(1)
    engine.advance(60_000)
    expect((await engine.tick()).completed).toBe(1)
  })

  test('C181 in the line of a gate: it leaves the line, does not take the room of others, and lines up again', async () => {
    const engine = await start({ budget: { batch: 1, concurrency: 1 } })
    const ids = await engine.spawnMany('single', [1, 2, 3])
    await engine.store.pauseRun(ids[1] ?? '', scope)
    expect((await engine.tick()).completed).toBe(2)
    await engine.store.resumeRun(ids[1] ?? '', scope)
    expect((await engine.tick()).completed).toBe(1)
    expect(await engine.sql('SELECT sum(held)::int FROM pawl.limit_counters WHERE held <> 0')).toEqual([null])
  })

  test('C181 is cancelled and retried like any other', async () => {
    const engine = await start()
    const id = await engine.spawnId('mail', 1)
    await engine.store.pauseRun(id, scope)
    await engine.store.cancel(id, scope)
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', hold: null })
    await engine.store.retry(id, scope)
    expect((await engine.tick()).completed).toBe(1)
  })
})
