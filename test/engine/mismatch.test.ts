import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { sharedEngines } from '../support/engine.ts'

/** Two builds of one version: the older one writes what the newer does not understand, or the other way round. */
const older = machine({
  name: 'order',
  state: z.object({ cents: z.number() }),
  initial: 'start',
  steps: {
    start: ({ next }) => next('ship', { delay: '1h' }),
    ship: ({ done }) => done(undefined),
  },
})
const renamed = machine({
  name: 'order',
  state: z.object({ cents: z.number() }),
  initial: 'start',
  steps: { start: ({ next }) => next('send', { delay: '1h' }), send: ({ done }) => done(undefined) },
})
const retyped = machine({
  name: 'order',
  state: z.object({ euros: z.string() }),
  input: z.object({ cents: z.number() }),
  initialState: ({ cents }) => ({ euros: String(cents) }),
  initial: 'start',
  steps: { start: ({ next }) => next('ship'), ship: ({ done }) => done(undefined) },
})
const other = job({ name: 'other', run: () => 'ran' })

describe('what is stored does not fit the code', () => {
  const { start } = sharedEngines()

  test.each([
    ['a step that was renamed', renamed, 'has no step "ship"'],
    ['a state of another shape', retyped, 'state at /euros'],
  ])('C058 %s: the run is held with the reason, no attempt is burned, and the next run goes on', async (_, newer, reason) => {
    const before = await start({ definitions: [older, other], frozen: true })
    const id = await before.spawnId('order', { cents: 5 })
    await before.tick()
    const after = await start({ definitions: [newer, other], beside: before, frozen: true, budget: { concurrency: 1, batch: 1 } })
    const behind = await before.spawnId('other', undefined, { delay: '1h' })
    after.advance(3_600_000)
    expect(await after.tick()).toMatchObject({ held: 1, completed: 1, failed: 0, retried: 0, more: false })
    expect(await after.run(behind)).toMatchObject({ status: 'completed' })
    expect(await after.run(id)).toMatchObject({
      status: 'pending',
      step: 'ship',
      attempt: 0,
      losses: 0,
      hold: 'mismatch',
      holdDetail: { since: new Date(after.clock()).toISOString(), detail: expect.stringContaining(reason), times: 1 },
      availableAt: after.clock() + 30_000,
    })
    expect(await createCalls({ store: after.store, registry: after.registry }).explain(id)).toMatchObject({
      reason: 'mismatch',
      detail: expect.stringContaining(reason),
    })
    // looked at again, less and less often, and never in the way
    after.advance(29_999)
    expect((await after.tick()).claimed).toBe(0)
    after.advance(1)
    expect(await after.tick()).toMatchObject({ claimed: 1, held: 1 })
    expect(await after.run(id)).toMatchObject({ hold: 'mismatch', holdDetail: { times: 2 }, availableAt: after.clock() + 60_000 })
    // a build that fits takes it up by itself
    before.advance(3_600_000 + 30_000 + 60_000 + 5_000)
    expect(await before.tick()).toMatchObject({ completed: 1 })
    expect(await before.run(id)).toMatchObject({ status: 'completed', attempt: 1, hold: null })
  })

  test('C058 an input that no longer matches is held too, and resume has it looked at at once', async () => {
    const sized = job({ name: 'sized', input: z.object({ size: z.number() }), run: ({ input }) => input.size })
    const loose = job({ name: 'sized', input: z.object({ size: z.unknown() }), run: () => 'any' })
    const before = await start({ definitions: [loose], frozen: true })
    const id = await before.spawnId('sized', { size: 'XL' })
    const after = await start({ definitions: [sized], beside: before, frozen: true })
    expect(await after.tick()).toMatchObject({ held: 1, failed: 0 })
    expect(await after.run(id)).toMatchObject({ hold: 'mismatch', attempt: 0 })
    const calls = createCalls({ store: before.store, registry: before.registry })
    expect(await calls.resumeRun(id)).toMatchObject({ did: 'resumed' })
    expect(await before.tick()).toMatchObject({ completed: 1 })
    expect(await before.run(id)).toMatchObject({ status: 'completed', result: 'any', attempt: 1 })
  })

  test('a held run can be cancelled, and gives back the slot that it was claimed with', async () => {
    const strict = job({ name: 'keyed', input: z.number(), concurrencyKey: () => 'one', run: ({ input }) => input })
    const loose = job({ name: 'keyed', input: z.unknown(), concurrencyKey: () => 'one', run: () => 0 })
    const before = await start({ definitions: [loose], frozen: true })
    const [held, next] = await before.spawnMany('keyed', ['text', 7])
    const after = await start({ definitions: [strict], beside: before, frozen: true })
    expect(await after.tick()).toMatchObject({ held: 1, completed: 1 })
    expect((await after.run(next!)).result).toBe(7)
    expect(await after.store.cancel(held!, { tenant: 'default', by: null })).toMatchObject({ did: 'cancelled' })
    after.advance(3_600_000)
    expect((await after.tick()).claimed).toBe(0)
  })
})
