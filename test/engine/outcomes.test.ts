import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { nonRetryable } from '../../src/core/outcome.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { echo, failing } from './definitions.ts'

forEachVersion('outcomes', (version) => {
  const { start } = sharedEngines(version)

  test('C061 null and objects are read back exactly as they were returned', async () => {
    const engine = await start({ definitions: [echo] })
    const values = [null, {}, { a: [1, { b: null }], ключ: 'é' }, [], '', 0, false, 'text', -1.5e-7]
    const ids = await engine.spawnMany('echo', values)
    await engine.tick()
    for (const [index, id] of ids.entries())
      expect(await engine.run(id)).toMatchObject({ status: 'completed', result: values[index] })
    const nothing = job({ name: 'nothing', run: () => undefined })
    const other = await start({ definitions: [nothing] })
    const id = await other.spawnId('nothing')
    await other.tick()
    expect(await other.run(id)).toMatchObject({ status: 'completed', result: null })
  })

  test('C062 C063 C078 a job of three attempts runs three times, sees 1, 2, 3, and fails with its last error', async () => {
    const seen: number[] = []
    const flaky = failing('flaky', (attempt) => {
      seen.push(attempt)
      throw new TypeError(`attempt ${attempt} broke`)
    })
    const engine = await start({ definitions: [flaky] })
    const id = await engine.spawnId('flaky')
    expect(await engine.tick()).toMatchObject({ claimed: 3, retried: 2, failed: 1 })
    expect(seen).toEqual([1, 2, 3])
    const run = await engine.run(id)
    expect(run).toMatchObject({ status: 'failed', attempt: 3, result: null })
    expect(run.error).toMatchObject({ code: 'thrown', name: 'TypeError', message: 'attempt 3 broke', cause: 'exhausted' })
    expect(run.error?.stack).toContain('outcomes.test.ts')
    const history = await engine.history(id)
    expect(history.map(({ outcome, attempt, error }) => [outcome, attempt, error?.message])).toEqual([
      ['retry', 1, 'attempt 1 broke'],
      ['retry', 2, 'attempt 2 broke'],
      ['fail', 3, 'attempt 3 broke'],
    ])
  })

  test('C064 fail and nonRetryable end the run after one execution', async () => {
    let calls = 0
    const declining = job({
      name: 'declining',
      error: z.object({ reason: z.string() }),
      run: ({ fail }) => {
        calls += 1
        return fail({ reason: 'card refused' })
      },
    })
    const throwing = failing('throwing', () => {
      calls += 1
      throw nonRetryable(new RangeError('never'))
    })
    const engine = await start({ definitions: [declining, throwing] })
    const [first, second] = [await engine.spawnId('declining'), await engine.spawnId('throwing')]
    expect(await engine.tick()).toMatchObject({ failed: 2, retried: 0 })
    expect(calls).toBe(2)
    expect(await engine.run(first)).toMatchObject({
      status: 'failed',
      error: { data: { reason: 'card refused' }, cause: 'declined' },
    })
    expect(await engine.run(second)).toMatchObject({ status: 'failed', error: { message: 'never', cause: 'declined' } })
  })

  test('C065 a discarded run is not a failed one, and says why', async () => {
    const stale = job({ name: 'stale', run: ({ discard }) => discard('the order is gone') })
    const engine = await start({ definitions: [stale] })
    const id = await engine.spawnId('stale')
    expect(await engine.tick()).toMatchObject({ discarded: 1, failed: 0 })
    expect(await engine.run(id)).toMatchObject({ status: 'discarded', error: { message: 'the order is gone' } })
  })

  test('C066 a run that snoozes for 60 s keeps its attempt, counts a snooze and is not due before', async () => {
    const sleepy = job({ name: 'sleepy', run: ({ snooze, attempt }) => (sleeps++ === 0 ? snooze('60s') : attempt) })
    let sleeps = 0
    const engine = await start({ definitions: [sleepy], frozen: true })
    const id = await engine.spawnId('sleepy')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({
      status: 'pending',
      attempt: 0,
      snoozes: 1,
      availableAt: engine.clock() + 60_000,
    })
    engine.advance(59_999)
    expect((await engine.tick()).claimed).toBe(0)
    engine.advance(1)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 1, result: 1 })
  })

  test('C067 one snooze more than allowed ends the run with its cause', async () => {
    const sleepy = job({ name: 'sleepy', maxSnoozes: 2, run: ({ snooze }) => snooze(0) })
    const engine = await start({ definitions: [sleepy] })
    const id = await engine.spawnId('sleepy')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', snoozes: 2, error: { cause: 'snooze_limit' } })
  })

  test('C077 a retry at an instant is due exactly then, whatever the worker’s clock says; a past one is due now', async () => {
    const at = { until: '' }
    const precise = job({
      name: 'precise',
      retry: { maxAttempts: 5 },
      run: ({ attempt, retry }) => (attempt <= 2 ? retry({ at: at.until }) : attempt),
    })
    // a host that is an hour ahead
    const engine = await start({ definitions: [precise], frozen: true, nowMs: () => Date.now() + 3_600_000 })
    at.until = new Date(engine.clock() + 90_123).toISOString()
    const id = await engine.spawnId('precise')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'pending', attempt: 1, availableAt: Date.parse(at.until) })
    engine.advance(90_122)
    expect((await engine.tick()).claimed).toBe(0)
    engine.advance(1)
    // the second time the instant is past
    expect(await engine.tick()).toMatchObject({ claimed: 2, completed: 1 })
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 3 })
  })

  test('C077 C109 a snooze until an instant and delays ignore the worker’s clock, an hour fast or slow', async () => {
    for (const skewMs of [3_600_000, -3_600_000]) {
      let until: Date | undefined
      const sleepy = job({ name: 'sleepy', run: ({ snooze }) => (until ? snooze({ until }) : snooze('10m')) })
      const engine = await start({ definitions: [sleepy], frozen: true, nowMs: () => Date.now() + skewMs })
      const first = await engine.spawnId('sleepy')
      await engine.tick()
      expect((await engine.run(first)).availableAt).toBe(engine.clock() + 600_000)
      until = new Date(engine.clock() + 1_800_000)
      const second = await engine.spawnId('sleepy')
      await engine.tick()
      expect((await engine.run(second)).availableAt).toBe(until.getTime())
    }
  })

  test('C081 a result that cannot be stored ends the run at once, with the reason', async () => {
    const circular: Record<string, unknown> = {}
    circular.self = circular
    let calls = 0
    const results: Record<string, unknown> = {
      circular,
      bigint: 10n,
      function: () => 1,
      surrogate: 'a\ud800',
      huge: 'x'.repeat(2_000_000),
    }
    const unstorable = job({
      name: 'unstorable',
      input: z.string(),
      output: z.unknown() as unknown as z.ZodType<null>,
      run: ({ input }) => {
        calls += 1
        return results[input] as never
      },
    })
    const engine = await start({ definitions: [unstorable] })
    const ids = await engine.spawnMany('unstorable', Object.keys(results))
    expect(await engine.tick()).toMatchObject({ failed: ids.length, retried: 0, more: false })
    expect(calls).toBe(ids.length)
    for (const id of ids) expect(await engine.run(id)).toMatchObject({ status: 'failed', error: { cause: 'unstorable' } })
  })
})
