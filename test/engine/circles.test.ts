import { expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { endOf } from '../../src/core/topics.ts'
import { forEachVersion } from '../support/database.ts'
import { moment, sharedEngines, type TestEngine } from '../support/engine.ts'

/** Waits for another run, known by its key, once that is there. */
const waiter = machine({
  name: 'waiter',
  input: z.object({ own: z.string(), other: z.string() }),
  state: z.object({ own: z.string(), other: z.string() }),
  signals: { go: z.object({}) },
  output: z.string(),
  key: ({ own }) => own,
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state: { other } }) =>
      waitFor(['go', endOf({ definition: 'waiter', key: other })], { goto: 'end', timeout: '1h' }),
    end: ({ timedOut, signals, children, done }) =>
      done(timedOut ? 'timed out' : signals.first('go') ? 'told' : `after a ${children()[0]?.status}`),
  },
})
/** Its child waits for its end. */
const parent = machine({
  name: 'parent',
  state: z.object({}),
  output: z.string(),
  initial: 'split',
  steps: {
    split: ({ join, run }) => join([child.with({ parent: run.id })], { goto: 'end' }),
    end: ({ children, done }) => done(String(children()[0]?.status)),
  },
})
const child = machine({
  name: 'child',
  input: z.object({ parent: z.string() }),
  state: z.object({ parent: z.string() }),
  output: z.string(),
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state }) => waitFor([endOf(state.parent)], { goto: 'end', timeout: '1h' }),
    end: ({ timedOut, done }) => done(timedOut ? 'timed out' : 'ended'),
  },
})

let [running, mayEnd] = [moment(), moment()]
const leaf = job({
  name: 'leaf',
  input: z.number(),
  run: async ({ abortSignal }) => {
    running.happen()
    await Promise.race([mayEnd.promise, new Promise((resolve) => abortSignal.addEventListener('abort', resolve))])
    return 'late'
  },
})
const nest = machine({
  name: 'nest',
  input: z.object({ depth: z.number() }),
  state: z.object({ depth: z.number() }),
  output: z.number(),
  initial: 'split',
  steps: {
    split: ({ state: { depth }, join, self }) =>
      join(depth > 1 ? [self.with({ depth: depth - 1 })] : [leaf.with(1), leaf.with(2)], { goto: 'end' }),
    end: ({ done, state }) => done(state.depth),
  },
})
const definitions = [waiter, parent, child, leaf, nest]
const HOUR = 3_600_000

forEachVersion('runs that wait for each other', (version) => {
  const { start } = sharedEngines(version)
  const explain = (engine: TestEngine, id: string) => createCalls({ store: engine.store, registry: engine.registry }).explain(id)
  /** Each waits for the next, the last for the first. */
  const ring = async (engine: TestEngine, size: number) => {
    const ids = await engine.spawnMany(
      'waiter',
      Array.from({ length: size }, (_, n) => ({ own: `w${n}`, other: `w${(n + 1) % size}` })),
    )
    await engine.tick()
    return ids
  }

  test.each([2, 3, 40])(
    'C148 C263 %d runs that wait for each other: explain names the circle from each of them on, ticks rest, and one that is told frees all',
    async (size) => {
      const engine = await start({ definitions, version, frozen: true })
      const ids = await ring(engine, size)
      for (const [n, id] of ids.entries()) {
        const explanation = await explain(engine, id)
        expect(explanation).toMatchObject({
          reason: 'waiting_run',
          names: [ids[(n + 1) % size]],
          circle: [...ids.slice(n), ...ids.slice(0, n)],
          until: engine.clock() + HOUR,
        })
        expect(explanation.detail).toContain('They wait for each other')
      }
      expect(await engine.tick()).toMatchObject({ claimed: 0, more: false, requests: 1 })
      await engine.signal({ id: ids[0]! }, 'go', {})
      for (let ticks = 0; ticks <= size; ticks += 1) await engine.tick()
      const results = await Promise.all(ids.map(async (id) => (await engine.run(id)).result))
      expect(results).toEqual(['told', ...ids.slice(1).map(() => 'after a completed')])
    },
  )

  test('C148 C131 a circle with a timeout ends by it, each run once', async () => {
    const engine = await start({ definitions, version, frozen: true })
    const ids = await ring(engine, 2)
    engine.advance(HOUR)
    await engine.tick()
    await engine.tick()
    for (const id of ids) {
      expect((await engine.history(id)).map(({ outcome }) => outcome).toSorted()).toEqual(['done', 'wait'])
      expect((await engine.run(id)).result).toBe('timed out')
    }
  })

  test('C148 C263 a child that waits for its parent: explain says so of both, and cancelling the parent ends both', async () => {
    const engine = await start({ definitions, version, frozen: true })
    const id = await engine.spawnId('parent', {})
    await engine.tick()
    const [childId] = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = $1', [id])
    expect(await explain(engine, id)).toMatchObject({ reason: 'waiting_children', children: [childId], circle: [id, childId] })
    expect(await explain(engine, childId!)).toMatchObject({ reason: 'waiting_run', names: [id], circle: [childId, id] })
    await engine.store.cancel(id, { tenant: 'default', by: null })
    await engine.tick()
    await engine.tick()
    expect([(await engine.run(id)).status, (await engine.run(childId!)).status]).toEqual(['cancelled', 'cancelled'])
    expect(await engine.sql('SELECT count(*)::int FROM pawl.event_waits')).toEqual([0])
  })

  test('C263 one that waits for a circle, or for a run that goes on, is in none', async () => {
    const engine = await start({ definitions, version, frozen: true })
    const ids = await ring(engine, 2)
    const outside = await engine.spawnId('waiter', { own: 'outside', other: 'w0' })
    const after = await engine.spawnId('waiter', { own: 'after', other: 'outside' })
    await engine.tick()
    for (const [id, other] of [
      [outside, ids[0]],
      [after, outside],
    ]) {
      const explanation = await explain(engine, id!)
      expect(explanation).toMatchObject({ reason: 'waiting_run', names: [other] })
      expect(explanation).not.toHaveProperty('circle')
    }
  })

  test('C149 C146 fifty joins deep, cancelled from the top while the leaves run: all of it is cancelled, nothing runs on', async () => {
    const engine = await start({ definitions, version })
    ;[running, mayEnd] = [moment(), moment()]
    const id = await engine.spawnId('nest', { depth: 50 })
    const ticking = (async () => {
      for (let ticks = 0; ticks < 60; ticks += 1) await engine.tick()
    })()
    await running.promise
    expect(await engine.store.cancel(id, { tenant: 'default', by: 'ann' })).toMatchObject({
      did: 'cancelled',
      children: 'cancelling',
    })
    const other = await start({ definitions, version, beside: engine })
    for (let ticks = 0; ticks < 60; ticks += 1) await other.tick()
    const statuses = () =>
      engine.sql<string>(
        `SELECT definition || ' ' || status || ' ' || count(*) FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id
         WHERE l.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) GROUP BY definition, status ORDER BY 1`,
        [engine.environment],
      )
    mayEnd.happen()
    await ticking
    for (let ticks = 0; ticks < 5; ticks += 1) await other.tick()
    const after = await statuses()
    expect(after[after.length - 1]).toBe('nest cancelled 50')
    expect(after.slice(0, -1).map((line) => line.split(' ')[1])).not.toContain('running')
    expect(await engine.sql('SELECT count(*)::int FROM pawl.cascades')).toEqual([0])
    expect(await other.tick()).toMatchObject({ claimed: 0, cancelled: 0, more: false })
  })
})
