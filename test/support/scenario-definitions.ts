import * as z from 'zod'
import { createPawl, job, limit, machine } from '../../src/index.ts'

/** What the scenarios of `test/scenarios.json` run, on every host alike. */
const echo = job({ name: 'echo', input: z.json(), retry: 'none', run: ({ input }) => input })
const strict = job({
  name: 'strict',
  input: z.object({ n: z.number().int() }),
  output: z.number(),
  retry: 'none',
  run: ({ input }) => input.n * 2,
})
const fails = job({
  name: 'fails',
  retry: 'none',
  run: () => {
    throw new Error('as told')
  },
})
const flaky = job({
  name: 'flaky',
  input: z.object({ works: z.number() }),
  retry: { maxAttempts: 3, backoff: { kind: 'fixed', base: '1m' } },
  run: ({ input, attempt }) => {
    if (attempt < input.works) throw new Error(`attempt ${attempt}`)
    return attempt
  },
})
const outcome = job({
  name: 'outcome',
  input: z.object({ is: z.enum(['fail', 'discard', 'snooze', 'retry', 'uncertain']) }),
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: '1m' } },
  run: ({ input, fail, discard, snooze, retry, uncertain }) => {
    if (input.is === 'fail') return fail('refused')
    if (input.is === 'discard') return discard('not wanted')
    if (input.is === 'snooze') return snooze('10m')
    if (input.is === 'retry') return retry({ after: '5m', reason: 'not yet' })
    return uncertain({ reason: 'the bank did not answer' })
  },
})
const perCustomer = limit('per-customer', { concurrency: 1 })
const limited = job({
  name: 'limited',
  input: z.string(),
  retry: 'none',
  limits: [perCustomer.by((input: string) => input)],
  run: ({ input }) => input,
})
const order = machine({
  name: 'order',
  state: z.object({ order: z.number(), cents: z.number().optional() }),
  signals: { paid: z.object({ cents: z.number().int() }) },
  output: z.object({ order: z.number(), cents: z.number() }),
  key: ({ order: number }) => `order:${number}`,
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('paid', { goto: 'end', timeout: '1h' }),
    end: ({ signals, state, timedOut, done, fail }) => {
      const paid = signals.first('paid')
      return timedOut || !paid ? fail('never paid') : done({ order: state.order, cents: paid.payload.cents })
    },
  },
})
const family = machine({
  name: 'family',
  state: z.object({ need: z.enum(['all', 'any']), delay: z.boolean() }),
  output: z.array(z.string()),
  initial: 'split',
  steps: {
    split: ({ join, state }) =>
      join([echo.with('a'), fails.with(undefined), echo.with('c', state.delay ? { delay: '1d' } : {})], {
        goto: 'gather',
        need: state.need,
      }),
    gather: ({ children, done }) => done(children().map(({ status }) => status)),
  },
})

export const pawl = createPawl({
  definitions: [echo, strict, fails, flaky, outcome, limited, order, family],
  queues: { narrow: { concurrency: 1 } },
})
