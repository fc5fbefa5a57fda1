import { expect, test } from 'vitest'
import * as z from 'zod'
import type { Database, Statement } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { failing } from './definitions.ts'

const noop = job({ name: 'noop', run: () => null })

const chain = machine({
  name: 'chain',
  state: z.object({ at: z.number() }),
  output: z.number(),
  initial: 'first',
  steps: {
    first: ({ next, state }) => next('second', { state: { at: state.at + 1 } }),
    second: ({ next, state }) => next('third', { state: { at: state.at + 1 } }),
    third: ({ done, state }) => done(state.at),
  },
})

/** What a query builder is: no promise, but something that `await` waits for. */
const query = (rows: number) => ({ ['then' as string]: (use: (rows: number) => void) => setTimeout(use, 1, rows) })

/** Counts the batches that are on their way at once. */
function counting(database: Database, flight: { now: number; most: number }): Database {
  return Object.create(database, {
    batch: {
      value: async (statements: readonly Statement[]) => {
        flight.now += 1
        flight.most = Math.max(flight.most, flight.now)
        return database.batch(statements).finally(() => {
          flight.now -= 1
        })
      },
    },
  })
}

forEachVersion('steps that end at once', (version) => {
  const { start } = sharedEngines(version)

  test('C226 outcomes of one claim go out together, and the next claim with them', async () => {
    const engine = await start({ definitions: [noop], budget: { batch: 50, concurrency: 50 } })
    await engine.tick()
    await Promise.all(Array.from({ length: 500 }, () => engine.spawn('noop')))
    const report = await engine.tick()
    expect(report.completed).toBe(500)
    expect(report.requests).toBeLessThanOrEqual(Math.ceil(500 / 50) + 2)
  })

  test('C226 two exchanges are in flight on one connection, each claim full although the outcomes before it are on their way', async () => {
    const flight = { now: 0, most: 0 }
    const engine = await start({
      definitions: [noop],
      connections: 1,
      budget: { batch: 50, concurrency: 100, lanes: 2 },
      wrap: (database) => counting(database, flight),
    })
    await engine.tick()
    await Promise.all(Array.from({ length: 500 }, () => engine.spawn('noop')))
    flight.most = 0
    const report = await engine.tick()
    expect(report.completed).toBe(500)
    expect(flight.most).toBe(2)
    expect(report.requests).toBeLessThanOrEqual(Math.ceil(500 / 50) + 4)
  })

  test('what a handler returns is waited for when it is like a promise', async () => {
    const definition = job({ name: 'query', run: () => query(3) as unknown as Promise<number> })
    const engine = await start({ definitions: [definition] })
    const id = await engine.spawnId('query')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 3 })
  })

  test('what a handler throws at once is a failed attempt like any other', async () => {
    const definition = failing('throwing', (attempt) => {
      if (attempt < 3) throw new Error('not yet')
      return attempt
    })
    const engine = await start({ definitions: [definition] })
    const id = await engine.spawnId('throwing')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 3 })
  })

  test('a machine goes through its steps on one claim, each with a commit of its own', async () => {
    const engine = await start({ definitions: [chain] })
    await engine.tick()
    const id = await engine.spawnId('chain', { at: 0 })
    const report = await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 2 })
    expect((await engine.history(id)).map((entry) => entry.outcome)).toEqual(['continue', 'continue', 'done'])
    expect(report).toMatchObject({ claimed: 1, requests: 4 })
  })

  test('C226 machines that go on together commit their steps together, however many exchanges may be in flight', async () => {
    const engine = await start({ definitions: [chain], budget: { batch: 50, concurrency: 100, lanes: 2 } })
    await engine.tick()
    await Promise.all(Array.from({ length: 50 }, () => engine.spawn('chain', { at: 0 })))
    const report = await engine.tick()
    expect(report.completed).toBe(50)
    expect(report.requests).toBeLessThanOrEqual(3 + 2)
  })
})
