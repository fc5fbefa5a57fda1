/** One engine in a process of its own, to be killed. Ticks until it is told to end by being killed, or until nothing is left. */
import { silentLogger } from '../../src/core/logger.ts'
import { createRegistry } from '../../src/core/registry.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createStore } from '../../src/db/store.ts'
import { createTicker } from '../../src/worker/tick.ts'
import { definitions } from './definitions.ts'

/** Short, so that what a killed process held is taken up again soon. */
const LEASE_MS = 1_000
/** How long to look away when nothing is due, at most: others may have put something in. */
const LONGEST_NAP_MS = 100

const database = nodePostgres({ connectionString: process.env.PAWL_DATABASE ?? '', max: 2 })
const budget = { wallMs: 60_000, requests: 1_000_000, concurrency: 10, batch: 5, lanes: 2, lingerMs: 0 }
const ticker = createTicker({
  store: createStore({ database }),
  registry: createRegistry(definitions),
  surroundings: { env: {}, services: {}, logger: silentLogger },
  budget,
  requests: () => database.requests,
  leaseMs: LEASE_MS,
})

process.send?.('up')
for (;;) {
  const { nextDueAt, more } = await ticker.tick('chaos')
  const nap = more ? 1 : Math.min(LONGEST_NAP_MS, Math.max(1, (nextDueAt ?? Number.POSITIVE_INFINITY) - Date.now()))
  await new Promise((resolve) => setTimeout(resolve, nap))
}
