import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'

/** Ends after so many minutes, well or not. */
const part = job({
  name: 'part',
  input: z.object({ after: z.number(), fails: z.boolean().optional() }),
  retry: 'none',
  run: ({ input }) => {
    if (input.fails) throw new Error(`no part of ${input.after}`)
    return input.after
  },
})

const whole = machine({
  name: 'whole',
  state: z.object({
    parts: z.array(z.object({ after: z.number(), fails: z.boolean().optional() })),
    need: z.union([z.literal('all'), z.literal('any'), z.number()]).optional(),
    failFast: z.boolean().optional(),
    deadline: z.number().optional(),
    cancels: z.boolean().optional(),
  }),
  output: z.object({ timedOut: z.boolean(), parts: z.array(z.string()) }),
  initial: 'split',
  steps: {
    split: ({ join, state: { parts, need, failFast, deadline, cancels } }) =>
      join(
        parts.map((one) => part.with(one, { delay: one.after * 60_000 })),
        {
          goto: 'gather',
          need,
          onChildFailure: failFast ? 'fail-fast' : 'collect',
          deadline,
          stragglers: cancels ? 'cancel' : 'leave',
        },
      ),
    gather: ({ children, timedOut, done }) =>
      done({
        timedOut,
        parts: children(part).map((child) => (child.status === 'completed' ? `${child.result}` : child.status)),
      }),
  },
})

const definitions = [part, whole]
type Spec = z.input<typeof wholeState>
const wholeState = z.object({ parts: z.array(z.object({ after: z.number(), fails: z.boolean().optional() })) }).loose()

