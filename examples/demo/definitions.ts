/** What the demo runs. Its effects are written to a file outside the engine, so that they can be counted afterwards. */
import * as z from 'zod'
import { createPawl, job, machine, webhook } from '../../src/index.ts'

export interface DemoServices {
  /** Notes that something was begun or done, where a crash of the engine cannot undo it. */
  readonly note: (kind: 'begun' | 'done', runId: string) => void
}

export interface DemoEnv {
  readonly WEBHOOK_SECRET: string
}

/** Fetches a file and says what is in it. A server that fails is asked again. */
export const fetchFile = job({
  name: 'fetch-file',
  input: z.object({ url: z.string() }),
  output: z.object({ bytes: z.number(), sha256: z.string() }),
  retry: { maxAttempts: 5, backoff: { kind: 'fixed', base: '200ms' } },
  timeout: '10s',
  run: async ({ input, run, services, abortSignal }) => {
    const { note } = services as DemoServices
    note('begun', run.id)
    const response = await fetch(input.url, { signal: abortSignal })
    if (!response.ok) throw new Error(`${input.url} answered ${response.status}`)
    const content = await response.arrayBuffer()
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', content))
    const sha256 = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('')
    note('done', run.id)
    return { bytes: content.byteLength, sha256 }
  },
})

/** Waits for the payment, then for the parcel. The webhook of the shop tells of payments. */
export const checkout = machine({
  name: 'checkout',
  state: z.object({ order: z.number(), cents: z.number().optional() }),
  signals: { paid: z.object({ cents: z.number() }), shipped: z.object({ parcel: z.string() }) },
  output: z.object({ order: z.number(), cents: z.number(), parcel: z.string() }),
  key: ({ order }) => `order:${order}`,
  triggers: [
    webhook({
      name: 'payments',
      secret: (env) => (env as DemoEnv).WEBHOOK_SECRET,
      body: z.object({ order: z.number(), cents: z.number() }),
      signal: ({ body }) => ({ to: { key: `order:${body.order}` }, name: 'paid', payload: { cents: body.cents } }),
    }),
  ],
  initial: 'ordered',
  steps: {
    ordered: ({ waitFor }) => waitFor('paid', { goto: 'packing', timeout: '1h' }),
    packing: ({ signals, state, timedOut, fail, waitFor }) => {
      const paid = signals.first('paid')
      if (timedOut || !paid) return fail('the payment never came')
      return waitFor('shipped', { goto: 'delivered', timeout: '1h', state: { ...state, cents: paid.payload.cents } })
    },
    delivered: ({ signals, state, timedOut, fail, done }) => {
      const shipped = signals.first('shipped')
      if (timedOut || !shipped) return fail('the parcel never left')
      return done({ order: state.order, cents: state.cents ?? 0, parcel: shipped.payload.parcel })
    },
  },
})

/** One measurement of a survey: takes a while, some longer than others. */
export const measure = job({
  name: 'measure',
  input: z.object({ n: z.number() }),
  output: z.number(),
  timeout: '10s',
  run: async ({ input, run, services }) => {
    const { note } = services as DemoServices
    note('begun', run.id)
    await new Promise((resolve) => setTimeout(resolve, 250 + (input.n % 5) * 40))
    note('done', run.id)
    return input.n * input.n
  },
})

/** Spreads over many measurements and adds them up when all are there. */
export const survey = machine({
  name: 'survey',
  state: z.object({ width: z.number() }),
  output: z.number(),
  initial: 'spread',
  steps: {
    spread: ({ state, join }) =>
      join(
        Array.from({ length: state.width }, (_, n) => measure.with({ n })),
        { goto: 'gather', state },
      ),
    gather: ({ children, done, fail }) => {
      const results = children(measure).map((child) => (child.status === 'completed' ? child.result : Number.NaN))
      const sum = results.reduce((total, result) => total + result, 0)
      return Number.isNaN(sum) ? fail('a measurement failed') : done(sum)
    },
  },
})

export const pawl = createPawl({ definitions: [fetchFile, checkout, measure, survey] })
