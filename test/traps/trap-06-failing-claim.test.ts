import { expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import { type Database, DatabaseError } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { forEachVersion } from '../support/database.ts'
import { around, type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, claimRequest, finishes, flush, goesOn } from './outcomes.ts'
import { holdUntilEnd, lockRun } from './session.ts'

forEachVersion('trap 6: a claim that fails', (version) => {
  test('trap 6: the outcomes with which a failing claim rode are sent again alone, at once', async () => {
    const engine = await startOwn(version)
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    await engine.spawnId('flow')
    await breakClaims(engine)
    expect(await flush(engine, [finishes(run)], claimRequest(engine))).toEqual({
      outcomes: [{ kind: 'applied', status: 'completed' }],
      claim: null,
    })
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
    expect(engine.sent.slice(-3).map((names) => names.includes('claim_gated_runs'))).toEqual([true, false, false])
  })

  test('trap 6: a tick whose next claims fail has committed what it ran, and runs no step twice', async () => {
    const effects: number[] = []
    let engine: TestEngine | undefined
    const effect = job({
      name: 'effect',
      input: z.number(),
      run: async ({ input }) => {
        effects.push(input)
        if (effects.length === 1) await breakClaims(engine!)
        return input
      },
    })
    engine = await startOwn(version, { definitions: [effect], budget: { batch: 1, concurrency: 1 } })
    const ids = [await engine.spawnId('effect', 1), await engine.spawnId('effect', 2)]
    await expect(engine.tick()).rejects.toMatchObject({ constraint: 'claims_are_broken' })
    expect(effects).toEqual([1])
    expect((await engine.run(ids[0]!)).status).toBe('completed')
    expect((await engine.run(ids[1]!)).status).toBe('pending')
    await engine.sql('ALTER TABLE pawl.claims DROP CONSTRAINT claims_are_broken')
    expect(await engine.tick()).toMatchObject({ completed: 1, rescued: 0 })
    expect(effects).toEqual([1, 2])
  })

  test('trap 6: when the reply is lost, outcomes and claim are both found, and nothing is written twice', async () => {
    const lost = { next: false }
    const engine = await startOwn(version, { wrap: (database) => loseReplies(database, lost, 'after') })
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const second = await engine.spawnId('flow')
    lost.next = true
    const reply = await flush(engine, [finishes(run)], claimRequest(engine))
    expect(reply.outcomes).toEqual([{ kind: 'applied', status: 'completed' }])
    expect(reply.claim?.runs.map((claimed) => claimed.id)).toEqual([second])
    expect((await engine.history(id)).map((entry) => entry.outcome)).toEqual(['done'])
  })

  test('trap 6: an outcome that is sent again while the first still waits for its row is applied, not stale', async () => {
    const lost = { next: false }
    const engine = await startOwn(version, { wrap: (database) => loseReplies(database, lost, 'before') })
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const locked = await lockRun(engine.fresh.connectionString, id)
    lost.next = true
    const flushed = flush(engine, [goesOn(run, 'middle')])
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /pawl/ }, 2)
    await locked.release()
    expect((await flushed).outcomes).toEqual([{ kind: 'applied', status: 'running' }])
    expect((await engine.history(id)).map((entry) => entry.outcome)).toEqual(['continue'])
  })

  test('trap 6: a signal that is sent again while the first still waits for its target is told as delivered, once', async () => {
    const lost = { next: false }
    const engine = await startOwn(version, { wrap: (database) => loseReplies(database, lost, 'before') })
    const id = await engine.spawnId('flow')
    const locked = await lockRun(engine.fresh.connectionString, id)
    lost.next = true
    const delivery = engine.signal({ id }, 'a', 1)
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /pawl/ }, 2)
    await locked.release()
    expect(await delivery).toMatchObject({ kind: 'delivered', runId: id })
    expect(await engine.sql('SELECT name FROM pawl.signals WHERE run_id = $1', [id])).toEqual(['a'])
  })

  test('trap 6: a spawn that is sent again while the first is still on its way is told as created, once', async () => {
    const lost = { next: false }
    const engine = await startOwn(version, { wrap: (database) => loseReplies(database, lost, 'before') })
    await engine.spawnId('task')
    const held = await holdUntilEnd(engine.fresh.connectionString, 'LOCK TABLE pawl.ready IN SHARE MODE')
    lost.next = true
    const spawned = engine.spawn('task', 'again')
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /pawl/ }, 2)
    await held.release()
    expect(await spawned).toMatchObject({ kind: 'created' })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE input = \'"again"\'')).toEqual([1])
  })

  test('trap 6: an outcome that was really overtaken is stale, also when it is sent again', async () => {
    const lost = { next: false }
    const engine = await startOwn(version, { wrap: (database) => loseReplies(database, lost, 'after'), leaseMs: 1_000 })
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine, { leaseMs: 1_000 })
    engine.advance(2_000)
    await claim(engine, { peek: true })
    lost.next = true
    expect((await flush(engine, [finishes(run)])).outcomes).toEqual([{ kind: 'stale' }])
    expect((await engine.run(id)).status).not.toBe('completed')
  })
})

async function startOwn(version: 15 | 18, options: Partial<EngineOptions> = {}): Promise<TestEngine> {
  const engine = await startEngine({ definitions: TRAP_DEFINITIONS, version, ...options })
  onTestFinished(engine.close)
  return engine
}

/** From now on no claim can be written. */
async function breakClaims(engine: TestEngine): Promise<void> {
  await engine.sql('ALTER TABLE pawl.claims ADD CONSTRAINT claims_are_broken CHECK (false) NOT VALID')
}

/** The reply of the next batch is lost: after it was committed, or while it is still on its way. */
function loseReplies(database: Database, lost: { next: boolean }, when: 'after' | 'before'): Database {
  return around(database, async (_, send) => {
    if (!lost.next) return send()
    lost.next = false
    const sent = send()
    if (when === 'after') await sent
    else sent.catch(() => {})
    throw new DatabaseError('The reply was lost.', { fate: 'lost' })
  })
}