forEachVersion('joins', (version) => {
  const { start } = sharedEngines(version)

  /** Spawns it, lets minutes pass one by one, and says after how many it had ended, and with what. */
  async function play(spec: Spec, minutes = 9): Promise<{ engine: TestEngine; id: string; minute: number; result: unknown }> {
    const engine = await start({ definitions, frozen: true })
    const id = await engine.spawnId('whole', spec)
    await engine.tick()
    for (let minute = 0; minute <= minutes; minute += 1) {
      const { status, result } = await engine.run(id)
      if (status === 'completed') return { engine, id, minute, result }
      engine.advance(60_000)
      await engine.tick()
    }
    return { engine, id, minute: Number.NaN, result: undefined }
  }

  test('C150 C269 any: the first child that ends well wakes the parent; one that failed before does not', async () => {
    const { minute, result } = await play({ parts: [{ after: 1, fails: true }, { after: 2 }, { after: 3 }], need: 'any' })
    expect({ minute, result }).toEqual({ minute: 2, result: { timedOut: false, parts: ['failed', '2', 'pending'] } })
  })

  test('C150 C269 k of n: the parent wakes with the k-th that ended well, whatever failed meanwhile', async () => {
    const parts = [{ after: 1 }, { after: 2, fails: true }, { after: 3 }, { after: 4 }]
    const { minute, result } = await play({ parts, need: 2 })
    expect({ minute, result }).toEqual({ minute: 3, result: { timedOut: false, parts: ['1', 'failed', '3', 'pending'] } })
  })

  test('C150 C269 a quorum that can be met no more wakes the parent at once, with what there is', async () => {
    const parts = [{ after: 1 }, { after: 2, fails: true }, { after: 3, fails: true }, { after: 5 }]
    const { minute, result } = await play({ parts, need: 3 })
    expect({ minute, result }).toEqual({ minute: 3, result: { timedOut: false, parts: ['1', 'failed', 'failed', 'pending'] } })
  })

  test('C150 any of children that all fail wakes the parent with the last of them', async () => {
    const { minute, result } = await play({
      parts: [
        { after: 1, fails: true },
        { after: 2, fails: true },
      ],
      need: 'any',
    })
    expect({ minute, result }).toEqual({ minute: 2, result: { timedOut: false, parts: ['failed', 'failed'] } })
  })

  test('fail-fast: the first failure wakes the parent; collect waits for all', async () => {
    const parts = [{ after: 1 }, { after: 2, fails: true }, { after: 4 }]
    expect(await play({ parts, failFast: true })).toMatchObject({ minute: 2, result: { parts: ['1', 'failed', 'pending'] } })
    expect(await play({ parts })).toMatchObject({ minute: 4, result: { parts: ['1', 'failed', '4'] } })
  })

  test('any of no children, and a need of none, go on at once', async () => {
    expect(await play({ parts: [], need: 'any' })).toMatchObject({ minute: 0, result: { parts: [] } })
    expect(await play({ parts: [{ after: 1 }], need: 0 })).toMatchObject({ minute: 0, result: { parts: ['pending'] } })
  })

  test('a need of more children than there are is an error of the step that names both', async () => {
    const engine = await start({ definitions })
    const id = await engine.spawnId('whole', { parts: [{ after: 1 }], need: 2 }, { maxAttempts: 1 })
    await engine.tick()
    const { status, error } = await engine.run(id)
    expect({ status, code: error?.code }).toEqual({ status: 'failed', code: 'invalid_outcome' })
    expect(error?.message).toContain('join.need: got 2, allowed is a whole number from 0 to 1')
  })

  test('C151 C269 at its deadline the parent wakes with partial results, and each child has its status as it is', async () => {
    const { engine, id, minute, result } = await play({ parts: [{ after: 1 }, { after: 7 }], deadline: 180_000 })
    expect({ minute, result }).toEqual({ minute: 3, result: { timedOut: true, parts: ['1', 'pending'] } })
    const before = await engine.run(id)
    engine.advance(300_000)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    // the late child has ended well, and changed nothing
    expect(await engine.run(id)).toEqual(before)
  })

  test('C151 C128 a deadline that was not needed leaves no trace in the wait that follows', async () => {
    const again = machine({
      name: 'again',
      state: z.object({ turns: z.array(z.boolean()) }),
      output: z.array(z.boolean()),
      signals: { never: z.null() },
      initial: 'split',
      steps: {
        split: ({ join }) => join([part.with({ after: 0 })], { goto: 'wait', deadline: '1m' }),
        wait: ({ waitFor, timedOut, state, done }) => {
          const turns = [...state.turns, timedOut]
          return turns.length === 4 ? done(turns) : waitFor('never', { goto: 'wait', timeout: '1m', state: { turns } })
        },
      },
    })
    const engine = await start({ definitions: [again, part], frozen: true })
    const id = await engine.spawnId('again', { turns: [] })
    await engine.tick()
    for (let timeouts = 0; timeouts < 3; timeouts += 1) {
      engine.advance(60_000)
      expect(await engine.tick()).toMatchObject({ claimed: 1, promoted: 1 })
    }
    expect((await engine.run(id)).result).toEqual([false, true, true, true])
  })

  test('C269 late children change nothing: neither the parent that went on nor the one that has ended', async () => {
    const { engine, id } = await play({ parts: [{ after: 1 }, { after: 4, fails: true }, { after: 5 }], need: 1 })
    const before = await engine.run(id)
    engine.advance(600_000)
    expect(await engine.tick()).toMatchObject({ completed: 1, failed: 1 })
    expect(await engine.run(id)).toEqual(before)
    const ended = 'SELECT status::text FROM pawl.runs WHERE parent_id = $1 ORDER BY child_index'
    expect(await engine.sql(ended, [id])).toEqual(['completed', 'failed', 'completed'])
  })

  test('C269 C149 stragglers that are to be cancelled are, once the step that went on without them is through; others are left alone', async () => {
    const parts = [{ after: 1 }, { after: 7 }, { after: 8 }]
    const ended = 'SELECT status::text FROM pawl.runs WHERE parent_id = $1 ORDER BY child_index'
    for (const [cancels, rest] of [
      [true, 'cancelled'],
      [false, 'completed'],
    ] as const) {
      const { engine, id, minute } = await play({ parts, need: 1, cancels })
      expect(minute).toBe(1)
      const before = await engine.run(id)
      await engine.tick()
      engine.advance(600_000)
      await engine.tick()
      expect(await engine.sql(ended, [id])).toEqual(['completed', rest, rest])
      expect(await engine.run(id)).toEqual(before)
      expect(await engine.sql('SELECT count(*)::int FROM pawl.cascades WHERE parent_id = $1', [id])).toEqual([0])
    }
  })

  test('C269 stragglers are those of that join only: children of the next one live on', async () => {
    const twice = machine({
      name: 'twice',
      state: z.object({}),
      output: z.array(z.string()),
      initial: 'first',
      steps: {
        first: ({ join }) =>
          join([part.with({ after: 1 }), part.with({ after: 9 }, { delay: '9m' })], {
            goto: 'second',
            need: 'any',
            stragglers: 'cancel',
          }),
        second: ({ join }) => join([part.with({ after: 2 }, { delay: '2m' })], { goto: 'end' }),
        end: ({ children, done }) => done(children(part).map((child) => child.status)),
      },
    })
    const engine = await start({ definitions: [twice, part], frozen: true })
    const id = await engine.spawnId('twice', {})
    await engine.tick()
    await engine.tick()
    const children = 'SELECT status::text FROM pawl.runs WHERE parent_id = $1 ORDER BY position'
    expect(await engine.sql(children, [id])).toEqual(['completed', 'cancelled', 'pending'])
    engine.advance(120_000)
    await engine.tick()
    expect((await engine.run(id)).result).toEqual(['completed'])
  })

  test('C269 C151 at its deadline the parent goes on with partial results, and stragglers that are to be cancelled are', async () => {
    const parts = [{ after: 1 }, { after: 7 }, { after: 8 }]
    const { engine, id, minute, result } = await play({ parts, deadline: 180_000, cancels: true })
    expect({ minute, result }).toEqual({ minute: 3, result: { timedOut: true, parts: ['1', 'pending', 'pending'] } })
    const before = await engine.run(id)
    await engine.tick()
    engine.advance(600_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0 })
    const ended = 'SELECT status::text FROM pawl.runs WHERE parent_id = $1 ORDER BY child_index'
    expect(await engine.sql(ended, [id])).toEqual(['completed', 'cancelled', 'cancelled'])
    expect(await engine.run(id)).toEqual(before)
  })

  test('C269 a straggler that ends while its parent waits in another join does not count there', async () => {
    const onwards = machine({
      name: 'onwards',
      state: z.object({}),
      output: z.array(z.string()),
      initial: 'first',
      steps: {
        first: ({ join }) =>
          join([part.with({ after: 0 }), part.with({ after: 1 }, { delay: '1m' })], { goto: 'second', need: 'any' }),
        second: ({ join }) => join([part.with({ after: 2 }, { delay: '2m' })], { goto: 'end' }),
        end: ({ children, done }) => done(children(part).map((child) => child.status)),
      },
    })
    const engine = await start({ definitions: [onwards, part], frozen: true })
    const id = await engine.spawnId('onwards', {})
    await engine.tick()
    await engine.tick()
    const before = await engine.run(id)
    expect(before).toMatchObject({ status: 'waiting', step: 'end' })
    engine.advance(60_000)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await engine.run(id)).toEqual(before)
    engine.advance(60_000)
    await engine.tick()
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: ['completed'] })
  })
})
