import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { machine } from '../../src/core/machine.ts'
import { sharedEngines } from '../support/engine.ts'

describe('trap 14: a timeout is a recorded fact of its wait', () => {
  const { start } = sharedEngines()

  /** Waits for `note`, and says what it saw on each attempt of the step behind the wait. */
  function waiting(failures: number) {
    const seen: unknown[] = []
    const waits = machine({
      name: 'waits',
      state: z.object({}),
      signals: { note: z.null() },
      retry: { maxAttempts: 5, backoff: { kind: 'fixed', base: 0 } },
      initial: 'start',
      steps: {
        start: ({ waitFor }) => waitFor('note', { goto: 'end', timeout: '1h' }),
        end: ({ timedOut, signals, attempt, done }) => {
          seen.push([attempt, timedOut, signals.all.length])
          if (attempt <= failures) throw new Error('again')
          return done(undefined)
        },
      },
    })
    return { waits, seen }
  }

  test('trap 14: a signal whose payload is null has arrived: no attempt takes it for a timeout', async () => {
    const { waits, seen } = waiting(2)
    const engine = await start({ definitions: [waits], frozen: true })
    const id = await engine.spawnId('waits', {})
    await engine.tick()
    await engine.signal({ id }, 'note', null)
    await engine.tick()
    expect((await engine.run(id)).status).toBe('completed')
    expect(seen).toEqual([1, 2, 3].map((attempt) => [attempt, false, 1]))
  })

  test('trap 14: a wait that ran out says so on every attempt, also when the signal comes meanwhile', async () => {
    const { waits, seen } = waiting(1)
    const engine = await start({ definitions: [waits], frozen: true })
    const id = await engine.spawnId('waits', {})
    await engine.tick()
    engine.advance(3_600_000)
    // in the inbox before the step is claimed, after the wait was over
    await engine.store.claim({ ...NOTHING, claimId: crypto.randomUUID() })
    await engine.signal({ id }, 'note', null)
    await engine.tick()
    expect(seen.map((one) => (one as unknown[])[1])).toEqual([true, true])
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
  })
})

/** A claim of nothing: what is due is moved into the window by it. */
const NOTHING = {
  definitions: [{ name: 'another', version: 1 }],
  queues: null,
  limit: 1,
  maxBytes: 1,
  leaseMs: 1_000,
  laneCursor: 0,
  alone: false,
  besides: [],
  peek: true,
}
