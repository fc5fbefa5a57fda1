import { expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, finishes, flush, moves } from './outcomes.ts'

const LEASE_MS = 1_000
const HOUR = 3_600_000

forEachVersion('trap 13: steps that kill their host', (version) => {
  const { start } = sharedEngines(version)
  const startTasks = () => start({ definitions: TRAP_DEFINITIONS, version, frozen: true })

  test('C259 trap 13: after a loss among others each of them is claimed alone, and none is ended for it', async () => {
    const engine = await startTasks()
    for (let index = 0; index < 3; index += 1) await engine.spawnId('task', index)
    expect(await claim(engine, { leaseMs: LEASE_MS })).toHaveLength(3)
    await loseAll(engine)
    const fresh = await engine.spawnId('task', 'fresh')
    for (let alone = 0; alone < 3; alone += 1) {
      const run = await claimOne(engine)
      expect(run).toMatchObject({ losses: 1, lonelyLosses: 0 })
      expect(run.id).not.toBe(fresh)
      await flush(engine, [finishes(run)])
    }
    expect(await claimOne(engine)).toMatchObject({ id: fresh, losses: 0 })
  })

  test('C259 trap 13: nobody takes a run with a loss beside others', async () => {
    const engine = await startTasks()
    const lossy = await engine.spawnId('task', 'lossy')
    await claim(engine, { leaseMs: LEASE_MS, alone: false })
    await loseAll(engine)
    const fresh = await engine.spawnId('task', 'fresh')
    expect((await claim(engine, { alone: false })).map((run) => run.id)).toEqual([fresh])
    expect((await claim(engine)).map((run) => run.id)).toEqual([lossy])
  })

  test('C043 C259 trap 13: a step that kills its host three times while it is alone ends as lost, with an error that says so', async () => {
    const engine = await startTasks()
    const id = await engine.spawnId('task')
    for (let losses = 1; losses <= 3; losses += 1) {
      expect(await claim(engine, { leaseMs: LEASE_MS })).toHaveLength(1)
      await loseAll(engine)
      engine.advance(HOUR)
    }
    expect(await engine.tick()).toMatchObject({ failed: 1, completed: 0 })
    const run = await engine.run(id)
    expect(run).toMatchObject({ status: 'failed', losses: 3, error: { code: 'lost', cause: 'lost' } })
    expect(run.error?.message).toContain('3 times')
  })

  test('trap 13: a step that kills its host among others, then alone, is given one loss free', async () => {
    const engine = await startTasks()
    const id = await engine.spawnId('task')
    await engine.spawnId('task')
    await claim(engine, { leaseMs: LEASE_MS })
    await loseAll(engine)
    for (let losses = 1; losses <= 2; losses += 1) {
      const run = (await claim(engine, { leaseMs: LEASE_MS }))[0]!
      if (run.id !== id) await flush(engine, [finishes(run)])
      else await loseAll(engine)
      engine.advance(HOUR)
    }
    expect((await engine.run(id)).status).toBe('pending')
    expect(await engine.tick()).toMatchObject({ completed: expect.any(Number), failed: 0 })
  })

  test('trap 13: progress forgives the losses of the visit before', async () => {
    const engine = await startTasks()
    const id = await engine.spawnId('flow')
    await claim(engine, { leaseMs: LEASE_MS, alone: false })
    await loseAll(engine)
    const run = await claimOne(engine)
    expect(run.losses).toBe(1)
    await flush(engine, [moves(run, 'middle')])
    expect(await claimOne(engine, { alone: false })).toMatchObject({ id, losses: 0, lonelyLosses: 0 })
  })

  test('C042 trap 13: a loss counts an attempt and is told from a failure', async () => {
    const engine = await startTasks()
    const id = await engine.spawnId('task')
    await claim(engine, { leaseMs: LEASE_MS, alone: false })
    await loseAll(engine)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 2, losses: 1 })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['lost', 'done'])
  })
})

/** The host of everything in hand is gone: its leases lapse, and a pass finds it out. */
async function loseAll(engine: TestEngine): Promise<void> {
  engine.advance(LEASE_MS + 1)
  const { rescued } = await engine.store.claim({
    claimId: crypto.randomUUID(),
    definitions: [],
    queues: null,
    limit: 1,
    maxBytes: 1,
    leaseMs: LEASE_MS,
    laneCursor: 0,
    alone: false,
    besides: [],
    peek: true,
  })
  expect(rescued).toBeGreaterThan(0)
}
