import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { around, moment, sharedEngines } from '../support/engine.ts'
import { claimOf, LEASE_MS, numbers, PAUSE_MS } from './claim-request.ts'
import { echo } from './definitions.ts'

forEachVersion('rescue', (version) => {
  const { start } = sharedEngines(version)

  test('C042 a run whose claimer died is taken up after its lease, with one attempt more', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    const id = await engine.spawnId('echo', 'again')
    await engine.store.claim(claimOf(engine, 10, { alone: false }))
    expect(await engine.tick()).toMatchObject({ claimed: 0, rescued: 0, nextDueAt: engine.clock() + LEASE_MS })
    engine.advance(LEASE_MS)
    expect(await engine.tick()).toMatchObject({ claimed: 1, rescued: 1, completed: 1 })
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 2, losses: 1, result: 'again' })
    expect((await engine.history(id)).map(({ outcome, attempt }) => [outcome, attempt])).toEqual([
      ['lost', 1],
      ['done', 2],
    ])
    expect(await engine.sql(CLAIMS, [engine.environment])).toEqual([])
  })

  test('C044 one pass over 10,000 lapsed runs takes back 500 of them, oldest lease first', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    await engine.spawnMany('echo', numbers(1_000))
    for (let claimed = 0; claimed < 1_000; ) claimed += (await engine.store.claim(claimOf(engine, 500))).runs.length
    await engine.sql(SPLIT_CLAIMS, [engine.environment])
    await engine.sql(MULTIPLY_CLAIMED, [engine.environment])
    expect(await engine.sql(CLAIMS, [engine.environment])).toHaveLength(10_000)
    engine.advance(LEASE_MS + 60_000)
    const unknown = claimOf(engine, 10, { definitions: [{ name: 'another', version: 1 }] })
    expect(await engine.store.claim(unknown)).toMatchObject({ rescued: 500, peek: { more: true } })
    expect(await engine.sql(CLAIMS, [engine.environment])).toHaveLength(9_500)
    expect((await engine.store.claim(unknown)).rescued).toBe(500)
  })

  test('C044 one claim of 1,200 lapsed runs is taken back 500 at a time, and goes with the last of them', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    await engine.spawnMany('echo', numbers(1_200))
    for (let claimed = 0; claimed < 1_200; ) claimed += (await engine.store.claim(claimOf(engine, 400))).runs.length
    await engine.sql(MERGE_CLAIMS, [engine.environment])
    expect(await engine.sql(CLAIMS, [engine.environment])).toHaveLength(1)
    engine.advance(LEASE_MS)
    const unknown = claimOf(engine, 10, { definitions: [{ name: 'another', version: 1 }] })
    const rescued: number[] = []
    for (let pass = 0; pass < 3; pass += 1) rescued.push((await engine.store.claim(unknown)).rescued)
    expect(rescued).toEqual([500, 500, 200])
    expect(await engine.sql(CLAIMS, [engine.environment])).toEqual([])
  })

  test('C045 C145 what an old owner finishes after its run was taken back changes nothing and is counted as stale', async () => {
    const [entered, mayEnd] = [moment(), moment()]
    let first = true
    const child = job({
      name: 'child',
      run: async () => {
        if (!first) return 'new owner'
        first = false
        entered.happen()
        await mayEnd.promise
        return 'old owner'
      },
    })
    const parent = machine({
      name: 'parent',
      state: z.object({}),
      output: z.array(z.string()),
      initial: 'split',
      steps: {
        split: ({ join }) => join([child.with(null), child.with(null, { delay: '1 day' })], { goto: 'end' }),
        end: ({ children, done }) => done(children().map((one) => String(one.status === 'completed' ? one.result : one.status))),
      },
    })
    const old = await start({ definitions: [parent, child] })
    const id = await old.spawnId('parent', {})
    const tick = old.tick()
    await entered.promise
    const next = await start({ definitions: [parent, child], beside: old })
    next.advance(LEASE_MS + 1_000)
    expect(await next.tick()).toMatchObject({ rescued: 1 })
    next.advance(PAUSE_MS)
    expect(await next.tick()).toMatchObject({ completed: 1 })
    mayEnd.happen()
    expect(await tick).toMatchObject({ stale: 1, completed: 0 })
    expect(await next.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    next.advance(86_400_000)
    await next.tick()
    expect((await next.run(id)).result).toEqual(['new owner', 'new owner'])
  })

  test('C046 an outcome after the lease has ended is refused although nobody has swept', async () => {
    const [entered, mayEnd] = [moment(), moment()]
    let calls = 0
    const slow = job({
      name: 'slow',
      run: async () => {
        calls += 1
        if (calls > 1) return calls
        entered.happen()
        await mayEnd.promise
        return calls
      },
    })
    const engine = await start({ definitions: [slow], frozen: true })
    const id = await engine.spawnId('slow')
    const late = await start({ definitions: [slow], beside: engine, frozen: true })
    const tick = late.tick()
    await entered.promise
    late.advance(LEASE_MS + 1_000)
    // it does not look again once its outcome was refused
    const stopped = late.ticker.stop()
    mayEnd.happen()
    await stopped
    expect((await tick).stale).toBe(1)
    expect(await engine.run(id)).toMatchObject({ status: 'running', result: null })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual([])
    engine.advance(LEASE_MS + 1_000)
    expect(await engine.tick()).toMatchObject({ rescued: 1 })
    engine.advance(PAUSE_MS)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect((await engine.run(id)).result).toBe(2)
  })

  test('a pass that began with a run that was lost goes on to the others once that run has gone on', async () => {
    const twoSteps = machine({
      name: 'two-steps',
      state: z.object({}),
      initial: 'first',
      steps: { first: ({ next }) => next('second'), second: ({ done }) => done(undefined) },
    })
    const engine = await start({ definitions: [twoSteps, echo], frozen: true })
    await engine.spawnId('two-steps', {})
    await engine.store.claim(claimOf(engine, 10, { alone: false }))
    await engine.spawnMany('echo', numbers(5))
    engine.advance(LEASE_MS)
    expect(await engine.tick()).toMatchObject({ rescued: 1, completed: 6, more: false })
  })
})

