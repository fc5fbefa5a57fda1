/** What must, and what must not, compile. Checked by `tsc`: an unused @ts-expect-error is an error. */
import * as z from 'zod'
import type { InputOf, ResultOf } from '../../src/core/definition.ts'
import { job } from '../../src/core/job.ts'
import type { ReadBack } from '../../src/core/json.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { cron, webhook } from '../../src/core/trigger.ts'

type Eq<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

const perCustomer = limit('per-customer', { concurrency: 5 })
const global = limit('global', { rate: { count: 10, per: '1s' } })

export const sendReceipt = job({
  name: 'send-receipt',
  input: z.object({ order: z.number(), to: z.email() }),
  limits: [perCustomer.by((input) => input.to), global],
  key: (input) => `receipt:${input.order}`,
  run: async ({ input, idempotencyKey }) => ({ messageId: `${input.order}-${idempotencyKey}` }),
})

export const checkout = machine({
  name: 'checkout',
  version: 1,
  queue: 'orders',
  state: z.object({ order: z.number(), to: z.string(), paid: z.number().optional() }),
  signals: { payment_confirmed: z.object({ cents: z.number() }), cancelled_by_user: z.null() },
  output: z.object({ order: z.number(), paid: z.number(), mails: z.number() }),
  limits: [perCustomer.by((input) => input.to)],
  key: (input) => `order:${input.order}`,
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor(['payment_confirmed', 'cancelled_by_user'], { goto: 'ship', timeout: '1h' }),
    ship: ({ signals, state, timedOut, fail, join, next }) => {
      if (timedOut) return fail('payment never came')
      const payment = signals.first('payment_confirmed')
      if (!payment) return next('end')
      const cents: number = payment.payload.cents
      return join([sendReceipt.with({ order: state.order, to: state.to })], { goto: 'end', state: { ...state, paid: cents } })
    },
    end: async ({ state, children, done }) => {
      const mails = children(sendReceipt).filter((child) => child.status === 'completed' && child.result.messageId.length > 0)
      return done({ order: state.order, paid: state.paid ?? 0, mails: mails.length })
    },
  },
  onError: ({ attempt, step, retry, fail }) => (attempt < 5 && step !== 'end' ? retry({ after: '1s' }) : fail('gave up')),
})

export const t1: Eq<InputOf<typeof checkout>, { order: number; to: string; paid?: number | undefined }> = true
export const t2: Eq<ResultOf<typeof checkout>, { order: number; paid: number; mails: number }> = true
export const t3: Eq<(typeof checkout)['steps'][number], 'start' | 'ship' | 'end'> = true
export const t4: Eq<ResultOf<typeof sendReceipt>, { messageId: string }> = true
export const t4b: Eq<(typeof checkout)['name'], 'checkout'> = true

// narrowing over the discriminated union of signals
export const narrow = machine({
  name: 'n',
  state: z.object({}),
  signals: { a: z.number(), b: z.string() },
  output: z.string(),
  initial: 's',
  steps: {
    s: ({ signals, done }) =>
      done(signals.all.map((signal) => (signal.name === 'a' ? signal.payload.toFixed() : signal.payload.trim())).join()),
  },
})

export const bad1 = machine({
  name: 'x',
  state: z.object({ n: z.number() }),
  signals: { paid: z.number() },
  output: z.number(),
  // @ts-expect-error unknown initial step
  initial: 'nope',
  steps: { a: ({ done }) => done(1) },
})

