// A user's project: packed, installed and typechecked by package.test.ts against the declarations that the package ships.
import { createPawl, job, limit, machine, type RunResult } from 'pawl'
import { createClient } from 'pawl/client'
import { cloudflare } from 'pawl/cloudflare'
import { neonHttp } from 'pawl/neon-http'
import { neonWebsocket } from 'pawl/neon-websocket'
import { node } from 'pawl/node'
import { nodePostgres } from 'pawl/node-postgres'
import { pglite } from 'pawl/pglite'
import { startNeonEndpoint } from 'pawl/testing'
import { vercel } from 'pawl/vercel'
import * as z from 'zod'

declare module 'pawl' {
  interface Register {
    services: { readonly mailer: { send(to: string, options: { readonly idempotencyKey: string }): Promise<string> } }
  }
}

const perCustomer = limit('per-customer', { concurrency: 5 })

const sendReceipt = job({
  name: 'send-receipt',
  input: z.object({ order: z.number(), to: z.string() }),
  output: z.object({ messageId: z.string() }),
  retry: { maxAttempts: 5, backoff: { kind: 'exponential', base: '2s', max: '5m', jitter: 0.1 } },
  timeout: '15s',
  limits: [perCustomer.by((input: { to: string }) => input.to)],
  run: async ({ input, idempotencyKey, services }) => ({ messageId: await services.mailer.send(input.to, { idempotencyKey }) }),
})

const checkout = machine({
  name: 'checkout',
  version: 1,
  queue: 'orders',
  initial: 'start',
  state: z.object({ order: z.number(), paid: z.number().optional() }),
  signals: { payment_confirmed: z.object({ cents: z.number() }) },
  output: z.object({ order: z.number(), paid: z.number() }),
  steps: {
    start: ({ waitFor }) => waitFor('payment_confirmed', { goto: 'end', timeout: '1h' }),
    end: ({ signals, state, timedOut, done, fail }) => {
      const payment = signals.first('payment_confirmed')
      if (timedOut || !payment) return fail('payment never came')
      const cents: number = payment.payload.cents
      return done({ order: state.order, paid: cents })
    },
  },
})

export const pawl = createPawl({ definitions: [sendReceipt, checkout], queues: { orders: { concurrency: 20 } } })

const client = createClient<typeof pawl>({ url: 'https://example.org/pawl', key: 'secret' })

export async function useIt(): Promise<RunResult<{ order: number; paid: number }>> {
  const { id } = await client.spawn('checkout', { order: 42 }, { key: 'order:42' })
  await client.signal({ key: 'order:42' }, 'payment_confirmed', { cents: 1_000 })
  // @ts-expect-error: no such definition
  await client.spawn('chekout', { order: 42 })
  // @ts-expect-error: the input is an object
  await pawl.spawn(sendReceipt, 'order')
  return pawl.result(checkout, id)
}

export const databases = [
  () => neonHttp('postgresql://user:secret@example.org/app'),
  () => neonWebsocket('postgresql://user:secret@example.org/app'),
  () => nodePostgres({ connectionString: 'postgresql://user:secret@example.org/app' }),
  () => pglite('memory'),
]

const mailer = { send: async (to: string) => `sent to ${to}` }

export const worker = cloudflare<{ DATABASE_URL: string; PAWL_ROOT_KEY: string }>(pawl, {
  database: (env) => neonHttp(env.DATABASE_URL),
  rootKey: (env) => env.PAWL_ROOT_KEY,
  services: () => ({ mailer }),
})

export const handlers = vercel<{ DATABASE_URL: string }>(pawl, {
  database: (env) => neonHttp(env.DATABASE_URL),
  services: () => ({ mailer }),
})

export const serve = () => node(pawl, { database: 'memory', services: { mailer } })

export const endpoint = () => startNeonEndpoint({ target: 'postgresql://postgres@127.0.0.1/postgres' })