describe('a run that loses its host', () => {
  const { start } = sharedEngines()

  test('C043 C259 a run that kills its host every time ends as lost after three losses, not with an error of its handler', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    const id = await engine.spawnId('echo', 1)
    for (let loss = 1; loss <= 3; loss += 1) {
      expect((await engine.store.claim(claimOf(engine, 10))).runs).toHaveLength(1)
      engine.advance(LEASE_MS)
      // somebody else's pass takes it back, without running it
      await engine.store.claim(claimOf(engine, 10, { definitions: [{ name: 'another', version: 1 }] }))
      engine.advance(600_000)
    }
    expect(await engine.tick()).toMatchObject({ claimed: 1, failed: 1, completed: 0 })
    const run = await engine.run(id)
    expect(run).toMatchObject({ status: 'failed', losses: 3, error: { code: 'lost', cause: 'lost' } })
    expect(run.error?.message).toContain('went away 3 times')
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['lost', 'lost', 'lost', 'fail'])
  })

  test('C043 runs that share a host with a killer lose it once at most: afterwards the killer is claimed alone', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    const ids = await engine.spawnMany('echo', numbers(5))
    await engine.store.claim(claimOf(engine, 10))
    engine.advance(LEASE_MS)
    for (let n = 0; n < 5; n += 1) {
      const { runs } = await engine.store.claim(claimOf(engine, 10))
      expect(runs).toHaveLength(1)
      expect(runs[0]?.losses).toBe(1)
    }
    expect(new Set(ids).size).toBe(5)
  })

  test('C059 a run that was claimed and not started goes back at once, and no attempt is counted', async () => {
    const claiming = moment()
    const mayAnswer = moment()
    const engine = await start({
      definitions: [echo],
      wrap: (database) =>
        around(database, async (statements, send) => {
          const rows = await send()
          if (statements.some(({ name }) => name === 'claim_runs') && rows.flat().some((row) => 'max_attempts' in row)) {
            claiming.happen()
            await mayAnswer.promise
          }
          return rows
        }),
    })
    const id = await engine.spawnId('echo', 1)
    const tick = engine.tick()
    await claiming.promise
    const stopping = engine.ticker.stop()
    mayAnswer.happen()
    expect(await tick).toMatchObject({ claimed: 1, released: 1, completed: 0 })
    await stopping
    expect(await engine.run(id)).toMatchObject({ status: 'pending', attempt: 0, losses: 0 })
    const next = await start({ definitions: [echo], beside: engine })
    expect(await next.tick()).toMatchObject({ completed: 1, rescued: 0 })
    expect(await next.run(id)).toMatchObject({ status: 'completed', attempt: 1 })
  })
})

const CLAIMS = `
  SELECT id FROM pawl.claims WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`

/** One claim per run, with leases one after another. */
const SPLIT_CLAIMS = `
  WITH split AS (
    UPDATE pawl.runs r SET claimed_by = gen_random_uuid()
    WHERE r.status = 'running' AND r.environment_id = (SELECT id FROM pawl.environments WHERE name = $1)
    RETURNING r.id, r.claimed_by, r.environment_id
  ), gone AS (
    DELETE FROM pawl.claims WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1) RETURNING lease_until
  ), last AS (SELECT max(lease_until) AS lease_until FROM gone)
  INSERT INTO pawl.claims (id, environment_id, lease_until, alone, run_ids)
  SELECT s.claimed_by, s.environment_id, g.lease_until, false, ARRAY[s.id] FROM split s, last g`

/** All claims made one. */
const MERGE_CLAIMS = `
  WITH own AS (
    DELETE FROM pawl.claims c WHERE c.environment_id = (SELECT id FROM pawl.environments WHERE name = $1) RETURNING c.*
  ), merged AS (
    INSERT INTO pawl.claims (id, environment_id, lease_until, alone, run_ids)
    SELECT gen_random_uuid(), o.environment_id, max(o.lease_until), false, array_agg(x.run_id)
    FROM own o CROSS JOIN LATERAL unnest(o.run_ids) AS x(run_id) GROUP BY o.environment_id
    RETURNING id, run_ids
  )
  UPDATE pawl.runs r SET claimed_by = m.id FROM merged m WHERE r.id = ANY (m.run_ids)`

/** Nine more of each claimed run, each under a claim of its own. */
const MULTIPLY_CLAIMED = `
  WITH copies AS (
    INSERT INTO pawl.runs (id, created_at, available_at, updated_at, lane_id, environment_id, priority, max_attempts, payload_bytes,
      retention_seconds, failed_retention_seconds, status, claimed_by, seq, step)
    SELECT gen_random_uuid(), created_at, available_at, updated_at, lane_id, environment_id, priority, max_attempts, payload_bytes,
      retention_seconds, failed_retention_seconds, status, gen_random_uuid(), seq, step
    FROM pawl.runs, generate_series(1, 9)
    WHERE status = 'running' AND environment_id = (SELECT id FROM pawl.environments WHERE name = $1)
    RETURNING id, claimed_by, environment_id
  )
  INSERT INTO pawl.claims (id, environment_id, lease_until, alone, run_ids)
  SELECT c.claimed_by, c.environment_id, (SELECT max(lease_until) FROM pawl.claims WHERE environment_id = c.environment_id), false, ARRAY[c.id] FROM copies c`
