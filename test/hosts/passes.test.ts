import { describe, expect, test, vi } from 'vitest'
import * as z from 'zod'
import type { Database } from '../../src/core/database.ts'
import type { TickReport } from '../../src/core/tick.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { IsolateKicks } from '../../src/hosts/isolate-kicks.ts'
import { startNodeLoop } from '../../src/hosts/node-loop.ts'
import { createPawl, job, machine } from '../../src/index.ts'
import { BUDGETS } from '../../src/worker/budgets.ts'
import { freshDatabase } from '../support/database.ts'
import { startEngine } from '../support/engine.ts'
import { double, Gates, held, nightly } from './definitions.ts'

/** Holds the answers to batches with that statement until the test lets them go. */
function holdAnswers(database: Database, statement: string, gates: Gates): Database {
  return {
    driver: database.driver,
    get requests() {
      return database.requests
    },
    query: (statement) => database.query(statement),
    batch: async (statements) => {
      const answer = await database.batch(statements)
      if (statements.some(({ name }) => name === statement)) await gates.pass(statement)
      return answer
    },
    close: () => database.close(),
  }
}

describe('a ticker', () => {
  test('C250 a kick while the pass does its upkeep is part of that pass, and is waited for', async () => {
    const gates = new Gates()
    const engine = await startEngine({ definitions: [double], wrap: (database) => holdAnswers(database, 'take_upkeep', gates) })
    try {
      await engine.spawnId('double', { n: 1 })
      await engine.sql("UPDATE pawl.environments SET upkeep_at = now() - interval '1 second'")
      const pass = engine.ticker.kick('first')
      await gates.reached('take_upkeep')
      const id = await engine.spawnId('double', { n: 4 })
      const kicked = engine.ticker.kick('second')
      gates.open('take_upkeep')
      expect(await kicked).toBe(await pass)
      expect(await pass).toMatchObject({ completed: 2 })
      expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 8 })
    } finally {
      await engine.close()
    }
  })
})

describe('a tick with a budget of time', () => {
  test('C246 claims only what fits into the time that is left, and leaves the rest untouched', async () => {
    let now = 0
    const slow = job({
      name: 'slow',
      timeout: '10s',
      run: () => {
        now += 1_000
      },
    })
    const budget = { wallMs: 14_500, concurrency: 1, batch: 1 }
    const engine = await startEngine({ definitions: [slow], budget, nowMs: () => now })
    try {
      for (let index = 0; index < 10; index += 1) await engine.spawnId('slow')
      // at 3.5 s less than ten seconds and the reserve for the last flush are left
      expect(await engine.tick()).toMatchObject({ completed: 4, more: true })
      const left = await engine.sql<string>("SELECT status FROM pawl.runs WHERE status NOT IN ('completed', 'discarded')")
      expect(left).toEqual(Array.from({ length: 6 }, () => 'pending'))
      expect(await engine.sql('SELECT count(*)::int FROM pawl.claims')).toEqual([0])
    } finally {
      await engine.close()
    }
  })

  test('C246 says that there is more when a step it committed left one that does not fit any more', async () => {
    let now = 0
    const chain = machine({
      name: 'chain',
      timeout: '10s',
      state: z.object({}),
      initial: 'first',
      steps: {
        first: ({ next }) => {
          now += 5_000
          return next('second')
        },
        second: ({ done }) => done(undefined),
      },
    })
    const engine = await startEngine({ definitions: [chain], budget: { wallMs: 14_500 }, nowMs: () => now })
    try {
      const id = await engine.spawnId('chain', {})
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 0, more: true })
      expect(await engine.run(id)).toMatchObject({ status: 'pending', step: 'second' })
      now = 0
      expect(await engine.tick()).toMatchObject({ completed: 1, more: false })
    } finally {
      await engine.close()
    }
  })

  test('C246 gives back at once what it had claimed and not started when it was told to stop', async () => {
    const gates = new Gates()
    const engine = await startEngine({ definitions: [double], wrap: (database) => holdAnswers(database, 'claim_runs', gates) })
    try {
      const ids = [await engine.spawnId('double', { n: 1 }), await engine.spawnId('double', { n: 2 })]
      const tick = engine.ticker.kick('test')
      await gates.reached('claim_runs')
      const stopped = engine.ticker.stop()
      gates.open('claim_runs')
      await stopped
      expect(await tick).toMatchObject({ claimed: 2, released: 2, completed: 0 })
      for (const id of ids) expect(await engine.run(id)).toMatchObject({ status: 'pending', losses: 0, attempt: 0 })
      expect(await engine.ticker.tick('another')).toMatchObject({ completed: 2 })
    } finally {
      await engine.close()
    }
  })
})

