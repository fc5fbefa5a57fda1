import { expect, test } from 'vitest'
import * as z from 'zod'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const both = limit('both', { concurrency: 5, rate: { count: 2, per: '1 hour' } })

/** Keeps its slot of a limit that has a rate too. */
const keeper = machine({
  name: 'keeper',
  state: z.object({}),
  limits: [both],
  initial: 'first',
  steps: {
    first: ({ next }) => next('second', { delay: '1 minute', limits: 'keep' }),
    second: ({ done }) => done(undefined),
  },
})

const LETTERS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'] as const
const lettered = machine({
  name: 'lettered',
  state: z.object({}),
  signals: { go: z.null() },
  limits: LETTERS.map((letter) => limit(letter, { concurrency: 5 })),
  initial: 'first',
  steps: {
    first: ({ waitFor }) => waitFor('go', { goto: 'second', limits: 'keep' }),
    second: ({ done }) => done(undefined),
  },
})

/** Slots taken, and whole tokens that are left. */
const counter = (engine: TestEngine) =>
  engine.sql(`SELECT json_build_array(c.held, floor(c.available)) FROM pawl.limit_counters c WHERE c.gate LIKE 'both\u001f%'`)

forEachVersion('slots that are kept', (version) => {
  const { start } = sharedEngines(version)

  test('C160 one outlasts a claim that is given back unstarted, which gives back no token that it did not take', async () => {
    const engine = await start({ definitions: [keeper], version, frozen: true })
    await engine.store.declareLimits([{ name: 'both', policy: both.policy }])
    await engine.spawnId('keeper', {})
    await engine.tick()
    expect(await counter(engine)).toEqual([[1, 1]])
    engine.advance(60_000)
    const runs = await claim(engine)
    expect(runs).toHaveLength(1)
    await flush(
      engine,
      runs.map((run) => ({ ...finishes(run), kind: 'release', status: 'pending' })),
    )
    expect(await counter(engine)).toEqual([[1, 1]])
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await counter(engine)).toEqual([[0, 1]])
  })

  test('C160 trap 2: a cancelled run gives back what it kept in the order of the gates, and each once', async () => {
    const engine = await start({ definitions: [lettered], version, connections: 4 })
    const ids = await engine.spawnMany('lettered', [{}, {}])
    await engine.tick()
    const counters = 'FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1'
    const last = await holdRowLock(engine.fresh.connectionString, `SELECT ${counters} AND c.gate LIKE 'h%' FOR UPDATE OF c`, [
      engine.environment,
    ])
    const cancelled = ids.map((id) => engine.store.cancel(id, { tenant: 'default', by: null }))
    await untilBlocked(engine.fresh.connectionString, { blockedBy: last.pid })
    // who stands before the last counter has all the others
    const free = await engine.sql(`SELECT c.gate ${counters} ORDER BY c.gate FOR UPDATE OF c SKIP LOCKED`, [engine.environment])
    await last.release()
    expect(free).toEqual([])
    await Promise.all(cancelled)
    expect(await engine.sql(`SELECT sum(c.held)::int ${counters}`, [engine.environment])).toEqual([0])
  })
})
