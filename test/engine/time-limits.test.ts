import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import type { LogFields, Logger } from '../../src/core/logger.ts'
import { silentLogger } from '../../src/core/logger.ts'
import { machine } from '../../src/core/machine.ts'
import { around, moment, sharedEngines } from '../support/engine.ts'

/** Never ends; tells when it is told to. */
function hanging(told: (reason: unknown) => void) {
  return ({ abortSignal }: { readonly abortSignal: AbortSignal }) =>
    new Promise<never>(() => {
      abortSignal.addEventListener('abort', () => told(abortSignal.reason))
    })
}

describe('time limits', () => {
  const { start } = sharedEngines()

  test('C052 a handler over its limit is told to stop and counts as a failed attempt, with the code timeout', async () => {
    const told: unknown[] = []
    const slow = job({
      name: 'slow',
      timeout: 20,
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
      run: hanging((reason) => told.push((reason as Error).message)),
    })
    const engine = await start({ definitions: [slow] })
    const id = await engine.spawnId('slow')
    expect(await engine.tick()).toMatchObject({ claimed: 2, retried: 1, failed: 1 })
    expect(told).toEqual(Array.from({ length: 2 }, () => 'The step took longer than its timeout of 20 ms.'))
    expect(await engine.run(id)).toMatchObject({ status: 'failed', attempt: 2, error: { code: 'timeout', cause: 'exhausted' } })
    expect((await engine.history(id)).map(({ error }) => error?.code)).toEqual(['timeout', 'timeout'])
  })

  test('C052 C070 where a timeout is the end it is the cause, whatever attempts are left and whatever onError says', async () => {
    const slow = job({ name: 'slow', timeout: 20, onTimeout: 'fail', run: hanging(() => {}), onError: ({ retry }) => retry() })
    const engine = await start({ definitions: [slow] })
    const id = await engine.spawnId('slow')
    expect(await engine.tick()).toMatchObject({ claimed: 1, failed: 1 })
    expect(await engine.run(id)).toMatchObject({ status: 'failed', attempt: 1, error: { code: 'timeout', cause: 'timeout' } })
  })

  test('C052 where a timeout leaves it open whether the effect happened the run is uncertain', async () => {
    const slow = machine({
      name: 'slow',
      state: z.object({}),
      timeout: 20,
      onTimeout: 'uncertain',
      initial: 'pay',
      steps: { pay: hanging(() => {}) },
    })
    const engine = await start({ definitions: [slow] })
    const id = await engine.spawnId('slow', {})
    expect(await engine.tick()).toMatchObject({ claimed: 1, uncertain: 1, failed: 0 })
    expect(await engine.run(id)).toMatchObject({
      status: 'uncertain',
      error: { code: 'timeout' },
      uncertainty: { by: 'handler', reason: 'The step took longer than its timeout of 20 ms.', step: 'pay' },
    })
  })

  test('C052 what a handler gives after its time is not taken, and its place is free', async () => {
    const [mayEnd, ended] = [moment(), moment()]
    const slow = job({
      name: 'slow',
      timeout: 20,
      retry: 'none',
      run: async () => {
        await mayEnd.promise
        ended.happen()
        return 'late'
      },
    })
    const quick = job({ name: 'quick', run: () => 'ran' })
    const engine = await start({ definitions: [slow, quick], budget: { concurrency: 1, batch: 1 } })
    const [id, next] = [await engine.spawnId('slow'), await engine.spawnId('quick')]
    expect(await engine.tick()).toMatchObject({ claimed: 2, failed: 1, completed: 1 })
    mayEnd.happen()
    await ended.promise
    expect(await engine.tick()).toMatchObject({ claimed: 0 })
    expect(await engine.run(id)).toMatchObject({ status: 'failed', result: null, error: { code: 'timeout' } })
    expect(await engine.run(next)).toMatchObject({ status: 'completed' })
  })

  test('C053 a handler that goes on after it was told to stop is warned about, once', async () => {
    const warned: [string, LogFields | undefined][] = []
    const [first, mayEnd] = [moment(), moment()]
    const logger: Logger = {
      ...silentLogger,
      warn: (message, fields) => {
        warned.push([message, fields])
        first.happen()
      },
    }
    const deaf = job({ name: 'deaf', timeout: 20, retry: 'none', run: () => mayEnd.promise })
    // stops when it is told to: nothing to say
    const obedient = job({
      name: 'obedient',
      timeout: 20,
      retry: 'none',
      run: ({ abortSignal }) =>
        new Promise<never>((_, reject) => abortSignal.addEventListener('abort', () => reject(abortSignal.reason))),
    })
    const engine = await start({ definitions: [deaf, obedient], logger })
    const [id] = [await engine.spawnId('deaf'), await engine.spawnId('obedient')]
    await engine.tick()
    await first.promise
    await engine.tick()
    expect(warned).toEqual([
      [
        'pawl: a handler goes on though its signal was aborted',
        {
          run: id,
          definition: 'deaf',
          step: 'run',
          attempt: 1,
          reason: expect.stringContaining('longer than its timeout of 20 ms'),
        },
      ],
    ])
    mayEnd.happen()
  })

  test('C051 an invocation whose claim was answered too late to run it gives it back at once, and no attempt is counted', async () => {
    let now = 0
    const engine = await start({
      definitions: [job({ name: 'minute', timeout: '60s', run: () => 'ran' })],
      budget: { wallMs: 100_000 },
      nowMs: () => now,
      wrap: (database) =>
        around(database, async (statements, send) => {
          const rows = await send()
          // the reply takes most of the time there is
          if (statements.some(({ name }) => name === 'claim_runs') && rows.flat().some((row) => 'max_attempts' in row))
            now = 90_000
          return rows
        }),
    })
    const ids = await engine.spawnMany('minute', [null, null, null])
    expect(await engine.tick()).toMatchObject({ claimed: 3, released: 3, completed: 0, more: true })
    for (const id of ids) expect(await engine.run(id)).toMatchObject({ status: 'pending', attempt: 0, losses: 0 })
    const definitions = [job({ name: 'minute', timeout: '60s', run: () => 'ran' })]
    const next = await start({ definitions, beside: engine, budget: { wallMs: 100_000 } })
    expect(await next.tick()).toMatchObject({ completed: 3, rescued: 0 })
  })

  test('C172 a handler that is told to come back at an instant does, and no attempt is burned', async () => {
    let resetAt: Date | undefined
    const attempts: number[] = []
    const keys: string[] = []
    const limited = job({
      name: 'limited',
      retry: { maxAttempts: 1 },
      run: ({ attempt, idempotencyKey, snooze }) => {
        attempts.push(attempt)
        keys.push(idempotencyKey)
        // as 429 says it
        return resetAt === undefined ? 'sent' : snooze({ until: resetAt })
      },
    })
    const engine = await start({ definitions: [limited], frozen: true })
    const id = await engine.spawnId('limited')
    for (let snoozes = 1; snoozes <= 2; snoozes += 1) {
      resetAt = new Date(engine.clock() + 90_000)
      const until = resetAt.getTime()
      expect(await engine.tick()).toMatchObject({ claimed: 1, nextDueAt: until })
      expect(await engine.run(id)).toMatchObject({ status: 'pending', attempt: 0, availableAt: until, snoozes, error: null })
      engine.advance(89_999)
      expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: until })
      engine.advance(1)
    }
    resetAt = undefined
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 1, result: 'sent' })
    // the one attempt that it has, under the one key of its visit
    expect(attempts).toEqual([1, 1, 1])
    expect(new Set(keys).size).toBe(1)
    expect((await engine.history(id)).map(({ outcome, attempt }) => [outcome, attempt])).toEqual([
      ['snooze', 1],
      ['snooze', 1],
      ['done', 1],
    ])
  })
})
