import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'

const callsOf = ({ store, registry }: TestEngine) => createCalls({ store, registry })

/** Three steps that add up; the third fails as long as `broken` says so. */
function threeSteps() {
  const ran: string[] = []
  const switches = { broken: true }
  const steps = machine({
    name: 'steps',
    state: z.object({ sum: z.number() }),
    output: z.number(),
    retry: { maxAttempts: 1 },
    key: () => 'order:1',
    tags: ['own'],
    initial: 'one',
    steps: {
      one: ({ next, state }) => {
        ran.push('one')
        return next('two', { state: { sum: state.sum + 1 } })
      },
      two: ({ next, state }) => {
        ran.push('two')
        return next('three', { state: { sum: state.sum + 10 } })
      },
      three: ({ done, state, idempotencyKey }) => {
        ran.push(`three ${idempotencyKey.split(':')[1]}`)
        if (switches.broken) throw new Error('not yet')
        return done(state.sum)
      },
    },
  })
  return { steps, ran, switches }
}

describe('retrying what has ended', () => {
  const { start } = sharedEngines()

  test('C082 a machine retried in place keeps its committed steps and its state: only what failed runs again', async () => {
    const { steps, ran, switches } = threeSteps()
    const engine = await start({ definitions: [steps] })
    const id = await engine.spawnId('steps', { sum: 0 })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', step: 'three', state: { sum: 11 } })
    switches.broken = false
    expect(await callsOf(engine).retry(id)).toEqual({ id, did: 'retried', status: 'pending' })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 11, error: null })
    // a retry by hand is another visit: what the failed one did is not taken for what this one does
    expect(ran).toEqual(['one', 'two', 'three 3', 'three 4'])
  })

  test('C083 retried as a new run it starts from its input under a new id, and the old one stays as it is', async () => {
    const { steps, ran, switches } = threeSteps()
    const engine = await start({ definitions: [steps] })
    const spawned = { tags: ['mine'], headers: { trace: 't-1' }, priority: 3, maxAttempts: 2 }
    const id = await engine.spawnId('steps', { sum: 5 }, spawned)
    await engine.tick()
    engine.advance(3_600_000)
    await engine.tick()
    const before = await engine.run(id)
    expect(before.status).toBe('failed')
    switches.broken = false
    ran.length = 0
    const again = await callsOf(engine).retry(id, { asNewRun: true }, { by: 'alice' })
    expect(again).toMatchObject({ did: 'spawned', status: 'pending' })
    expect(again.id).not.toBe(id)
    await engine.tick()
    expect(ran).toEqual(['one', 'two', 'three 3'])
    expect(await engine.run(again.id)).toMatchObject({
      status: 'completed',
      result: 16,
      input: { sum: 5 },
      key: 'order:1',
      tags: ['own', 'mine'],
      headers: { trace: 't-1' },
      priority: 3,
      maxAttempts: 2,
      origin: { retriedFrom: id, by: 'alice' },
    })
    expect(await engine.run(id)).toEqual(before)
  })

  test('C083 a new run is made once under an idempotency key, and not while another run holds its key', async () => {
    const { steps } = threeSteps()
    const engine = await start({ definitions: [steps] })
    const id = await engine.spawnId('steps', { sum: 0 })
    await engine.tick()
    const calls = callsOf(engine)
    const once = { asNewRun: true, idempotencyKey: 'again' }
    const first = await calls.retry(id, once)
    expect(await calls.retry(id, once)).toMatchObject({ id: first.id })
    await expect(calls.retry(id, { asNewRun: true })).rejects.toMatchObject({ code: 'key_taken', got: first.id })
    await expect(calls.retry(id)).rejects.toMatchObject({ code: 'key_taken', got: first.id })
  })

  test('C084 what has not failed is not retried, neither in place nor as a new run', async () => {
    const { steps, switches } = threeSteps()
    const engine = await start({ definitions: [steps] })
    const calls = callsOf(engine)
    const id = await engine.spawnId('steps', { sum: 0 })
    const refused = { code: 'not_retryable', status: 409 }
    for (const options of [{}, { asNewRun: true }]) await expect(calls.retry(id, options)).rejects.toMatchObject(refused)
    switches.broken = false
    await engine.tick()
    expect((await engine.run(id)).status).toBe('completed')
    for (const options of [{}, { asNewRun: true }]) await expect(calls.retry(id, options)).rejects.toMatchObject(refused)
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
  })

  test('C084 attempts given with a retry must be more than the run had', async () => {
    const failing = job({
      name: 'failing',
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
      run: ({ attempt }) => {
        throw new Error(`attempt ${attempt}`)
      },
    })
    const engine = await start({ definitions: [failing] })
    const calls = callsOf(engine)
    const id = await engine.spawnId('failing')
    await engine.tick()
    for (const maxAttempts of [1, 2]) {
      for (const asNewRun of [false, true]) {
        await expect(calls.retry(id, { maxAttempts, asNewRun })).rejects.toMatchObject({
          code: 'not_retryable',
          field: 'maxAttempts',
          allowed: 'more than 2',
        })
      }
    }
    expect((await engine.run(id)).status).toBe('failed')
    await calls.retry(id, { maxAttempts: 3 })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', attempt: 3, maxAttempts: 3 })
  })
})
