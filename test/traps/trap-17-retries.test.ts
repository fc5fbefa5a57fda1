import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { machine } from '../../src/core/machine.ts'
import { sharedEngines } from '../support/engine.ts'

describe('trap 17: a retry replays no cached failure', () => {
  const { start } = sharedEngines()

  test('trap 17: a failed attempt leaves nothing behind: the next one and a retry by hand run the step itself, and nothing of its failure is left', async () => {
    let calls = 0
    const flaky = machine({
      name: 'flaky',
      state: z.object({ n: z.number() }),
      output: z.number(),
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
      initial: 'first',
      steps: {
        first: ({ next }) => next('second', { state: { n: 1 } }),
        second: ({ state, done }) => {
          calls += 1
          if (calls <= 2) throw new Error(`call ${calls}`)
          return done(state.n + calls)
        },
      },
    })
    const engine = await start({ definitions: [flaky] })
    const id = await engine.spawnId('flaky', { n: 0 })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', result: null, state: { n: 1 }, error: { message: 'call 2' } })
    expect(await engine.store.retry(id, { tenant: 'default' })).toMatchObject({ kind: 'retried' })
    expect(await engine.run(id)).toMatchObject({ status: 'pending', error: null, result: null })
    await engine.tick()
    expect(calls).toBe(3)
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 4, error: null })
    expect((await engine.history(id)).map(({ outcome, error }) => [outcome, error?.message])).toEqual([
      ['continue', undefined],
      ['retry', 'call 1'],
      ['fail', 'call 2'],
      ['retried', undefined],
      ['done', undefined],
    ])
  })
})
