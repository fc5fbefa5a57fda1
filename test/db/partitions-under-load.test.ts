import { afterEach, expect, test, vi } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { partition } from '../../src/db/partitions.ts'
import { forEachVersion } from '../support/database.ts'
import type { TestEngine } from '../support/engine.ts'
import { raceCount, raceTimeout } from '../traps/race-count.ts'
import { DAY_MS, ORPHANS, RUNS, start } from './partition-world.ts'

const DRIVERS = 8
/** Half days that go by while they work. */
const HALF_DAYS = raceCount(6)
/** Time is moved on by days: nobody has lost his runs by that. */
const LEASE_MS = 4_000 * DAY_MS
const budget = { wallMs: LEASE_MS, requests: 50 }

/** What has been done, by input: how many times. */
const done = new Map<string, number>()
const count = (input: string) => void done.set(input, (done.get(input) ?? 0) + 1)
const retention = '1 day'

const few = limit('few', { concurrency: 3, shards: 3 })
const brief = job({ name: 'brief', input: z.string(), retention, key: (input) => input, run: ({ input }) => count(input) })
const limited = job({ name: 'limited', input: z.string(), retention, limits: [few], run: ({ input }) => count(input) })
const family = machine({
  name: 'family',
  input: z.string(),
  state: z.object({ name: z.string() }),
  initialState: (name) => ({ name }),
  retention,
  initial: 'split',
  steps: {
    split: ({ state: { name }, join }) =>
      join(
        [1, 2, 3].map((n) => brief.with(`${name}/${n}`)),
        { goto: 'end' },
      ),
    end: ({ state: { name }, children, done: end }) => {
      if (children().filter(({ status }) => status === 'completed').length === 3) count(name)
      return end(undefined)
    },
  },
})
/** Told by the signal of another driver, days later or at once, or by its timeout. */
const waiter = machine({
  name: 'waiter',
  input: z.string(),
  state: z.object({ name: z.string() }),
  initialState: (name) => ({ name }),
  signals: { go: z.string() },
  retention,
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('go', { goto: 'end', timeout: '1 day' }),
    end: ({ state: { name }, signals, timedOut, done: end }) => {
      if (timedOut || signals.first('go')?.payload === name) count(name)
      return end(undefined)
    },
  },
})
const definitions = [brief, limited, family, waiter]

afterEach(() => {
  vi.useRealTimers()
})

/** Spawns, signals and ticks until time stands still; what it has asked for. */
async function drive(engine: TestEngine, driver: number, isOver: () => boolean, asked: string[]): Promise<void> {
  const waiting: [id: string, name: string][] = []
  for (let n = 0; !isOver(); n += 1) {
    const name = `${driver}.${n}`
    const id = await engine.spawnId('waiter', `w${name}`)
    waiting.push([id, `w${name}`])
    await Promise.all([
      engine.spawnMany('brief', [`b${name}`, `c${name}`]),
      engine.spawnId('family', `f${name}`),
      engine.spawnMany('limited', [`l${name}`, `m${name}`]),
      engine.spawnId('limited', `d${name}`, { delay: '18h' }),
    ])
    asked.push(
      ...['w', 'b', 'c', 'f', 'l', 'm', 'd'].map((kind) => `${kind}${name}`),
      ...[1, 2, 3].map((child) => `f${name}/${child}`),
    )
    const [target] = n % 3 === 0 ? waiting.splice(0, 1) : []
    if (target) await engine.signal({ id: target[0] }, 'go', target[1])
    await engine.tick()
  }
  for (const [id, name] of waiting) await engine.signal({ id }, 'go', name)
}

forEachVersion('partitions under load', (version) => {
  test(
    'C218 eight drivers work while days go by, and two make and drop partitions under them: nothing is lost, nothing done twice, no deadlock',
    async () => {
      done.clear()
      let now = Date.now()
      vi.useFakeTimers({ toFake: ['Date'], now })
      const first = await start(version, 'day', { definitions, leaseMs: LEASE_MS, budget })
      const rest = Array.from({ length: DRIVERS - 1 }, () =>
        start(version, undefined, { definitions, leaseMs: LEASE_MS, budget, on: first.fresh }),
      )
      const engines = [first, ...(await Promise.all(rest))]
      let isOver = false
      const maintained = { made: 0, dropped: 0, busy: 0 }
      const maintain = async () => {
        const database = nodePostgres({ connectionString: first.fresh.connectionString, max: 1 })
        while (!isOver) {
          const report = await partition(database, { now: new Date(now).toISOString() }).catch((error) => {
            expect(error).toMatchObject({ code: 'database_busy' })
            maintained.busy += 1
          })
          maintained.made += report?.made.length ?? 0
          maintained.dropped += report?.dropped.length ?? 0
        }
        await database.close()
      }
      const maintaining = [maintain(), maintain()]
      const asked: string[][] = engines.map(() => [])
      const driving = engines.map((engine, driver) => drive(engine, driver, () => isOver, asked[driver]!))
      const working = Promise.all([...driving, ...maintaining])
      const passTime = (halfDays: number) => {
        now += (halfDays * DAY_MS) / 2
        vi.setSystemTime(now)
        for (const engine of engines) engine.advance((halfDays * DAY_MS) / 2)
      }
      for (let half = 1; half <= HALF_DAYS; half += 1) {
        const enough = half * DRIVERS * 7
        while (asked.flat().length < enough) await Promise.race([working, first.sql('SELECT pg_sleep(0.02)')])
        passTime(1)
      }
      isOver = true
      await working
      passTime(2)
      for (let ticks = 0; ticks < 200 && (await first.tick()).more; ticks += 1);
      expect(asked.flat().filter((name) => done.get(name) !== 1)).toEqual([])
      const unfinished = 'SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0 AND finished_at IS NULL'
      expect(await first.sql(unfinished)).toEqual([0])
      passTime(12)
      isOver = false
      const last = maintain()
      // those of days that came before their partition was made are deleted singly
      for (let left = 1; left > 0; ) {
        await first.tick()
        ;[left = 0] = await first.sql<number>(RUNS)
      }
      isOver = true
      await last
      expect(maintained.made).toBeGreaterThan(0)
      expect(maintained.dropped).toBeGreaterThan(0)
      expect(await first.sql(ORPHANS)).toEqual([0])
      expect(await first.sql('SELECT coalesce(sum(held), 0)::int FROM pawl.limit_counters')).toEqual([0])
      expect(await first.sql('SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()')).toEqual([0])
    },
    raceTimeout(HALF_DAYS * 100),
  )
})
