import { afterEach } from 'vitest'
import * as z from 'zod'
import type { Database } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { partition } from '../../src/db/partitions.ts'
import { endOf, leastId, type Period } from '../../src/db/periods.ts'
import { freshDatabase } from '../support/database.ts'
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts'

export const DAY_MS = 86_400_000
export const WEEK_MS = 7 * DAY_MS

export const brief = job({
  name: 'brief',
  input: z.unknown(),
  retention: '1 day',
  key: (input) => `key ${input}`,
  run: ({ input }) => input,
})
export const failing = job({
  name: 'failing',
  retry: 'none',
  retention: '1 day',
  run: () => {
    throw new Error('broken')
  },
})
export const parked = machine({
  name: 'parked',
  state: z.object({}),
  signals: { go: z.null() },
  retention: '1 day',
  initial: 'wait',
  steps: { wait: ({ waitFor }) => waitFor('go', { goto: 'end' }), end: ({ done }) => done(undefined) },
})
export const unsure = job({ name: 'unsure', retention: '1 day', run: ({ uncertain }) => uncertain({ reason: 'no answer' }) })
export const gone = job({ name: 'gone', input: z.number(), retention: 0, run: ({ input }) => input })
export const parent = machine({
  name: 'parent',
  queue: 'parents',
  state: z.object({}),
  output: z.number(),
  retention: '1 day',
  initial: 'split',
  steps: {
    split: ({ join }) => join([gone.with(7, { queue: 'children' })], { goto: 'end' }),
    end: ({ children, done }) => done(children(gone).map((child) => (child.status === 'completed' ? child.result : -1))[0] ?? -1),
  },
})
export const definitions = [brief, failing, parked, unsure, gone, parent]

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

export async function start(version: 15 | 18, partitioned?: Period, options: Partial<EngineOptions> = {}): Promise<TestEngine> {
  const fresh = options.on ?? (await freshDatabase(version, { partitioned }))
  if (options.on === undefined) cleanups.push(fresh.close)
  const engine = await startEngine({ definitions, version, frozen: true, on: fresh, ...options })
  cleanups.push(engine.close)
  return engine
}

/** What `pawl partitions` does, at the time that the engine has. */
export async function upkeep(
  engine: TestEngine,
  every?: Period,
  wrap: (database: Database) => Database = (database) => database,
) {
  const database = nodePostgres({ connectionString: engine.fresh.connectionString, max: 1 })
  try {
    return await partition(wrap(database), { every, now: new Date(engine.clock()).toISOString() })
  } finally {
    await database.close()
  }
}

/** Moves on until the current week, in which the tests spawn, is behind us, and what has ended is over. */
export function afterThisWeek(engine: TestEngine): void {
  engine.advance(endOf('week', engine.clock()) - engine.clock() + 2 * DAY_MS)
}

/** An id of a run of that instant. */
export const idAt = (ms: number, n = 1) => leastId(ms, n).replace('-0000-0000-', '-7000-8000-')

export const tablesOf = (engine: TestEngine) =>
  engine.sql<string>(
    "SELECT relname::text FROM pg_class WHERE relnamespace = 'pawl'::regnamespace AND relispartition AND relkind = 'r' ORDER BY relname",
  )

export const RUNS = 'SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0'
export const ORPHANS = `SELECT (
  (SELECT count(*) FROM pawl.history h WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = h.run_id))
  + (SELECT count(*) FROM pawl.signals g WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = g.run_id))
  + (SELECT count(*) FROM pawl.uniques u WHERE u.environment_id > 0 AND NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = u.run_id))
  + (SELECT count(*) FROM pawl.event_waits w WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = w.run_id)))::int`
