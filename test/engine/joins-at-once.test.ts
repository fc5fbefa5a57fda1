import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { type EngineOptions, sharedEngines, type TestEngine } from '../support/engine.ts'

const ENGINES = 8
const KEY = 'one at a time'
const HELD = `
  SELECT coalesce(sum(held), 0)::int FROM pawl.limit_counters
  WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`

/** Waits for a signal, or for a child that needs the very key that it has given back. */
const parked = machine({
  name: 'parked',
  state: z.object({ by: z.enum(['signal', 'join']) }),
  signals: { go: z.null() },
  concurrencyKey: () => KEY,
  initial: 'park',
  steps: {
    park: ({ state: { by }, waitFor, join }) =>
      by === 'signal' ? waitFor('go', { goto: 'end' }) : join([rival.with(null)], { goto: 'end' }),
    end: ({ done }) => done(undefined),
  },
})
const rival = job({ name: 'rival', input: z.null(), concurrencyKey: () => KEY, run: () => null })

const tree = machine({
  name: 'tree',
  state: z.object({ depth: z.number() }),
  output: z.number(),
  initial: 'grow',
  steps: {
    grow: ({ self, state: { depth }, join, done }) =>
      depth === 0
        ? done(1)
        : join(
            Array.from({ length: 3 }, () => self.with({ depth: depth - 1 })),
            { goto: 'sum' },
          ),
    sum: ({ children, done }) =>
      done(children().reduce((sum, child) => sum + (child.status === 'completed' ? Number(child.result) : Number.NaN), 0)),
  },
})

const part = job({
  name: 'part',
  input: z.enum(['done', 'failed', 'discarded', 'late', 'cancelled']),
  retry: 'none',
  run: ({ input, discard }) => {
    if (input === 'failed') throw new Error('no part')
    return input === 'discarded' ? discard('not wanted') : input
  },
})
const whole = machine({
  name: 'whole',
  state: z.object({}),
  output: z.array(z.string()),
  initial: 'split',
  steps: {
    split: ({ join }) =>
      join(
        [
          part.with('done'),
          part.with('failed'),
          part.with('discarded'),
          part.with('late', { queue: 'nobody', maxDuration: '1h' }),
          part.with('cancelled', { queue: 'nobody' }),
        ],
        { goto: 'gather' },
      ),
    gather: ({ children, done }) => done(children(part).map(({ status }) => status)),
  },
})

forEachVersion('joins and waits with eight engines at once', (version) => {
  const { start } = sharedEngines(version)

  async function eight(options: EngineOptions): Promise<{ first: TestEngine; ticks: () => Promise<void> }> {
    const first = await start(options)
    const others = await Promise.all(Array.from({ length: ENGINES - 1 }, () => start({ ...options, beside: first })))
    const ticks = async () => {
      await Promise.all([first, ...others].map((engine) => engine.tick()))
    }
    return { first, ticks }
  }

  const unfinished = (engine: TestEngine, statuses: readonly string[]) =>
    engine.sql<number>(
      `SELECT count(*)::int FROM pawl.runs WHERE status::text = ANY ($2)
       AND environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`,
      [engine.environment, statuses],
    )

  /** Lets all eight tick until none is left in these statuses. */
  async function drain(engine: TestEngine, ticks: () => Promise<void>, statuses: readonly string[]): Promise<void> {
    for (let round = 0; round < 100 && (await unfinished(engine, statuses))[0] !== 0; round += 1) await ticks()
    expect(await unfinished(engine, statuses)).toEqual([0])
  }

  test.each(['signal', 'join'] as const)(
    'C132 of ten runs of one key that wait for a %s all get their turn while the others are parked',
    async (by) => {
      const { first, ticks } = await eight({ definitions: [parked, rival], version, budget: { concurrency: 1, batch: 1 } })
      const ids = await first.spawnMany(
        'parked',
        Array.from({ length: 10 }, () => ({ by })),
      )
      if (by === 'signal') {
        await drain(first, ticks, ['pending', 'running'])
        for (const id of ids) expect((await first.run(id)).status).toBe('waiting')
        expect(await first.sql(HELD, [first.environment])).toEqual([0])
        await Promise.all(ids.map((id) => first.signal({ id }, 'go', null)))
      }
      await drain(first, ticks, ['pending', 'running', 'waiting'])
      for (const id of ids) {
        expect((await first.history(id)).map(({ outcome }) => outcome)).toEqual([by === 'signal' ? 'wait' : 'join', 'done'])
      }
      expect(await first.sql(HELD, [first.environment])).toEqual([0])
    },
  )

  test('C132 a run that parks gives its place in the invocation to the next one of its key, in the same tick', async () => {
    const engine = await start({ definitions: [parked, rival], version, budget: { concurrency: 1, batch: 1 } })
    const ids = await engine.spawnMany('parked', [{ by: 'signal' }, { by: 'signal' }, { by: 'signal' }])
    expect(await engine.tick()).toMatchObject({ claimed: 3, waiting: 3 })
    for (const id of ids) expect((await engine.run(id)).status).toBe('waiting')
  })

  test('C146 joins three levels deep are exact, each parent woken once', async () => {
    const { first, ticks } = await eight({ definitions: [tree], version, budget: { concurrency: 5, batch: 5 } })
    const id = await first.spawnId('tree', { depth: 3 })
    await drain(first, ticks, ['pending', 'running', 'waiting'])
    expect(await first.run(id)).toMatchObject({ status: 'completed', result: 27 })
    const outcomes = `
      SELECT h.outcome || ' ' || count(*) FROM pawl.history h JOIN pawl.runs r ON r.id = h.run_id
      WHERE r.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) GROUP BY h.outcome ORDER BY 1`
    expect(await first.sql(outcomes, [first.environment])).toEqual(['done 40', 'join 13'])
  })

  test('C141 children that are discarded, run out of time or are cancelled have ended too: the parent wakes once, with all', async () => {
    const engine = await start({ definitions: [whole, part], version, frozen: true, only: ['default'] })
    const id = await engine.spawnId('whole', {})
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 2 })
    const [last] = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = $1 ORDER BY child_index DESC LIMIT 1', [
      id,
    ])
    await engine.store.cancel(last ?? '', { tenant: 'default', by: null })
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    engine.advance(3_600_000)
    await engine.tick()
    expect((await engine.run(id)).result).toEqual(['completed', 'failed', 'discarded', 'cancelled', 'cancelled'])
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['join', 'done'])
  })
})
