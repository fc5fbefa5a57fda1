/** One set of definitions, deployed by all the examples beside this file. */
import * as z from 'zod'
import { createPawl, cron, job, machine, webhook } from '../src/index.ts'

/** Where a mail would be sent: the idempotency key makes a second attempt harmless. */
export const sendReceipt = job({
  name: 'send-receipt',
  input: z.object({ order: z.number().int(), to: z.string() }),
  output: z.object({ messageId: z.string() }),
  retry: { maxAttempts: 5, backoff: { kind: 'exponential', base: '2s', max: '5m' } },
  run: async ({ input, idempotencyKey, logger }) => {
    logger.info('receipt sent', { order: input.order })
    return { messageId: idempotencyKey }
  },
})

/** Waits for the payment, which the shop's webhook tells, then sends the receipt and ends. */
export const checkout = machine({
  name: 'checkout',
  queue: 'orders',
  state: z.object({ order: z.number().int(), to: z.string(), cents: z.number().int().optional() }),
  signals: { paid: z.object({ cents: z.number().int() }) },
  output: z.object({ order: z.number().int(), cents: z.number().int() }),
  key: ({ order }) => `order:${order}`,
  triggers: [
    webhook({
      name: 'payments',
      // the example's environment is not typed: see `Register` for that
      secret: (env) => (env as { readonly PAYMENTS_SECRET?: string }).PAYMENTS_SECRET ?? '',
      body: z.object({ order: z.number().int(), cents: z.number().int() }),
      signal: ({ body }) => ({ to: { key: `order:${body.order}` }, name: 'paid', payload: { cents: body.cents } }),
    }),
  ],
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('paid', { goto: 'receipt', timeout: '1 day' }),
    receipt: ({ signals, state, timedOut, fail, join }) => {
      const paid = signals.first('paid')
      if (timedOut || !paid) return fail('the payment never came')
      const receipt = sendReceipt.with({ order: state.order, to: state.to })
      return join([receipt], { goto: 'end', state: { ...state, cents: paid.payload.cents } })
    },
    end: ({ state, done }) => done({ order: state.order, cents: state.cents ?? 0 }),
  },
})

/** Every morning in Berlin, once, whatever daylight saving does. */
export const morningReport = job({
  name: 'morning-report',
  triggers: [cron('0 7 * * *', { timeZone: 'Europe/Berlin' })],
  run: ({ run }) => ({ reportedBy: run.id }),
})

export const pawl = createPawl({
  definitions: [sendReceipt, checkout, morningReport],
  queues: { orders: { concurrency: 20 } },
})
