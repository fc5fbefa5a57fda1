import { expect, test } from 'vitest'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { echo } from './definitions.ts'

/** An outcome as a newer copy of the library would make it. */
const newerOutcome = () => ({ [Symbol.for('pawl.outcome')]: true, kind: 'continueAs' })

forEachVersion('what is not expected', (version) => {
  const { start } = sharedEngines(version)

  test('an outcome of an unknown kind is a failure of its step, and its neighbours go on', async () => {
    const newer = job({ name: 'newer', retry: { maxAttempts: 1 }, run: newerOutcome })
    const engine = await start({ definitions: [newer, echo] })
    const id = await engine.spawnId('newer')
    const neighbour = await engine.spawnId('echo', 1)
    expect(await engine.tick()).toMatchObject({ claimed: 2, completed: 1, failed: 1 })
    expect(await engine.run(id)).toMatchObject({ status: 'failed', error: { code: 'invalid_outcome' } })
    expect(await engine.run(neighbour)).toMatchObject({ status: 'completed', result: 1 })
  })

  test('an id that a run of another environment has is taken: nothing is spawned, and that run is not shown', async () => {
    const here = await start({ definitions: [echo] })
    const there = await start({ definitions: [echo] })
    const id = await there.spawnId('echo', 1)
    expect(await here.spawn('echo', 1, { id })).toEqual({ kind: 'id_taken' })
    expect(await there.spawn('echo', 1, { id })).toMatchObject({ kind: 'occupied', id })
  })

  test('under an idempotency key, an id that is taken is refused again, and a run that was there is not created by the replay', async () => {
    const engine = await start({ definitions: [echo] })
    const id = await engine.spawnId('echo', 1)
    const asked = (tenant: string) => ({ id, tenant, receipt: { key: 'again', fingerprint: 'the same' } })
    expect(await engine.spawn('echo', 1, asked('another'))).toEqual({ kind: 'id_taken' })
    expect(await engine.spawn('echo', 1, asked('another'))).toEqual({ kind: 'id_taken' })
    expect(await engine.spawn('echo', 1, asked('default'))).toEqual({ kind: 'occupied', id, status: 'pending' })
    const replay = { kind: 'replayed', id, status: 'pending', created: false }
    expect(await engine.spawn('echo', 1, asked('default'))).toEqual(replay)
  })

  test('whoever waits for a run and goes away is not looked for any more', async () => {
    const engine = await start({ definitions: [echo] })
    const calls = createCalls({ store: engine.store, registry: engine.registry })
    const id = await engine.spawnId('echo', 1)
    const gone = AbortSignal.abort()
    const before = engine.database.requests
    expect(await calls.waitForRun(id, 25_000, undefined, gone)).toMatchObject({ id, status: 'pending' })
    expect(engine.database.requests - before).toBe(1)
  })
})
