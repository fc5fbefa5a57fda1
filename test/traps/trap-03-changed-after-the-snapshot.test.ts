import { expect, onTestFinished, test } from 'vitest'
import type { ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, startEngine, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, finishes, flush, moves } from './outcomes.ts'
import { pausable } from './pause.ts'
import { holdUntilEnd } from './session.ts'

forEachVersion('trap 3: a row that changed after the snapshot', (version) => {
  const { start } = sharedEngines(version)

  test('trap 3: an outcome that had to wait for the row is written all the same', async () => {
    const engine = await start({ definitions: TRAP_DEFINITIONS, version })
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const signalled = await holdUntilEnd(engine.fresh.connectionString, 'UPDATE pawl.runs SET signalled = true WHERE id = $1', [
      id,
    ])
    const flushed = flush(engine, [finishes(run)])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: signalled.pid })
    await signalled.release()
    expect((await flushed).outcomes).toEqual([{ kind: 'applied', status: 'completed' }])
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
  })

  test('trap 3: a pending run that changed after the snapshot of a claim is left to the next claim, in its place', async () => {
    const engine = await startOwn(version)
    const hold = await pausable(engine.fresh)
    const [first, second] = [await engine.spawnId('flow'), await engine.spawnId('flow')]
    const runs = await claimWhile(engine, hold, 'UPDATE pawl.runs SET signalled = true WHERE id = $1', [first])
    expect(runs.map((run) => run.id)).toEqual([second])
    expect(await engine.run(first)).toMatchObject({ status: 'pending', seq: 0 })
    expect(await engine.sql('SELECT run_id FROM pawl.ready')).toEqual([first])
    expect(await claimOne(engine)).toMatchObject({ id: first, seq: 1 })
  })

  test('trap 3: a run that was taken, run and put off after the snapshot of a claim is not taken before it is due', async () => {
    const engine = await startOwn(version)
    const hold = await pausable(engine.fresh)
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    await flush(engine, [moves(run, 'middle')])
    const putOff = `WITH gone AS (DELETE FROM pawl.ready WHERE run_id = $1)
      UPDATE pawl.runs SET seq = seq + 2, timer_at = now() + interval '1 hour', available_at = now() + interval '1 hour' WHERE id = $1`
    expect(await claimWhile(engine, hold, putOff, [id])).toEqual([])
    expect(await engine.run(id)).toMatchObject({ status: 'pending', seq: run.seq + 3 })
    expect(await claim(engine)).toEqual([])
  })

  test('trap 3: a gate is not taken for full because of a run that the claim could not take after all', async () => {
    const engine = await startOwn(version)
    const hold = await pausable(engine.fresh)
    await settleGate(engine)
    const first = await engine.spawnId('exclusive', 'key')
    const second = await engine.spawnId('exclusive', 'key')
    const cancelled = `WITH gone AS (DELETE FROM pawl.ready WHERE run_id = $1)
      UPDATE pawl.runs SET status = 'cancelled', finished_at = now(), seq = seq + 1 WHERE id = $1`
    expect(await claimWhile(engine, hold, cancelled, [first])).toMatchObject([{ id: second }])
    expect(await engine.sql('SELECT held FROM pawl.limit_counters WHERE environment_id = 1')).toEqual([1])
  })

  test('trap 3: a run that changed after the snapshot is not blocked on a gate in the state it no longer has', async () => {
    const engine = await startOwn(version)
    const hold = await pausable(engine.fresh)
    await settleGate(engine)
    await engine.spawnId('exclusive', 'key')
    const holder = await claimOne(engine)
    const second = await engine.spawnId('exclusive', 'key')
    const putOff = `WITH gone AS (DELETE FROM pawl.ready WHERE run_id = $1)
      UPDATE pawl.runs SET seq = seq + 2, timer_at = now() - interval '1 second' WHERE id = $1`
    expect(await claimWhile(engine, hold, putOff, [second])).toEqual([])
    expect(await engine.run(second)).toMatchObject({ blockedOn: null })
    await flush(engine, [finishes(holder)])
    expect(await claimOne(engine)).toMatchObject({ id: second })
  })
})

async function startOwn(version: 15 | 18): Promise<TestEngine> {
  const engine = await startEngine({ definitions: TRAP_DEFINITIONS, version })
  onTestFinished(engine.close)
  return engine
}

/** The counter of the key exists and is free. */
async function settleGate(engine: TestEngine): Promise<void> {
  await engine.spawnId('exclusive', 'key')
  for (;;) {
    const [run] = await claim(engine)
    if (run) return void (await flush(engine, [finishes(run)]))
  }
}

/** What a claim takes while that change is committed after its snapshot and before its locks. */
async function claimWhile(
  engine: TestEngine,
  hold: Awaited<ReturnType<typeof pausable>>,
  change: string,
  params: readonly unknown[],
): Promise<readonly ClaimedRun[]> {
  const pause = await hold()
  const claimed = claim(engine)
  await untilBlocked(engine.fresh.connectionString, { blockedBy: pause.pid })
  await engine.sql(change, params)
  await pause.release()
  return claimed
}