describe('the loop of the Node host', () => {
  test('C197 a step that takes long holds up no schedule and no other run', async () => {
    const fresh = await freshDatabase()
    const database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
    const gates = new Gates()
    const pawl = createPawl({ definitions: [held, nightly, double] })
    const connection = pawl.connect({ database, services: { gates } })
    const budget = { ...BUDGETS.node.kick, concurrency: 2 }
    const onPass = ({ fired }: TickReport) => void gates.pass(fired > 0 ? 'fired' : 'pass')
    const loop = startNodeLoop({ connection, budget, logger: pawl.logger, rotateMs: 50, onPass })
    try {
      // schedules are declared by the first pass
      await gates.reached('pass')
      const { id } = await connection.spawn(held, { gate: 'long' })
      loop.wake()
      await gates.reached('long')
      await fresh.pool().query("UPDATE pawl.schedules SET next_at = now() - interval '1 minute'")
      loop.wake()
      await gates.reached('fired')
      const other = await connection.spawn(double, { n: 5 })
      loop.wake()
      expect(await connection.result(double, other.id, { wait: '20s' })).toMatchObject({ status: 'completed', result: 10 })
      expect(await connection.run(id)).toMatchObject({ status: 'running', losses: 0 })
      gates.open('long')
      await loop.stop()
      expect(await connection.run(id)).toMatchObject({ status: 'completed', result: 'long' })
    } finally {
      gates.open('long')
      await loop.stop()
      await database.close()
      await fresh.close()
    }
  })
})

const REPORT = { completed: 0 } as unknown as TickReport

describe('kicks of one isolate', () => {
  test('C264 those that come while one leads are seen by it, and start nothing', async () => {
    const kicks = new IsolateKicks()
    const gates = new Gates()
    let looks = 0
    const leader = {
      kick: async () => {
        looks += 1
        await gates.pass('pass')
        return REPORT
      },
    }
    const first = kicks.ask()
    const leading = kicks.kick(() => first, leader, 60_000)
    const followers = Array.from({ length: 1_000 }, () => {
      const asked = kicks.ask()
      return kicks.kick(() => asked, { kick: () => Promise.reject(new Error('a follower led')) }, 60_000)
    })
    expect((await Promise.all(followers)).every((report) => report === undefined)).toBe(true)
    gates.open('pass')
    expect(await leading).toBe(REPORT)
    expect(looks).toBeLessThan(5)
  })

  test('one whose invocation was ended by the host is followed by another', async () => {
    let now = 0
    const kicks = new IsolateKicks(() => now)
    // its timers are gone with its invocation
    vi.useFakeTimers({ toFake: ['setInterval'] })
    try {
      const first = kicks.ask()
      void kicks.kick(() => first, { kick: () => new Promise<TickReport>(() => {}) }, 60_000)
      now = 1_000
      const second = kicks.ask()
      expect(await kicks.kick(() => second, { kick: async () => REPORT }, 60_000)).toBe(REPORT)
      expect(kicks.hasSeen(second)).toBe(true)
    } finally {
      vi.useRealTimers()
    }
  })

  test('one that has led for half of its time takes on no more', async () => {
    let now = 0
    const kicks = new IsolateKicks(() => now)
    const gates = new Gates()
    const first = kicks.ask()
    const leading = kicks.kick(() => first, { kick: () => gates.pass('old').then(() => REPORT) }, 800)
    now = 450
    const second = kicks.ask()
    expect(await kicks.kick(() => second, { kick: async () => REPORT }, 800)).toBe(REPORT)
    gates.open('old')
    await leading
  })
})
