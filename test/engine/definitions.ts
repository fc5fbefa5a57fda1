import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import type { BackoffOptions } from '../../src/core/retry.ts'

/** Gives back what it was given. */
export const echo = job({ name: 'echo', input: z.unknown(), run: ({ input }) => input ?? null })

/** Runs what the test puts into `services`, by the name in its input. */
export function hooked(name: string, run: (input: { n: number }, attempt: number) => unknown) {
  return job({
    name,
    input: z.object({ n: z.number() }),
    retry: { maxAttempts: 3, backoff: { kind: 'fixed', base: 0 } },
    run: async ({ input, attempt }) => {
      await run(input, attempt)
      return input.n
    },
  })
}

/** A job that fails with whatever `fails` throws, until it returns. */
export function failing(
  name: string,
  run: (attempt: number) => unknown,
  backoff: BackoffOptions = { kind: 'fixed', base: 0 },
  maxAttempts = 3,
) {
  return job({ name, retry: { maxAttempts, backoff }, run: ({ attempt }) => run(attempt) })
}
