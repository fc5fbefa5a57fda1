import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import type { CreateCallsOptions } from '../../src/client/surroundings.ts'
import type { Calls } from '../../src/core/calls.ts'
import type { Database } from '../../src/core/database.ts'
import type { Definition } from '../../src/core/definition.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { createRegistry, type Registry } from '../../src/core/registry.ts'
import type { Store } from '../../src/core/store.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createStore } from '../../src/db/store.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'

const perCustomer = limit('per-customer', { concurrency: 5 })

export const mail = job({
  name: 'mail',
  queue: 'mails',
  input: z.object({ to: z.email(), copies: z.number().default(1) }),
  tags: ['mail'],
  run: ({ input }) => ({ sentTo: input.to }),
})

export const order = machine({
  name: 'order',
  queue: 'orders',
  input: z.object({ order: z.number(), customer: z.string() }),
  state: z.object({ order: z.number(), paid: z.boolean() }),
  initialState: ({ order }) => ({ order, paid: false }),
  signals: { paid: z.object({ cents: z.number().int() }), note: z.string() },
  key: (input) => `order:${input.order}`,
  concurrencyKey: (input) => input.customer,
  limits: [perCustomer.by((input: { customer: string }) => input.customer)],
  retry: { maxAttempts: 3 },
  initial: 'wait',
  steps: { wait: ({ waitFor }) => waitFor('paid', { goto: 'end' }), end: ({ done }) => done(undefined) },
})

/** Declares the signal `note` otherwise than `order` does. */
export const survey = machine({
  name: 'survey',
  state: z.object({}),
  signals: { note: z.object({ stars: z.number() }) },
  initial: 'wait',
  steps: { wait: ({ waitFor }) => waitFor('note', { goto: 'wait' }) },
})

export const nothing = job({ name: 'nothing', run: () => null })

/** Everything the calls need, over a database of its own. */
export interface CallsSubject {
  readonly fresh: FreshDatabase
  readonly database: Database
  readonly store: Store
  readonly registry: Registry
  readonly calls: Calls
  /** Calls over the same store with other options. */
  readonly callsWith: (options: Partial<CreateCallsOptions>) => Calls
  readonly close: () => Promise<void>
}

export async function callsSubject(
  version: 15 | 18,
  definitions: readonly Definition<unknown, unknown>[] = ALL,
): Promise<CallsSubject> {
  const fresh = await freshDatabase(version)
  const database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
  const store = createStore({ database })
  const registry = createRegistry(definitions, { orders: { concurrency: 20 } })
  const callsWith = (options: Partial<CreateCallsOptions>) => createCalls({ store, registry, ...options })
  return {
    fresh,
    database,
    store,
    registry,
    calls: callsWith({}),
    callsWith,
    close: async () => {
      await database.close()
      await fresh.close()
    },
  }
}

const ALL: readonly Definition<unknown, unknown>[] = [mail, order, survey, nothing]
