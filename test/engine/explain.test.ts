import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { endOf } from '../../src/core/topics.ts'
import { moment, sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim } from '../traps/outcomes.ts'

const MINUTE = 60_000
const quick = job({ name: 'quick', queue: 'quicks', input: z.number(), run: ({ input }) => input })
const future = job({ name: 'quick', version: 2, queue: 'quicks', input: z.number(), run: ({ input }) => input })
const perCustomer = limit('per-customer', { concurrency: 1 })
const order = machine({
  name: 'order',
  state: z.object({}),
  output: z.string(),
  signals: { paid: z.object({}), refused: z.object({}) },
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor(['paid', 'refused'], { goto: 'end', timeout: '1h' }),
    end: ({ done }) => done('end'),
  },
})
const parent = machine({
  name: 'parent',
  state: z.object({}),
  output: z.string(),
  initial: 'split',
  steps: {
    split: ({ join }) => join([quick.with(1), quick.with(2, { delay: '1d' }), quick.with(3, { delay: '1d' })], { goto: 'end' }),
    end: ({ done }) => done('end'),
  },
})
const watcher = machine({
  name: 'watcher',
  state: z.object({ run: z.string().optional() }),
  output: z.string(),
  signals: { paid: z.object({}) },
  events: { opened: z.object({}) },
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state: { run } }) => waitFor(['opened', 'paid', ...(run ? [endOf(run)] : [])], { goto: 'end' }),
    end: ({ done }) => done('end'),
  },
})
const doubtful = job({ name: 'doubtful', run: ({ uncertain }) => uncertain({ reason: 'no answer' }) })
const definitions = [quick, order, parent, watcher, doubtful]

/** In one request, each time. */
async function explain(engine: TestEngine, id: string) {
  const before = engine.database.requests
  const explanation = await createCalls({ store: engine.store, registry: engine.registry }).explain(id)
  expect(engine.database.requests - before).toBe(1)
  return explanation
}

