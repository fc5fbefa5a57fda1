import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import type { StepContext } from '../../src/core/context.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { DEFAULT_RETRY, nextDelayMs } from '../../src/core/retry.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { failing } from './definitions.ts'

/** Milliseconds from each failed attempt to when the next is due. */
async function delaysOf(engine: TestEngine, id: string): Promise<readonly number[]> {
  const delays: number[] = []
  for (;;) {
    await engine.tick()
    const run = await engine.run(id)
    if (run.status !== 'pending') return delays
    const failedAt = (await engine.history(id)).at(-1)?.finishedAt ?? 0
    delays.push((run.availableAt ?? 0) - failedAt)
    // not a millisecond early
    engine.advance(delays.at(-1)! - 1)
    expect((await engine.tick()).claimed).toBe(0)
    engine.advance(1)
  }
}

describe('retrying', () => {
  const { start } = sharedEngines()

  test('C071 the default delays are those of the table, measured', async () => {
    const broken = job({
      name: 'broken',
      run: () => {
        throw new Error('always')
      },
    })
    const engine = await start({ definitions: [broken], frozen: true })
    const delays = await delaysOf(engine, await engine.spawnId('broken'))
    expect(delays).toEqual([5_000, 15_000, 45_000, 135_000, 405_000, 1_215_000, 3_600_000, 3_600_000, 3_600_000])
    expect(delays).toEqual(delays.map((_, index) => nextDelayMs(DEFAULT_RETRY, index + 1, () => 0)))
  })

  test('C072 a fixed backoff of 7 s waits 7 s each time', async () => {
    const engine = await start({ definitions: [failing('fixed', boom, { kind: 'fixed', base: '7s' }, 4)], frozen: true })
    expect(await delaysOf(engine, await engine.spawnId('fixed'))).toEqual([7_000, 7_000, 7_000])
  })

  test('C073 an exponential backoff doubles up to its cap', async () => {
    const backoff = { kind: 'exponential', base: '2s', max: '10s' } as const
    const engine = await start({ definitions: [failing('exponential', boom, backoff, 6)], frozen: true })
    expect(await delaysOf(engine, await engine.spawnId('exponential'))).toEqual([2_000, 4_000, 8_000, 10_000, 10_000])
  })

  test('C074 a thousand retries with jitter spread over the stated band and stay inside it', async () => {
    const backoff = { kind: 'fixed', base: '100s', jitter: 0.1 } as const
    const engine = await start({ definitions: [failing('jittered', boom, backoff, 2)], frozen: true })
    await engine.spawnMany('jittered', Array.from({ length: 1_000 }))
    const { clock } = engine
    await engine.tick()
    const delays = await engine.sql<number>(
      `SELECT (extract(epoch FROM timer_at) * 1000)::float8 - $2::float8 FROM pawl.runs
       WHERE timer_at IS NOT NULL AND environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`,
      [engine.environment, clock()],
    )
    expect(delays).toHaveLength(1_000)
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(90_000)
    expect(Math.max(...delays)).toBeLessThanOrEqual(100_000)
    const tenths = Array.from({ length: 10 }, (_, n) => delays.filter((ms) => Math.floor((ms - 90_000) / 1_000) === n).length)
    expect(Math.min(...tenths)).toBeGreaterThan(50)
  })

  test('C075 a backoff function is given the attempt and the error, and its value is used', async () => {
    const asked: unknown[] = []
    const backoff = (attempt: number, error: unknown) => {
      asked.push([attempt, (error as Error).message])
      return attempt * 1_111
    }
    const engine = await start({ definitions: [failing('custom', boom, backoff, 4)], frozen: true })
    expect(await delaysOf(engine, await engine.spawnId('custom'))).toEqual([1_111, 2_222, 3_333])
    expect(asked).toEqual([
      [1, 'boom 1'],
      [2, 'boom 2'],
      [3, 'boom 3'],
    ])
  })

  test('a backoff function that throws ends the run with its error', async () => {
    const backoff = () => {
      throw new Error('broken backoff')
    }
    const engine = await start({ definitions: [failing('custom', boom, backoff, 4)] })
    const id = await engine.spawnId('custom')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', error: { message: 'broken backoff' } })
  })

  test('C076 onError decides by the error: one is tried again, the other is not', async () => {
    class Busy extends Error {}
    const choosy = job({
      name: 'choosy',
      input: z.string(),
      run: ({ input, attempt }) => {
        if (input === 'bad') throw new Error('bad input')
        if (attempt < 3) throw new Busy('busy')
        return attempt
      },
      onError: ({ thrown, retry, fail }) => (thrown instanceof Busy ? retry({ after: '3s' }) : fail('refused')),
    })
    const engine = await start({ definitions: [choosy], frozen: true })
    const [busy, bad] = [await engine.spawnId('choosy', 'busy'), await engine.spawnId('choosy', 'bad')]
    expect(await delaysOf(engine, busy)).toEqual([3_000, 3_000])
    expect(await engine.run(busy)).toMatchObject({ status: 'completed', result: 3 })
    expect(await engine.run(bad)).toMatchObject({
      status: 'failed',
      attempt: 1,
      error: { message: 'refused', cause: 'declined' },
    })
  })

  test('C079 a run that is not to be retried fails with its first error', async () => {
    const once = job({ name: 'once', retry: 'none', run: () => boom(1) })
    const engine = await start({ definitions: [once] })
    const id = await engine.spawnId('once')
    expect(await engine.tick()).toMatchObject({ claimed: 1, failed: 1, retried: 0 })
    expect(await engine.run(id)).toMatchObject({ status: 'failed', attempt: 1 })
  })

  test('C079 a backoff of none means none although attempts are left', async () => {
    const engine = await start({ definitions: [failing('none', boom, { kind: 'none' }, 5)] })
    const id = await engine.spawnId('none')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', attempt: 1 })
  })

  test('C080 what a step throws goes to onError, which may go to any step with a state of its own', async () => {
    const facts: unknown[] = []
    const careful = machine({
      name: 'careful',
      state: z.object({ tries: z.number() }),
      output: z.string(),
      initial: 'risky',
      steps: {
        risky: () => {
          throw new Error('risky broke')
        },
        recover: ({ state, done }) => done(`recovered after ${state.tries}`),
      },
      onError: ({ error, step, attempt, state, next }) => {
        facts.push([error.message, step, attempt])
        return next('recover', { state: { tries: state.tries + 1 } })
      },
    })
    const engine = await start({ definitions: [careful] })
    const id = await engine.spawnId('careful', { tries: 0 })
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(facts).toEqual([['risky broke', 'risky', 1]])
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 'recovered after 1', visit: 2 })
  })

  test('C080 an onError that throws counts as the failed attempt', async () => {
    const worse = job({
      name: 'worse',
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
      run: () => boom(1),
      onError: () => {
        throw new Error('worse')
      },
    })
    const engine = await start({ definitions: [worse] })
    const id = await engine.spawnId('worse')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', attempt: 2, error: { message: 'worse', cause: 'exhausted' } })
  })

  test('C070 each way of failing has its cause', async () => {
    const ways = machine({
      name: 'ways',
      state: z.object({ way: z.string() }),
      retry: { maxAttempts: 1 },
      maxSnoozes: 0,
      initial: 'go',
      steps: {
        go: ({ state, fail, snooze }) => {
          if (state.way === 'declined') return fail('no')
          if (state.way === 'snooze_limit') return snooze(1)
          return boom(1)
        },
      },
    })
    const engine = await start({ definitions: [ways] })
    const causes = ['declined', 'snooze_limit', 'exhausted']
    const ids = await engine.spawnMany(
      'ways',
      causes.map((way) => ({ way })),
    )
    await engine.tick()
    const runs = await Promise.all(ids.map((id) => engine.run(id)))
    expect(runs.map(({ error }) => error?.cause)).toEqual(causes)
  })

  test('a step that throws something that is no error, or returns no outcome, fails like any other', async () => {
    const odd = machine({
      name: 'odd',
      state: z.object({ way: z.string() }),
      retry: 'none',
      initial: 'go',
      steps: {
        go: ({ state }: StepContext<{ way: string }, Record<never, never>, string, unknown, never>) => {
          if (state.way === 'thrown') throw 'just a text'
          return undefined as never
        },
      },
    })
    const engine = await start({ definitions: [odd] })
    const ids = await engine.spawnMany('odd', [{ way: 'thrown' }, { way: 'nothing' }])
    await engine.tick()
    const runs = await Promise.all(ids.map((id) => engine.run(id)))
    expect(runs.map(({ status, error }) => [status, error?.code])).toEqual([
      ['failed', 'thrown'],
      ['failed', 'invalid_outcome'],
    ])
  })
})

function boom(attempt: number): never {
  throw new Error(`boom ${attempt}`)
}
