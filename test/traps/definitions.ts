/** Definitions whose outcomes most tests commit themselves; what a tick would do with them is said where it matters. */
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'

export const task = job({ name: 'task', input: z.unknown(), run: ({ input }) => input ?? null })

/** Not run by anybody here: its children and signals are the test's. */
export const flow = machine({
  name: 'flow',
  input: z.unknown(),
  state: z.object({ n: z.number().optional() }),
  initialState: () => ({}),
  signals: { a: z.unknown(), b: z.unknown(), c: z.unknown() },
  initial: 'start',
  steps: {
    start: ({ next }) => next('middle'),
    middle: ({ next }) => next('end'),
    end: ({ done }) => done(undefined),
  },
})

/** One at a time per key. */
export const exclusive = job({
  name: 'exclusive',
  input: z.string(),
  concurrencyKey: (key) => key,
  run: ({ input }) => input,
})

const pair = limit('pair', { concurrency: 2 })

/** Two at a time, all together. */
export const paired = job({ name: 'paired', input: z.unknown(), limits: [pair], run: () => null })

export const TRAP_DEFINITIONS = [task, flow, exclusive, paired]