describe('explain', () => {
  const engines = sharedEngines()
  const start = (options = {}) => engines.start({ definitions, frozen: true, ...options })

  test('C187 C263 due, behind others, forgotten by the ticks, ended', async () => {
    const engine = await start()
    const spawnedAt = engine.clock()
    const [first, second] = (await engine.spawnMany('quick', [1, 2])) as [string, string]
    expect(await explain(engine, first)).toMatchObject({ reason: 'due', ahead: 0, since: spawnedAt })
    expect(await explain(engine, second)).toMatchObject({ reason: 'behind_others', ahead: 1, since: spawnedAt })
    engine.advance(3 * MINUTE)
    expect(await explain(engine, first)).toMatchObject({ reason: 'no_tick', lastTickAt: null, source: null })
    await engine.tick()
    expect(await explain(engine, first)).toMatchObject({ reason: 'ended', status: 'completed', since: engine.clock() })
    const tickedAt = engine.clock()
    const third = await engine.spawnId('quick', 3)
    engine.advance(3 * MINUTE)
    expect(await explain(engine, third)).toMatchObject({
      reason: 'no_tick',
      lastTickAt: tickedAt,
      source: 'test',
      since: tickedAt,
    })
  })

  test('C187 C263 not due, and until when', async () => {
    const engine = await start()
    const id = await engine.spawnId('quick', 1, { delay: '10m' })
    expect(await explain(engine, id)).toMatchObject({ reason: 'not_due', until: engine.clock() + 10 * MINUTE })
  })

  test('C187 C263 its queue, its definition or itself is paused: by whom and since when', async () => {
    const engine = await start()
    const id = await engine.spawnId('quick', 1)
    const request = { tenant: null, by: 'ada', declared: false }
    const since = engine.clock()
    const paused = { by: 'ada', since }
    await engine.store.pause({ ...request, kind: 'definition', name: 'quick' })
    expect(await explain(engine, id)).toMatchObject({ reason: 'definition_paused', ...paused })
    await engine.store.pause({ ...request, kind: 'queue', name: 'quicks' })
    expect(await explain(engine, id)).toMatchObject({ reason: 'queue_paused', ...paused })
    await engine.store.pauseRun(id, { tenant: 'default', by: 'ada' })
    expect(await explain(engine, id)).toMatchObject({ reason: 'run_paused', ...paused })
  })

  test('C187 C263 a gate is full: its limit, its partition, who holds it', async () => {
    const [entered, release] = [moment(), moment()]
    const limited = job({
      name: 'limited',
      input: z.string(),
      limits: [perCustomer.by((input: string) => input)],
      run: async () => {
        entered.happen()
        await release.promise
      },
    })
    const engine = await start({ definitions: [limited] })
    const [holder, denied] = (await engine.spawnMany('limited', ['c1', 'c1'])) as [string, string]
    const ticking = engine.tick()
    await entered.promise
    expect(await explain(engine, denied)).toMatchObject({
      reason: 'gate_full',
      limit: 'per-customer',
      partition: 'c1',
      capacity: 1,
      holders: [holder],
    })
    expect(await explain(engine, holder)).toMatchObject({ reason: 'running', step: 'run', until: engine.clock() + 30_000 })
    release.happen()
    await ticking
  })

  test('C187 C263 an exclusive key is taken, a queue has as many as it may, and a heavy run has not room enough', async () => {
    const ten = limit('ten', { concurrency: 10 })
    const keyed = job({ name: 'keyed', input: z.string(), concurrencyKey: (key) => key, run: () => null })
    const capped = job({ name: 'capped', input: z.string(), queue: 'capped', run: () => null })
    const heavy = job({ name: 'heavy', input: z.string(), limits: [ten.weighing(6)], run: () => null })
    const light = job({ name: 'light', input: z.string(), limits: [ten], run: () => null })
    const engine = await start({ definitions: [keyed, capped, heavy, light], queues: { capped: { concurrency: 1 } } })
    // declares the limits
    await engine.tick()
    const ids: Record<string, string> = {}
    for (const name of ['keyed', 'capped', 'heavy'])
      for (const nth of ['first', 'second']) ids[`${nth} ${name}`] = await engine.spawnId(name, 'a')
    ids.light = await engine.spawnId('light', 'a')
    for (let claims = 0; claims < 3; claims += 1) await claim(engine)
    const full = { reason: 'gate_full', held: 1, units: 1, capacity: 1 }
    expect(await explain(engine, ids['second keyed']!)).toMatchObject({
      ...full,
      ...{ limit: 'key', partition: 'a', holders: [ids['first keyed']] },
      detail: `The concurrency key "a" lets 1 run at once and is full, held by ${ids['first keyed']}.`,
    })
    expect(await explain(engine, ids['second capped']!)).toMatchObject({
      ...full,
      ...{ limit: 'queue:capped', holders: [ids['first capped']] },
      detail: `The queue "capped" lets 1 run at once and is full, held by ${ids['first capped']}.`,
    })
    expect(await explain(engine, ids['second heavy']!)).toMatchObject({
      ...{ reason: 'gate_full', limit: 'ten', capacity: 10, held: 6, units: 6 },
      detail: `The limit "ten" lets 10 run at once and has room for 4 more, of which this run takes 6, held by ${ids['first heavy']}.`,
    })
    expect(await explain(engine, ids.light)).toMatchObject({ reason: 'gate_full', held: 6, units: 1 })
    expect((await explain(engine, ids.light))?.detail).toContain('who comes before it is let in first')
  })

  test('C187 C275 holders of other tenants are counted and not named', async () => {
    const engine = await start({
      frozen: false,
      definitions: [job({ name: 'shared', input: z.string(), limits: [limit('shared', { concurrency: 2 })], run: () => null })],
    })
    await engine.tick()
    const own = await engine.spawnId('shared', 'own')
    await engine.spawn('shared', 'theirs', { tenant: 'other' })
    const denied = await engine.spawnId('shared', 'denied')
    for (let claims = 0; claims < 3; claims += 1) await claim(engine)
    const explained = await explain(engine, denied)
    expect(explained).toMatchObject({ reason: 'gate_full', held: 2, holders: [own] })
    expect(Number.isInteger(explained?.since)).toBe(true)
  })

  test('C187 C263 a gate is full of runs that keep their slots while they wait', async () => {
    const keeper = machine({
      name: 'keeper',
      state: z.object({ keeps: z.boolean() }),
      signals: { go: z.null() },
      limits: [perCustomer],
      initial: 'first',
      steps: {
        first: ({ waitFor, state, done }) => (state.keeps ? waitFor('go', { goto: 'last', limits: 'keep' }) : done(undefined)),
        last: ({ done }) => done(undefined),
      },
    })
    const engine = await start({ definitions: [keeper] })
    const holder = await engine.spawnId('keeper', { keeps: true })
    await engine.tick()
    const denied = await engine.spawnId('keeper', { keeps: false })
    expect((await engine.tick()).claimed).toBe(0)
    expect(await explain(engine, denied)).toMatchObject({ reason: 'gate_full', limit: 'per-customer', holders: [holder] })
    await engine.signal({ id: holder }, 'go')
    expect((await engine.tick()).completed).toBe(2)
  })

  test('C187 C263 a rate has no token before that instant, when it has one and the run starts', async () => {
    const mails = limit('mails', { rate: { count: 1, per: '10s' } })
    const sent = job({ name: 'sent', input: z.string(), limits: [mails.by((to: string) => to)], run: () => 'sent' })
    const engine = await start({ definitions: [sent] })
    const [, second, third] = (await engine.spawnMany('sent', ['ada', 'ada', 'ada'])) as [string, string, string]
    expect((await engine.tick()).completed).toBe(1)
    for (const next of [second, third]) {
      const until = engine.clock() + 10_000
      expect(await explain(engine, next)).toMatchObject({ reason: 'rate', limit: 'mails', partition: 'ada', until })
      engine.advance(9_999)
      expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: until })
      engine.advance(1)
      expect((await engine.tick()).completed).toBe(1)
      expect(await explain(engine, next)).toMatchObject({ reason: 'ended' })
    }
  })

  test('C187 C263 no code for it in this build', async () => {
    const newer = await start({ definitions: [quick, future] })
    const id = await newer.spawnId('quick', 1, { version: 2 })
    const older = await start({ beside: newer })
    expect(await explain(older, id)).toMatchObject({ reason: 'no_code', definition: 'quick', version: 2, known: [1] })
    expect(await explain(newer, id)).toMatchObject({ reason: 'due' })
  })

  test('C187 C195 C263 it waits: for signals, for children, for a run, for an event', async () => {
    const engine = await start()
    const [signals, children] = [await engine.spawnId('order', {}), await engine.spawnId('parent', {})]
    await engine.tick()
    await engine.tick()
    expect(await explain(engine, signals)).toMatchObject({
      reason: 'waiting_signal',
      names: ['paid', 'refused'],
      until: engine.clock() + 60 * MINUTE,
    })
    const joined = await explain(engine, children)
    expect(joined).toMatchObject({ reason: 'waiting_children', remaining: 2, children: [expect.any(String), expect.any(String)] })
    if (joined.reason === 'waiting_children') {
      const named = await Promise.all(joined.children.map((id) => engine.run(id)))
      expect(named.map(({ status, parentId }) => [status, parentId])).toEqual(Array(2).fill(['pending', children]))
    }
    const all = await engine.spawnId('watcher', { run: children })
    const event = await engine.spawnId('watcher', {})
    await engine.tick()
    expect(await explain(engine, event)).toMatchObject({ reason: 'waiting_event', names: ['opened'] })
    expect(await explain(engine, all)).toMatchObject({
      reason: 'waiting_run',
      names: [children],
      detail: `It waits for the end of ${children}, for the event "opened", for the signal "paid".`,
    })
  })

  test('C187 C263 it was lost and runs alone, or its fate is uncertain, or its history does not fit', async () => {
    const engine = await start()
    const lost = await engine.spawnId('quick', 1)
    expect(await claim(engine, { leaseMs: 1_000 })).toHaveLength(1)
    engine.advance(5_000)
    // rescued by somebody who has no code for it
    await claim(engine, { definitions: [{ name: 'another', version: 1 }], peek: true })
    engine.advance(60_000)
    expect(await explain(engine, lost)).toMatchObject({ reason: 'quarantine', losses: 1, ahead: 0 })
    const unsure = await engine.spawnId('doubtful')
    await engine.tick()
    expect(await explain(engine, unsure)).toMatchObject({ reason: 'uncertain' })
    const misfit = await engine.spawnId('quick', 3)
    await engine.sql(`UPDATE pawl.runs SET hold = 'mismatch', hold_detail = '{"step": "old"}' WHERE id = $1`, [misfit])
    expect(await explain(engine, misfit)).toMatchObject({ reason: 'mismatch', held: { hold: 'mismatch', step: 'old' } })
    await engine.sql(`UPDATE pawl.runs SET hold = 'environment' WHERE id = $1`, [misfit])
    expect(await explain(engine, misfit)).toMatchObject({ reason: 'environment' })
  })

  test('C263 a run of another tenant, or none, is not explained', async () => {
    const engine = await start()
    const id = await engine.spawnId('quick', 1)
    const calls = createCalls({ store: engine.store, registry: engine.registry })
    await expect(calls.explain(id, { tenant: 'else' })).rejects.toMatchObject({ code: 'not_found' })
    await expect(calls.explain('nonsense')).rejects.toMatchObject({ code: 'not_found' })
  })
})