export const bad2 = machine({
  name: 'x',
  state: z.object({ n: z.number() }),
  signals: { paid: z.number() },
  output: z.number(),
  initial: 'a',
  steps: {
    // @ts-expect-error unknown target
    a: ({ next }) => next('nope'),
    // @ts-expect-error undeclared signal
    b: ({ waitFor }) => waitFor('payd', { goto: 'a' }),
    // @ts-expect-error result of the wrong type
    c: ({ done }) => done('one'),
    // @ts-expect-error state of the wrong type
    d: ({ next }) => next('a', { state: { n: '1' } }),
    // @ts-expect-error unknown target of a wait
    e: ({ waitFor }) => waitFor('paid', { goto: 'nope' }),
    // @ts-expect-error unknown target of a join
    f: ({ join }) => join([], { goto: 'nope' }),
    // @ts-expect-error a duration without a unit
    g: ({ next }) => next('a', { delay: '5' }),
    // @ts-expect-error no error schema: only a text
    h: ({ fail }) => fail({ reason: 1 }),
    // @ts-expect-error a step must end with an outcome
    i: () => 5,
    // @ts-expect-error undeclared signal
    j: ({ signals, done }) => done(signals.first('payd') ? 1 : 2),
  },
})

// @ts-expect-error wrong child input
sendReceipt.with({ order: '1', to: 'x' })

export const bad3 = machine({
  name: 'x',
  // @ts-expect-error a Date does not survive storage
  state: z.object({ at: z.date() }),
  initial: 'a',
  steps: { a: ({ done }) => done(undefined) },
})

export const bad4 = machine({
  name: 'x',
  // @ts-expect-error a transform does not round-trip
  state: z.object({ at: z.string().transform((text) => text.length) }),
  initial: 'a',
  steps: { a: ({ done }) => done(undefined) },
})

export const bad5 = job({
  name: 'x',
  // @ts-expect-error a Map does not survive storage
  output: z.map(z.string(), z.number()),
  run: () => new Map<string, number>(),
})

export const bad6 = job({
  name: 'x',
  output: z.object({ n: z.number() }),
  // @ts-expect-error result of the wrong type
  run: () => ({ n: '1' }),
})

export const bad7 = job({
  name: 'x',
  output: z.number(),
  // @ts-expect-error result of the wrong type by outcome
  run: ({ done }) => done('1'),
})

// no output, no signals: done with undefined, which reads back as null
export const plain = machine({
  name: 'p',
  state: z.object({ n: z.number() }),
  initial: 'a',
  steps: { a: ({ state, next }) => next(state.n ? 'b' : 'a'), b: ({ done }) => done(undefined) },
})
export const t5: Eq<ResultOf<typeof plain>, null> = true

export const tree = machine({
  name: 'tree',
  state: z.object({ depth: z.number() }),
  output: z.number(),
  initial: 'a',
  steps: {
    a: ({ state, self, done, join }) =>
      state.depth === 0 ? done(1) : join([self.with({ depth: state.depth - 1 })], { goto: 'b' }),
    b: ({ children, self, done }) =>
      done(children(self).reduce((sum, child) => sum + (child.status === 'completed' ? child.result : 0), 1)),
  },
})
export const t6: Eq<ResultOf<typeof tree>, number> = true

// jobs: what the handler returns, as JSON gives it back; outcomes beside values
export const mixed = job({
  name: 'mixed',
  input: z.object({ kind: z.enum(['a', 'b', 'c']) }),
  run: ({ input, done, snooze, discard, fail, retry }) => {
    if (input.kind === 'a') return done({ a: 1 })
    if (input.kind === 'b') return snooze('60s')
    if (Date.now() === 1) return discard('not worth it')
    if (Date.now() === 2) return fail('no')
    if (Date.now() === 3) return retry({ after: '1s' })
    return { at: new Date(0) }
  },
})
export const t7: ResultOf<typeof mixed> = { at: '1970' }
export const t7b: ResultOf<typeof mixed> = { a: 1 }
// @ts-expect-error neither of the two
export const t7c: ResultOf<typeof mixed> = { c: 1 }
export const nothing = job({ name: 'nothing', run: async () => {} })
export const t8: Eq<ResultOf<typeof nothing>, null> = true
export const maybe = job({ name: 'maybe', run: async (): Promise<{ id: string } | undefined> => undefined })
export const t9: Eq<ResultOf<typeof maybe>, { id: string } | null> = true
export const declared = job({
  name: 'declared',
  output: z.object({ kind: z.enum(['x', 'y']) }),
  run: ({ attempt, done }) => (attempt > 1 ? done({ kind: 'x' }) : ({ kind: 'y' } as const)),
})
export const t10: Eq<ResultOf<typeof declared>, { kind: 'x' | 'y' }> = true
export const t11: Eq<ReadBack<{ at: Date; n?: number | undefined }>, { at: string; n?: number | undefined }> = true

