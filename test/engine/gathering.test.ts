import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { type Database, DatabaseError } from '../../src/core/database.ts'
import { toCall } from '../../src/core/definition.ts'
import { job } from '../../src/core/job.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import type { Admission } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { around, type EngineOptions, moment, newRun, sharedEngines, type TestEngine } from '../support/engine.ts'
import { claimRequest } from '../traps/outcomes.ts'

const SCOPE = { tenant: 'default' }
const MINUTE = 60_000
const INDEX = z.object({ project: z.string(), revision: z.number() })

const reindex = job({
  name: 'reindex',
  input: INDEX,
  debounce: { by: ['project'], wait: '1m', max: '5m' },
  run: ({ input }) => input.revision,
})
const unbounded = job({ name: 'unbounded', input: z.number(), debounce: { wait: '1m' }, run: ({ input }) => input })
const importRows = job({
  name: 'import-rows',
  input: z.array(z.number()),
  batch: { wait: '1m', size: 10, by: (rows) => (rows[0] === -1 ? undefined : 'all') },
  run: ({ input }) => input,
})

/** What is not interesting about an answer left out. */
const short = (answer: Admission | undefined) =>
  answer && 'id' in answer ? { kind: answer.kind, id: answer.id, effect: 'effect' in answer ? answer.effect : undefined } : answer

async function spawnAll(engine: TestEngine, definition: string, inputs: readonly unknown[]): Promise<readonly Admission[]> {
  return engine.store.spawn(await Promise.all(inputs.map((input) => newRun(engine.registry, definition, input))))
}

/** The same driver; what it has committed is not answered while `loses` says so. */
const losingReplies = (database: Database, loses: () => boolean): Database =>
  around(database, async (_, send) => {
    const replies = await send()
    if (loses()) throw new DatabaseError('The reply was lost.', { fate: 'lost' })
    return replies
  })

const inputsOf = (engine: TestEngine) =>
  engine.sql<unknown>(
    'SELECT input FROM pawl.runs WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1) ORDER BY position',
    [engine.environment],
  )
const rowsOf = (engine: TestEngine, table: 'uniques' | 'receipts') =>
  engine.sql<number>(
    `SELECT count(*)::int FROM pawl.${table} WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`,
    [engine.environment],
  )

