import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { moment, sharedEngines } from '../support/engine.ts'

const payload = z.object({ x: z.number() })

/** Waits for `a` or `b` and ends with what it was shown. */
const waiter = machine({
  name: 'waiter',
  state: z.object({ timeout: z.string().optional() }),
  output: z.object({ names: z.array(z.string()), payloads: z.array(z.json()), timedOut: z.boolean(), attempt: z.number() }),
  signals: { a: payload, b: payload, maybe: z.null() },
  key: () => undefined,
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state }) =>
      waitFor(['a', 'b', 'maybe'], { goto: 'end', ...(state.timeout && { timeout: state.timeout as '1h' }) }),
    end: ({ signals, timedOut, attempt, done }) =>
      done({ names: signals.all.map(({ name }) => name), payloads: signals.all.map((one) => one.payload), timedOut, attempt }),
  },
})

forEachVersion('signals', (version) => {
  const { start } = sharedEngines(version)

  test('C115 a parked run wakes by a signal to its id and is given the payload', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {})
    const other = await engine.spawnId('waiter', {})
    expect(await engine.tick()).toMatchObject({ waiting: 2, more: false })
    expect(await engine.signal({ id }, 'a', { x: 1 })).toMatchObject({ kind: 'delivered', runId: id, woke: true })
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
    expect((await engine.run(id)).result).toEqual({ names: ['a'], payloads: [{ x: 1 }], timedOut: false, attempt: 1 })
    expect((await engine.run(other)).status).toBe('waiting')
  })

  test('C116 whoever knows only the key wakes the run', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {}, { key: 'order:42' })
    await engine.tick()
    expect(await engine.signal({ key: 'order:42' }, 'b', { x: 2 })).toMatchObject({ kind: 'delivered', runId: id })
    expect(await engine.signal({ key: 'order:43' }, 'b', { x: 2 })).toEqual({ kind: 'no_target' })
    await engine.tick()
    expect((await engine.run(id)).result).toMatchObject({ names: ['b'], payloads: [{ x: 2 }] })
  })

  test('C117 C119 three signals before the run has parked are all there when it does, in the order of arrival', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {})
    for (const x of [1, 2, 3]) expect(await engine.signal({ id }, 'a', { x })).toMatchObject({ kind: 'delivered', woke: false })
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect((await engine.run(id)).result).toMatchObject({ payloads: [{ x: 1 }, { x: 2 }, { x: 3 }] })
  })

  test('C119 a signal that comes while the step that will wait is running wakes it when it parks', async () => {
    const [entered, mayPark] = [moment(), moment()]
    const slow = machine({
      name: 'slow',
      state: z.object({}),
      signals: { go: payload },
      output: z.number(),
      initial: 'wait',
      steps: {
        wait: async ({ waitFor }) => {
          entered.happen()
          await mayPark.promise
          return waitFor('go', { goto: 'end' })
        },
        end: ({ signals, done }) => done(signals.first('go')?.payload.x ?? -1),
      },
    })
    const engine = await start({ definitions: [slow] })
    const id = await engine.spawnId('slow', {})
    const tick = engine.tick()
    await entered.promise
    expect(await engine.signal({ id }, 'go', { x: 7 })).toMatchObject({ kind: 'delivered', woke: false })
    mayPark.happen()
    expect(await tick).toMatchObject({ completed: 1 })
    expect((await engine.run(id)).result).toBe(7)
  })

  test('C120 a signal to an ended or unknown run is refused, and nothing is stored', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {}, { key: 'k' })
    await engine.store.cancel(id, { tenant: 'default', by: null })
    expect(await engine.signal({ id }, 'a', { x: 1 })).toEqual({ kind: 'no_target' })
    expect(await engine.signal({ key: 'k' }, 'a', { x: 1 })).toEqual({ kind: 'no_target' })
    expect(await engine.signal({ id: crypto.randomUUID() }, 'a', { x: 1 })).toEqual({ kind: 'no_target' })
    expect(await engine.sql('SELECT id FROM pawl.signals WHERE run_id = $1', [id])).toEqual([])
  })

  test('C122 a signal sent ten times under one idempotency key is in the inbox once', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {})
    const send = () =>
      engine.store.signal({
        tenant: 'default',
        to: { id },
        name: 'a',
        payload: '{"x":1}',
        receipt: { key: 'delivery-1', fingerprint: 'f' },
      })
    const answers = await Promise.all(Array.from({ length: 10 }, send))
    expect(answers.filter((answer) => answer.kind === 'delivered' && !answer.replayed)).toHaveLength(1)
    expect(answers.every((answer) => answer.kind === 'delivered')).toBe(true)
    expect(await engine.sql('SELECT id FROM pawl.signals WHERE run_id = $1', [id])).toHaveLength(1)
  })

  test('C123 a run that waits for either of two is woken by one and knows which', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {})
    await engine.tick()
    expect((await engine.run(id)).awaits).toEqual(['a', 'b', 'maybe'])
    await engine.signal({ id }, 'b', { x: 5 })
    await engine.tick()
    expect((await engine.run(id)).result).toMatchObject({ names: ['b'] })
  })

  test('C124 a pack of three is collected in at most three wakes, without a claim between them', async () => {
    const wakes: number[] = []
    const pack = machine({
      name: 'pack',
      state: z.object({}),
      signals: { a: payload, b: payload, c: payload },
      output: z.array(z.number()),
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor(['a', 'b', 'c'], { goto: 'collect' }),
        collect: ({ signals, waitFor, done }) => {
          wakes.push(signals.all.length)
          const { a, b, c } = { a: signals.first('a'), b: signals.first('b'), c: signals.first('c') }
          if (a && b && c) return done([a.payload.x, b.payload.x, c.payload.x])
          return waitFor(['a', 'b', 'c'], { goto: 'collect', keep: true })
        },
      },
    })
    const engine = await start({ definitions: [pack] })
    const id = await engine.spawnId('pack', {})
    await engine.tick()
    for (const [index, name] of ['c', 'a', 'b'].entries()) {
      await engine.signal({ id }, name, { x: index })
      expect(await engine.tick()).toMatchObject({ claimed: 1, more: false })
      expect(await engine.tick()).toMatchObject({ claimed: 0 })
    }
    expect(wakes).toEqual([1, 2, 3])
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: [1, 2, 0] })
  })

  test('C125 what a step was shown is consumed by its progress; what came meanwhile is there for the next wait', async () => {
    const [entered, mayGo] = [moment(), moment()]
    const shown: number[][] = []
    const reader = machine({
      name: 'reader',
      state: z.object({}),
      signals: { a: payload },
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor('a', { goto: 'read' }),
        read: async ({ signals, next }) => {
          shown.push(signals.all.map((signal) => signal.payload.x))
          entered.happen()
          await mayGo.promise
          return next('again')
        },
        again: ({ waitFor }) => waitFor('a', { goto: 'last' }),
        last: ({ signals, done }) => {
          shown.push(signals.all.map((signal) => signal.payload.x))
          return done(undefined)
        },
      },
    })
    const engine = await start({ definitions: [reader] })
    const id = await engine.spawnId('reader', {})
    await engine.tick()
    await engine.signal({ id }, 'a', { x: 1 })
    await engine.signal({ id }, 'a', { x: 2 })
    const tick = engine.tick()
    await entered.promise
    await engine.signal({ id }, 'a', { x: 3 })
    mayGo.happen()
    expect(await tick).toMatchObject({ completed: 1 })
    expect(shown).toEqual([[1, 2], [3]])
    const consumed = 'SELECT consumed_seq IS NOT NULL FROM pawl.signals WHERE run_id = $1'
    expect(await engine.sql(consumed, [id])).toEqual([true, true, true])
  })

  test('C125 a failed attempt consumes nothing: the next one is shown the same', async () => {
    const shown: number[] = []
    const flaky = machine({
      name: 'flaky',
      state: z.object({}),
      signals: { a: payload },
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor('a', { goto: 'end' }),
        end: ({ signals, attempt, done }) => {
          shown.push(signals.all.length)
          if (attempt === 1) throw new Error('first')
          return done(undefined)
        },
      },
    })
    const engine = await start({ definitions: [flaky] })
    const id = await engine.spawnId('flaky', {})
    await engine.tick()
    await engine.signal({ id }, 'a', { x: 1 })
    expect(await engine.tick()).toMatchObject({ retried: 1, completed: 1 })
    expect(shown).toEqual([1, 1])
  })

  test('C126 a signal of another name does not wake the run, and waits for a step that wants it', async () => {
    const picky = machine({
      name: 'picky',
      state: z.object({}),
      signals: { wanted: payload, other: payload },
      output: z.array(z.string()),
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor('wanted', { goto: 'second' }),
        second: ({ next }) => next('third'),
        third: ({ waitFor }) => waitFor('other', { goto: 'end' }),
        end: ({ signals, done }) => done(signals.all.map(({ name }) => name)),
      },
    })
    const engine = await start({ definitions: [picky] })
    const id = await engine.spawnId('picky', {})
    await engine.tick()
    expect(await engine.signal({ id }, 'other', { x: 1 })).toMatchObject({ kind: 'delivered', woke: false })
    expect(await engine.tick()).toMatchObject({ claimed: 0 })
    expect((await engine.run(id)).status).toBe('waiting')
    await engine.signal({ id }, 'wanted', { x: 2 })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: ['other'] })
  })

  test('C127 C195 a wait that runs out takes the timeout’s way with an empty inbox, and counts no attempt', async () => {
    const engine = await start({ definitions: [waiter], frozen: true })
    const id = await engine.spawnId('waiter', { timeout: '1h' })
    await engine.tick()
    const parked = await engine.run(id)
    expect(parked).toMatchObject({
      status: 'waiting',
      awaits: ['a', 'b', 'maybe'],
      availableAt: engine.clock() + 3_600_000,
      attempt: 0,
    })
    engine.advance(3_599_999)
    expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: engine.clock() + 1 })
    engine.advance(1)
    expect(await engine.tick()).toMatchObject({ completed: 1, promoted: 1 })
    expect((await engine.run(id)).result).toEqual({ names: [], payloads: [], timedOut: true, attempt: 1 })
  })

  test('C127 the timeout is a fact of that wait: a second attempt sees it, the next wait does not', async () => {
    const seen: boolean[] = []
    const twice = machine({
      name: 'twice',
      state: z.object({}),
      signals: { a: payload },
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor('a', { goto: 'late', timeout: '1m' }),
        late: ({ timedOut, attempt, waitFor }) => {
          seen.push(timedOut)
          if (attempt === 1) throw new Error('first')
          return waitFor('a', { goto: 'end', timeout: '1m' })
        },
        end: ({ timedOut, done }) => {
          seen.push(timedOut)
          return done(undefined)
        },
      },
    })
    const engine = await start({ definitions: [twice], frozen: true })
    const id = await engine.spawnId('twice', {})
    await engine.tick()
    engine.advance(60_000)
    await engine.tick()
    await engine.signal({ id }, 'a', { x: 1 })
    await engine.tick()
    expect(seen).toEqual([true, true, false])
  })

  test('C129 a signal without a payload is not a timeout', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', { timeout: '1h' })
    await engine.tick()
    await engine.signal({ id }, 'maybe')
    await engine.tick()
    expect((await engine.run(id)).result).toMatchObject({ names: ['maybe'], payloads: [null], timedOut: false })
  })

  test('C130 a thousand races of a signal with a timeout: woken once each, and no signal is lost', async () => {
    const shown = new Map<string, { visits: number; timedOut: boolean; signals: number }>()
    const racer = machine({
      name: 'racer',
      state: z.object({}),
      signals: { a: payload },
      initial: 'wait',
      steps: {
        wait: ({ waitFor }) => waitFor('a', { goto: 'end', timeout: '1m' }),
        end: ({ run, timedOut, signals, waitFor }) => {
          const before = shown.get(run.id)?.visits ?? 0
          shown.set(run.id, { visits: before + 1, timedOut, signals: signals.all.length })
          return waitFor('a', { goto: 'rest' })
        },
        rest: ({ done }) => done(undefined),
      },
    })
    const engine = await start({ definitions: [racer], frozen: true, connections: 4 })
    const ids = await engine.spawnMany(
      'racer',
      Array.from({ length: 1_000 }, () => ({})),
    )
    expect((await engine.tick()).waiting).toBe(1_000)
    engine.advance(60_000)
    const sending = (async () => {
      const answers = []
      for (const id of ids) answers.push(await engine.signal({ id }, 'a', { x: 1 }))
      return answers
    })()
    const [, answers] = await Promise.all([engine.tick(), sending])
    await engine.tick()
    expect(answers.every(({ kind }) => kind === 'delivered')).toBe(true)
    expect([...shown.values()].every(({ visits }) => visits === 1)).toBe(true)
    expect(shown.size).toBe(1_000)
    // shown with the timeout, in place of it, or kept for the next wait: never gone
    const outcome = await Promise.all(ids.map((id) => engine.run(id)))
    const lost = outcome.filter((run) => run.status === 'waiting' && shown.get(run.id)?.signals === 0)
    expect(lost).toEqual([])
    expect([...shown.values()].every(({ timedOut, signals }) => timedOut || signals === 1)).toBe(true)
  }, 60_000)

  test('C132 a run that waits holds neither its place nor its exclusive key', async () => {
    const exclusive = machine({
      name: 'exclusive',
      state: z.object({ n: z.number() }),
      signals: { a: payload },
      concurrencyKey: () => 'one at a time',
      initial: 'wait',
      steps: {
        wait: ({ state, waitFor, done }) => (state.n === 1 ? waitFor('a', { goto: 'end' }) : done(undefined)),
        end: ({ done }) => done(undefined),
      },
    })
    const engine = await start({ definitions: [exclusive], budget: { concurrency: 1, batch: 1 } })
    const first = await engine.spawnId('exclusive', { n: 1 })
    await engine.tick()
    const second = await engine.spawnId('exclusive', { n: 2 })
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect((await engine.run(first)).status).toBe('waiting')
    expect((await engine.run(second)).status).toBe('completed')
    expect(await engine.sql(HELD, [engine.environment])).toEqual([0])
    await engine.signal({ id: first }, 'a', { x: 1 })
    expect(await engine.tick()).toMatchObject({ completed: 1 })
  })

  test('C139 the payload is stored as JSON that SQL can read', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {})
    await engine.signal({ id }, 'a', { x: 42 })
    expect(await engine.sql("SELECT payload ->> 'x' FROM pawl.signals WHERE run_id = $1", [id])).toEqual(['42'])
    expect(await engine.sql('SELECT jsonb_typeof(payload) FROM pawl.signals WHERE run_id = $1', [id])).toEqual(['object'])
  })
})

describe('a long inbox', () => {
  const { start } = sharedEngines()

  test('C117 a thousand signals are all shown, in the order of arrival', async () => {
    const engine = await start({ definitions: [waiter] })
    const id = await engine.spawnId('waiter', {})
    for (let x = 0; x < 1_000; x += 1) await engine.signal({ id }, 'a', { x })
    await engine.tick()
    const { payloads } = (await engine.run(id)).result as { payloads: { x: number }[] }
    expect(payloads.map(({ x }) => x)).toEqual(Array.from({ length: 1_000 }, (_, x) => x))
  })
})

const HELD = `
  SELECT sum(held)::int FROM pawl.limit_counters WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`