// a typed error
export const typed = job({
  name: 'typed',
  error: z.object({ reason: z.enum(['stock', 'price']) }),
  run: ({ fail }) => (Date.now() > 0 ? fail({ reason: 'stock' }) : { ok: true }),
})
export const t12: Eq<ResultOf<typeof typed>, { ok: boolean }> = true
export const bad8 = job({
  name: 'typed',
  error: z.object({ reason: z.enum(['stock', 'price']) }),
  // @ts-expect-error not an error that was declared
  run: ({ fail }) => fail({ reason: 'other' }),
})

// onError of jobs
export const chosen = job({
  name: 'chosen',
  input: z.object({ n: z.number() }),
  onError: ({ thrown, attempt, retry, fail, input }) =>
    thrown instanceof TypeError && attempt < input.n ? retry() : fail('gave up'),
  run: ({ input }) => input.n,
})
export const t13: Eq<ResultOf<typeof chosen>, number> = true

// limits and triggers see the input's type
export const bad9 = job({
  name: 'x',
  input: z.object({ user: z.string() }),
  // @ts-expect-error no such member of the input
  limits: [perCustomer.by((input: { customer: string }) => input.customer)],
  run: () => null,
})
export const triggered = job({
  name: 'triggered',
  input: z.object({ user: z.string() }),
  triggers: [
    cron('0 7 * * 1', { timeZone: 'Europe/Berlin', input: { user: 'weekly' } }),
    webhook({
      name: 'users',
      secret: () => 's',
      body: z.object({ login: z.string() }),
      spawn: ({ body }) => ({ user: body.login }),
    }),
    webhook({
      name: 'paid',
      secret: () => ['new', 'old'],
      scheme: 'github',
      signal: ({ body, deliveryId }) => ({ to: { key: `order:${deliveryId}` }, name: 'paid', payload: body }),
    }),
  ],
  run: ({ input }) => input.user,
})
export const t14: Eq<InputOf<typeof triggered>, { user: string }> = true
export const bad10 = job({
  name: 'x',
  input: z.object({ user: z.string() }),
  // @ts-expect-error not the input
  triggers: [cron('0 7 * * 1', { input: { user: 5 } })],
  run: () => null,
})
export const bad11 = job({
  name: 'x',
  input: z.object({ user: z.string() }),
  // @ts-expect-error not the input
  triggers: [webhook({ name: 'w', secret: () => 's', spawn: () => ({ user: 5 }) })],
  run: () => null,
})

// input apart from state
export const apart = machine({
  name: 'apart',
  input: z.object({ user: z.string() }),
  state: z.object({ user: z.string(), tries: z.number() }),
  initialState: (input) => ({ ...input, tries: 0 }),
  output: z.number(),
  initial: 'a',
  key: (input) => input.user,
  upgrade: {},
  steps: { a: ({ state, input, self, done, join }) => (state.tries > 1 ? done(1) : join([self.with(input)], { goto: 'a' })) },
})
export const t15: Eq<InputOf<typeof apart>, { user: string }> = true
export const bad12 = machine({
  name: 'apart',
  input: z.object({ user: z.string() }),
  state: z.object({ user: z.string(), tries: z.number() }),
  // @ts-expect-error not the state
  initialState: (input) => ({ ...input, tries: '0' }),
  initial: 'a',
  steps: { a: ({ done }) => done(undefined) },
})