forEachVersion('gathered spawns', (version) => {
  const engines = sharedEngines(version)
  const start = (options: Partial<EngineOptions> = {}) =>
    engines.start({ definitions: [reindex, unbounded, importRows], frozen: true, ...options })

  describe('debouncing', () => {
    test('C173 C270 a hundred triggers in the window make one run, with the last input, after the last of them', async () => {
      const engine = await start()
      const answers: Admission[] = []
      for (let revision = 1; revision <= 100; revision += 1) {
        answers.push(await engine.spawn('reindex', { project: 'p', revision }))
        engine.advance(1_000)
      }
      const [first, ...others] = answers.map(short)
      expect(first).toMatchObject({ kind: 'created' })
      const id = (first as { id: string }).id
      expect(new Set(others.map((answer) => JSON.stringify(answer)))).toEqual(
        new Set([JSON.stringify({ kind: 'occupied', id, effect: 'gathered' })]),
      )
      expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: engine.clock() + MINUTE - 1_000 })
      engine.advance(MINUTE - 1_000)
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect(await engine.run(id)).toMatchObject({ input: { project: 'p', revision: 100 }, result: 100 })
      expect(await inputsOf(engine)).toHaveLength(1)
      expect(await rowsOf(engine, 'uniques')).toEqual([0])
    })

    test('C270 a hundred triggers of one batch make one run with the last input', async () => {
      const engine = await start()
      const answers = await spawnAll(
        engine,
        'reindex',
        Array.from({ length: 100 }, (_, n) => ({ project: n % 2 ? 'p' : 'q', revision: n })),
      )
      expect(answers.filter(({ kind }) => kind === 'created')).toHaveLength(2)
      expect(await inputsOf(engine)).toEqual([
        { project: 'q', revision: 98 },
        { project: 'p', revision: 99 },
      ])
    })

    test('C270 however many come, it starts at most so long after the first', async () => {
      const engine = await start()
      const id = await engine.spawnId('reindex', { project: 'p', revision: 0 })
      const begun = engine.clock()
      for (let n = 1; n <= 9; n += 1) {
        engine.advance(30_000)
        await engine.spawn('reindex', { project: 'p', revision: n })
      }
      expect((await engine.run(id)).availableAt).toBe(begun + 5 * MINUTE)
      engine.advance(30_000)
      await engine.spawn('reindex', { project: 'p', revision: 10 })
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect((await engine.run(id)).result).toBe(10)
      const endless = await engine.spawnId('unbounded', 0)
      for (let n = 1; n <= 20; n += 1) {
        engine.advance(59_000)
        await engine.spawn('unbounded', n)
        expect(await engine.tick()).toMatchObject({ claimed: 0 })
      }
      expect((await engine.run(endless)).input).toBe(20)
    })

    test('C270 a spawn that comes while the run executes begins the next window', async () => {
      const running = moment()
      const go = moment()
      const seen: number[] = []
      const slow = job({
        name: 'slow',
        input: z.number(),
        debounce: { wait: '1m' },
        run: async ({ input }) => {
          seen.push(input)
          running.happen()
          await go.promise
        },
      })
      const engine = await start({ definitions: [slow] })
      const first = await engine.spawnId('slow', 1)
      engine.advance(MINUTE)
      const ticking = engine.tick()
      await running.promise
      const second = await engine.spawnId('slow', 2)
      expect(second).not.toBe(first)
      expect(short(await engine.spawn('slow', 3))).toEqual({ kind: 'occupied', id: second, effect: 'gathered' })
      go.happen()
      await ticking
      // the end of the first does not free what the second holds
      expect(short(await engine.spawn('slow', 4))).toEqual({ kind: 'occupied', id: second, effect: 'gathered' })
      engine.advance(MINUTE)
      await engine.tick()
      expect(seen).toEqual([1, 4])
    })

    test('C270 a run that is due and has not started takes further spawns in, and waits anew', async () => {
      const engine = await start()
      const id = await engine.spawnId('reindex', { project: 'p', revision: 1 })
      engine.advance(2 * MINUTE)
      // promoted by a host that has no code for it
      await engine.store.claim(claimRequest(engine, { definitions: [] }))
      expect(await engine.spawn('reindex', { project: 'p', revision: 2 })).toMatchObject({ id, effect: 'gathered' })
      expect(await engine.tick()).toMatchObject({ claimed: 0 })
      engine.advance(MINUTE)
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect((await engine.run(id)).result).toBe(2)
    })

    test('C270 a run that was cancelled while it waited takes nothing in any more', async () => {
      const engine = await start()
      const id = await engine.spawnId('reindex', { project: 'p', revision: 1 })
      await engine.store.cancel(id, { ...SCOPE, by: null })
      expect(await engine.spawn('reindex', { project: 'p', revision: 2 })).toMatchObject({ kind: 'created' })
    })

    test('C270 what the gathering decides, and what only one of many could have, is refused in a call', async () => {
      const engine = await start()
      for (const options of [{ key: 'k' }, { delay: '1m' }, { at: new Date() }, { onConflict: 'keep' }] as const) {
        const call = toCall({ definition: 'reindex', version: 1, input: { project: 'p', revision: 1 }, options })
        await expect(toNewRun(call, { registry: engine.registry, tenant: 'default' })).rejects.toMatchObject({
          code: 'invalid_request',
          field: Object.keys(options)[0] === 'at' ? 'at' : Object.keys(options)[0],
        })
      }
    })
  })

  describe('batching', () => {
    test('C173 C270 triggers in the window make one run with all inputs, in their order', async () => {
      const engine = await start()
      const id = await engine.spawnId('import-rows', [1])
      engine.advance(30_000)
      expect(short(await engine.spawn('import-rows', [2, 3]))).toEqual({ kind: 'occupied', id, effect: 'gathered' })
      await engine.spawn('import-rows', [4])
      engine.advance(29_999)
      expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: engine.clock() + 1 })
      engine.advance(1)
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect(await engine.run(id)).toMatchObject({ input: [1, 2, 3, 4], result: [1, 2, 3, 4] })
    })

    test('C270 a full list starts at once, and the next spawn begins another', async () => {
      const engine = await start()
      const id = await engine.spawnId('import-rows', [1, 2, 3, 4, 5, 6, 7, 8, 9])
      expect(await engine.tick()).toMatchObject({ claimed: 0 })
      expect(await engine.spawn('import-rows', [10])).toMatchObject({ id, effect: 'gathered' })
      expect(await engine.spawn('import-rows', [11])).toMatchObject({ kind: 'created' })
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect((await engine.run(id)).result).toHaveLength(10)
      const whole = await engine.spawnId(
        'import-rows',
        Array.from({ length: 10 }, (_, n) => n),
      )
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect((await engine.run(whole)).status).toBe('completed')
    })

    test('C270 a list without room for an input starts at once, and the input begins the next one', async () => {
      const engine = await start()
      const first = await engine.spawnId('import-rows', [1, 2, 3, 4, 5, 6, 7])
      const second = await engine.spawnId('import-rows', [8, 9, 10, 11])
      expect(second).not.toBe(first)
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect((await engine.run(second)).status).toBe('pending')
    })

    test('C270 a hundred and five triggers of one call make ten full runs and one that waits; each is answered with its own', async () => {
      const engine = await start()
      const answers = await spawnAll(
        engine,
        'import-rows',
        Array.from({ length: 105 }, (_, n) => [n]),
      )
      expect(answers.filter(({ kind }) => kind === 'created')).toHaveLength(11)
      expect((await inputsOf(engine)).flat()).toEqual(Array.from({ length: 105 }, (_, n) => n))
      expect(await engine.tick()).toMatchObject({ completed: 10 })
      for (const [n, answer] of answers.entries()) {
        const run = await engine.run('id' in answer ? answer.id : '')
        expect(run.input).toContain(n)
      }
    })

    test('C270 lists that a run could not store are not put together', async () => {
      const texts = job({
        name: 'texts',
        input: z.array(z.string()),
        batch: { wait: '1m', size: 100 },
        run: ({ input }) => input.length,
      })
      const engine = await start({ definitions: [texts] })
      const half = 'x'.repeat(600_000)
      const first = await engine.spawnId('texts', [half])
      const second = await engine.spawnId('texts', [half])
      expect(await engine.spawn('texts', ['small'])).toMatchObject({ id: second, effect: 'gathered' })
      await engine.tick()
      expect((await engine.run(first)).status).toBe('completed')
      expect((await engine.run(second)).status).toBe('pending')
    })

    test('C270 an input that is no list, is empty or is too long is refused; one that is like no other waits for none', async () => {
      const engine = await start()
      for (const input of [[], Array.from({ length: 11 }, () => 1)])
        await expect(engine.spawn('import-rows', input)).rejects.toMatchObject({ code: 'invalid_input' })
      await engine.spawn('import-rows', [-1, 2])
      await engine.spawn('import-rows', [-1, 3])
      expect(await engine.tick()).toMatchObject({ claimed: 2, completed: 2 })
    })

    test('C270 a spawn whose reply was lost and that is sent again adds its input once', async () => {
      let losing = 0
      const engine = await start({ wrap: (database) => losingReplies(database, () => losing-- > 0) })
      const id = await engine.spawnId('import-rows', [1])
      losing = 1
      expect(short(await engine.spawn('import-rows', [2]))).toEqual({ kind: 'occupied', id, effect: 'gathered' })
      losing = 2
      expect(short(await engine.spawn('import-rows', [3]))).toEqual({ kind: 'occupied', id, effect: 'gathered' })
      const spawned = await newRun(engine.registry, 'import-rows', [4])
      await engine.store.spawn([spawned])
      expect((await engine.run(id)).input).toEqual([1, 2, 3, 4])
    })

    /** Called between the two batches of a spawn for which a list had no room. */
    const betweenSends = (then: () => Promise<unknown>) => {
      let sent = 0
      return (database: Database): Database =>
        around(database, async (statements, send) => {
          if (statements.some(({ name }) => name === 'merge_spawns') && sent++ === 2) await then()
          return send()
        })
    }
    const under = (input: readonly number[]) => [input, { receipt: { key: 'k', fingerprint: JSON.stringify(input) } }] as const

    test('C015 C270 a spawn that failed halfway is asked for again under its idempotency key, and done once', async () => {
      const gone = () => Promise.reject(new DatabaseError('Gone.', { fate: 'not_sent' }))
      const engine = await start({ wrap: betweenSends(gone) })
      await engine.spawnId('import-rows', [1, 2, 3, 4, 5, 6, 7, 8])
      await expect(engine.spawn('import-rows', ...under([9, 10, 11]))).rejects.toThrow('Gone.')
      const again = await engine.spawn('import-rows', ...under([9, 10, 11]))
      expect(again).toMatchObject({ kind: 'created' })
      expect(await engine.spawn('import-rows', ...under([9, 10, 11]))).toEqual({ ...again, kind: 'replayed', created: true })
      expect(await engine.spawn('import-rows', ...under([9]))).toEqual({ kind: 'mismatch' })
      expect(await inputsOf(engine)).toEqual([
        [1, 2, 3, 4, 5, 6, 7, 8],
        [9, 10, 11],
      ])
    })

    test('C015 C270 the same request that comes while a spawn is halfway does it, and both have the one answer', async () => {
      const answers: Admission[] = []
      const engine: TestEngine = await start({
        wrap: betweenSends(async () => answers.push(await engine.spawn('import-rows', ...under([9, 10, 11])))),
      })
      await engine.spawnId('import-rows', [1, 2, 3, 4, 5, 6, 7, 8])
      answers.push(await engine.spawn('import-rows', ...under([9, 10, 11])))
      expect(answers).toMatchObject([{ kind: 'created' }, { kind: 'replayed', created: true }])
      expect(await inputsOf(engine)).toEqual([
        [1, 2, 3, 4, 5, 6, 7, 8],
        [9, 10, 11],
      ])
    })
  })
})
