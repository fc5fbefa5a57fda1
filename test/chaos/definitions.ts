import { appendFileSync } from 'node:fs'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'

/** Where effects are logged, outside the engine: one line per try of a step. An append survives the death of its process. */
const EFFECTS = process.env.PAWL_EFFECTS ?? ''

function effect(runId: string, step: string, idempotencyKey: string, attempt: number): void {
  appendFileSync(EFFECTS, `${runId} ${step} ${idempotencyKey} ${attempt}\n`)
}

const retry = { maxAttempts: 4, backoff: { kind: 'fixed', base: '20ms' } } as const

export const work = job({
  name: 'work',
  input: z.object({ n: z.number() }),
  retry,
  run: async ({ input, run, idempotencyKey, attempt }) => {
    effect(run.id, 'run', idempotencyKey, attempt)
    // long enough that a kill finds some of them in hand
    await new Promise((resolve) => setTimeout(resolve, 20 + (input.n % 7) * 15))
    return input.n * 2
  },
})

export const steps = machine({
  name: 'steps',
  state: z.object({ n: z.number(), sum: z.number() }),
  signals: { go: z.object({ add: z.number() }) },
  output: z.number(),
  initial: 'first',
  retry,
  steps: {
    first: ({ run, idempotencyKey, attempt, state, next }) => {
      effect(run.id, 'first', idempotencyKey, attempt)
      return next('second', { state: { ...state, sum: state.n } })
    },
    second: ({ run, idempotencyKey, attempt, state, waitFor }) => {
      effect(run.id, 'second', idempotencyKey, attempt)
      return waitFor('go', { goto: 'third', state: { ...state, sum: state.sum + 1 } })
    },
    third: ({ run, idempotencyKey, attempt, state, signals, done }) => {
      effect(run.id, 'third', idempotencyKey, attempt)
      return done(state.sum + (signals.first('go')?.payload.add ?? 1_000_000))
    },
  },
})

export const fan = machine({
  name: 'fan',
  state: z.object({ width: z.number() }),
  output: z.number(),
  initial: 'spread',
  retry,
  steps: {
    spread: ({ run, idempotencyKey, attempt, state, join }) => {
      effect(run.id, 'spread', idempotencyKey, attempt)
      return join(
        Array.from({ length: state.width }, (_, n) => work.with({ n })),
        { goto: 'gather' },
      )
    },
    gather: ({ run, idempotencyKey, attempt, children, done }) => {
      effect(run.id, 'gather', idempotencyKey, attempt)
      return done(children(work).reduce((sum, child) => sum + (child.status === 'completed' ? child.result : 1_000_000), 0))
    },
  },
})

export const definitions = [work, steps, fan]
