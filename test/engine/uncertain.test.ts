import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claimOf, LEASE_MS, PAUSE_MS } from './claim-request.ts'

/** Claims what is due and goes away with it. */
async function abandon(engine: TestEngine): Promise<number> {
  const { runs } = await engine.store.claim(claimOf(engine, 10))
  engine.advance(LEASE_MS)
  await engine.store.claim(claimOf(engine, 10, { definitions: [{ name: 'another', version: 1 }] }))
  return runs.length
}

async function uncertaintyOf(engine: TestEngine, id: string): Promise<Record<string, unknown>> {
  const [uncertainty] = await engine.sql<Record<string, unknown>>('SELECT uncertainty FROM pawl.runs WHERE id = $1', [id])
  return uncertainty ?? {}
}

forEachVersion('uncertain', (version) => {
  const { start } = sharedEngines(version)

  test('C068 a handler that cannot tell reports it with its evidence, and the run is held for a decision', async () => {
    const pay = job({
      name: 'pay',
      key: () => 'order:1',
      run: ({ uncertain }) => uncertain({ reason: 'the gateway did not answer', evidence: { request: 'r-7', sent: true } }),
    })
    const engine = await start({ definitions: [pay], frozen: true })
    const id = await engine.spawnId('pay')
    expect(await engine.tick()).toMatchObject({ claimed: 1, uncertain: 1, failed: 0 })
    expect(await engine.run(id)).toMatchObject({
      status: 'uncertain',
      attempt: 1,
      availableAt: null,
      finishedAt: null,
      error: { code: 'uncertain', message: 'the gateway did not answer' },
    })
    expect(await uncertaintyOf(engine, id)).toEqual({
      since: new Date(engine.clock()).toISOString(),
      by: 'handler',
      reason: 'the gateway did not answer',
      step: 'run',
      visit: 1,
      attempt: 1,
      evidence: { request: 'r-7', sent: true },
    })
    expect((await engine.history(id)).map(({ outcome, error }) => [outcome, error?.code])).toEqual([['uncertain', 'uncertain']])
    // nothing runs it, its key stays its own, and it is never pruned
    engine.advance(365 * 86_400_000)
    expect(await engine.tick()).toMatchObject({ claimed: 0, pruned: 0 })
    expect(await engine.spawn('pay')).toMatchObject({ kind: 'occupied', id })
    expect((await engine.run(id)).status).toBe('uncertain')
  })

  test('C068 a machine reports it in any of its steps: state, signals and what it was shown stay as they were', async () => {
    const order = machine({
      name: 'order',
      state: z.object({ paid: z.number() }),
      signals: { go: z.object({ cents: z.number() }) },
      initial: 'start',
      steps: {
        start: ({ waitFor }) => waitFor('go', { goto: 'charge', state: { paid: 0 } }),
        charge: ({ uncertain }) => uncertain({ reason: 'connection reset' }),
      },
    })
    const engine = await start({ definitions: [order] })
    const id = await engine.spawnId('order', { paid: 0 })
    await engine.tick()
    await engine.signal({ id }, 'go', { cents: 5 })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({
      status: 'uncertain',
      step: 'charge',
      visit: 2,
      awaits: ['go'],
      state: { paid: 0 },
    })
    expect(await engine.sql('SELECT consumed_seq FROM pawl.signals WHERE run_id = $1', [id])).toEqual([null])
  })

  test('evidence that cannot be stored is left out, and the run is uncertain all the same', async () => {
    const pay = job({ name: 'pay', run: ({ uncertain }) => uncertain({ reason: 'lost', evidence: { amount: 5n } }) })
    const engine = await start({ definitions: [pay] })
    const id = await engine.spawnId('pay')
    await engine.tick()
    expect((await engine.run(id)).status).toBe('uncertain')
    expect(await uncertaintyOf(engine, id)).toMatchObject({ evidence: { notStored: expect.stringContaining('evidence') } })
  })

  test('C054 an attempt that was abandoned after its effect makes the run uncertain at once, and nothing runs it again', async () => {
    const pay = job({ name: 'pay', onAbandoned: 'hold', concurrencyKey: () => 'till', run: () => 'paid' })
    const engine = await start({ definitions: [pay], frozen: true })
    const [id, next] = [await engine.spawnId('pay'), await engine.spawnId('pay')]
    const { runs } = await engine.store.claim(claimOf(engine, 1))
    expect(runs.map((run) => run.id)).toEqual([id])
    engine.advance(LEASE_MS)
    // a build that does not know the definition sees to it as well
    await engine.store.claim(claimOf(engine, 10, { definitions: [{ name: 'another', version: 1 }] }))
    expect(await engine.run(id)).toMatchObject({ status: 'uncertain', attempt: 1, losses: 1, error: { code: 'abandoned' } })
    expect(await uncertaintyOf(engine, id)).toMatchObject({
      by: 'abandoned',
      step: 'run',
      visit: 1,
      attempt: 1,
      since: new Date(engine.clock()).toISOString(),
      evidence: { claim: runs[0]?.claimId, leaseUntil: new Date(engine.clock()).toISOString() },
    })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['uncertain'])
    // its slot was given back
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await engine.run(next)).toMatchObject({ status: 'completed' })
    engine.advance(86_400_000)
    expect((await engine.tick()).claimed).toBe(0)
  })

  test('C055 abandoned attempts are replayed as often as agreed, then the run is held', async () => {
    let runs = 0
    const pay = job({ name: 'pay', onAbandoned: { replay: 2 }, run: () => ++runs })
    const engine = await start({ definitions: [pay], frozen: true })
    const id = await engine.spawnId('pay')
    const seen: unknown[] = []
    for (let n = 0; n < 3; n += 1) {
      expect(await abandon(engine)).toBe(1)
      const { status, attempt } = await engine.run(id)
      seen.push([status, attempt])
      engine.advance(PAUSE_MS * 4 ** 3)
    }
    expect(seen).toEqual([
      ['pending', 1],
      ['pending', 2],
      ['uncertain', 3],
    ])
    expect(await abandon(engine)).toBe(0)
    expect(runs).toBe(0)
  })

  test('C055 more replays than the cap of losses are what was agreed: the run is not ended as lost', async () => {
    const pay = job({ name: 'pay', onAbandoned: { replay: 4 }, run: () => 'paid' })
    const engine = await start({ definitions: [pay], frozen: true })
    const id = await engine.spawnId('pay')
    for (let n = 0; n < 4; n += 1) {
      expect(await abandon(engine)).toBe(1)
      engine.advance(PAUSE_MS * 4 ** 5)
    }
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 5, losses: 4 })
  })

  test('an attempt that is asked to stop while it ends in uncertainty keeps both facts', async () => {
    let entered: (id: string) => Promise<void> = async () => {}
    const pay = job({
      name: 'pay',
      run: async ({ run, uncertain }) => {
        await entered(run.id)
        return uncertain({ reason: 'no answer' })
      },
    })
    const engine = await start({ definitions: [pay] })
    const id = await engine.spawnId('pay')
    entered = async () => {
      await engine.store.cancel(id, { tenant: 'default', by: 'ops' })
    }
    await engine.tick()
    const run = await engine.run(id)
    expect(run).toMatchObject({ status: 'uncertain', error: { code: 'uncertain' } })
    expect(run.cancelRequestedAt).not.toBeNull()
  })
})
