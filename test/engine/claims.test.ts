import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import type { ClaimRequest } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { around, moment, sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { echo, hooked } from './definitions.ts'

const LEASE_MS = 30_000
/** How long a run pauses that was lost while it was alone in its host's hands. */
const PAUSE_MS = 2_000

function claimOf(engine: TestEngine, limit: number, changes: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    claimId: crypto.randomUUID(),
    definitions: engine.registry.definitions,
    queues: null,
    limit,
    maxBytes: 8_388_608,
    leaseMs: LEASE_MS,
    laneCursor: 0,
    alone: true,
    besides: [],
    peek: true,
    ...changes,
  }
}

const numbers = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))

forEachVersion('claiming', (version) => {
  const { start } = sharedEngines(version)

  test('C032 eight ticks at once over 200 runs start each exactly once', async () => {
    const starts = new Map<number, number>()
    const counted = hooked('counted', ({ n }) => void starts.set(n, (starts.get(n) ?? 0) + 1))
    const options = { definitions: [counted], connections: 1, budget: { batch: 10, concurrency: 10 } }
    const first = await start(options)
    const others = await Promise.all(Array.from({ length: 7 }, () => start({ ...options, beside: first })))
    const ids = await first.spawnMany('counted', numbers(200))
    const reports = await Promise.all([first, ...others].map((engine) => engine.tick()))
    expect(reports.reduce((sum, { completed }) => sum + completed, 0)).toBe(200)
    expect(reports.every(({ stale }) => stale === 0)).toBe(true)
    expect([...starts.values()].every((times) => times === 1)).toBe(true)
    expect(starts.size).toBe(200)
    for (const id of ids.slice(0, 5)) expect(await first.run(id)).toMatchObject({ status: 'completed', attempt: 1, seq: 2 })
  })

  test('C033 claims of 50 over 120 runs take 50, 50 and 20', async () => {
    const engine = await start({ definitions: [echo] })
    await engine.spawnMany('echo', numbers(120))
    const sizes: number[] = []
    for (let n = 0; n < 4; n += 1) sizes.push((await engine.store.claim(claimOf(engine, 50))).runs.length)
    expect(sizes).toEqual([50, 50, 20, 0])
  })

  test('C033 a tick with batches of 50 drains 120 runs', async () => {
    const engine = await start({ definitions: [echo], budget: { batch: 50, concurrency: 50 } })
    await engine.spawnMany('echo', numbers(120))
    expect(await engine.tick()).toMatchObject({ claimed: 120, completed: 120, more: false })
  })

  test('C037 a claim’s lease ends its length after the database’s now', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    engine.advance(86_400_000)
    const id = await engine.spawnId('echo', 1)
    const request = claimOf(engine, 10)
    const { runs } = await engine.store.claim(request)
    expect(runs.map((run) => run.id)).toEqual([id])
    expect(await leaseOf(engine, request.claimId)).toBe(engine.clock() + LEASE_MS)
    expect((await engine.run(id)).status).toBe('running')
  })

  test('a claim takes no more bytes than it may, but always one run', async () => {
    const engine = await start({ definitions: [echo] })
    const big = 'x'.repeat(10_000)
    for (let n = 0; n < 3; n += 1) await engine.spawnId('echo', big)
    const take = async (maxBytes: number) => (await engine.store.claim(claimOf(engine, 10, { maxBytes }))).runs.length
    expect(await take(100)).toBe(1)
    expect(await take(25_000)).toBe(2)
  })
})

forEachVersion('leases', (version) => {
  const { start } = sharedEngines(version)

  test('C038 a beat moves the lease on, so that a long step is not taken away', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    const id = await engine.spawnId('echo', 1)
    const request = claimOf(engine, 10)
    const { runs } = await engine.store.claim(request)
    for (let beat = 0; beat < 5; beat += 1) {
      engine.advance(20_000)
      expect(await engine.store.keep(runs, LEASE_MS)).toEqual({ lostClaims: [], lostRuns: [], cancelRequested: [] })
      expect(await leaseOf(engine, request.claimId)).toBe(engine.clock() + LEASE_MS)
      expect(await engine.tick()).toMatchObject({ rescued: 0, claimed: 0 })
    }
    expect((await engine.run(id)).status).toBe('running')
  })

  test('C040 a beat after the lease has ended says that the run is lost, and revives nothing', async () => {
    const engine = await start({ definitions: [echo], frozen: true })
    const id = await engine.spawnId('echo', 1)
    const request = claimOf(engine, 10)
    const { runs } = await engine.store.claim(request)
    engine.advance(LEASE_MS)
    expect((await engine.store.keep(runs, LEASE_MS)).lostClaims).toEqual([request.claimId])
    expect(await engine.tick()).toMatchObject({ rescued: 1 })
    engine.advance(PAUSE_MS)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect((await engine.store.keep(runs, LEASE_MS)).lostRuns).toEqual([id])
  })

  test('C040 a heartbeat refuses a length of nothing, and rejects with lost_ownership once the run is another’s', async () => {
    const errors: unknown[] = []
    const [entered, mayBeat] = [moment(), moment()]
    const beating = job({
      name: 'beating',
      run: async ({ heartbeat, attempt }) => {
        if (attempt > 1) return 'second'
        for (const length of [0, -1, '0s'] as const) await heartbeat(length as 0).catch((error) => errors.push(error.code))
        await heartbeat()
        entered.happen()
        await mayBeat.promise
        await heartbeat().catch((error) => errors.push(error.code))
        return 'first'
      },
    })
    const slow = await start({ definitions: [beating] })
    const rescuer = await start({ definitions: [beating], beside: slow })
    const id = await slow.spawnId('beating')
    const tick = slow.tick()
    await entered.promise
    rescuer.advance(LEASE_MS + 1_000)
    expect(await rescuer.tick()).toMatchObject({ rescued: 1 })
    rescuer.advance(PAUSE_MS)
    expect(await rescuer.tick()).toMatchObject({ completed: 1 })
    mayBeat.happen()
    expect(await tick).toMatchObject({ stale: 1, completed: 0 })
    expect(errors).toEqual(['invalid_request', 'invalid_request', 'invalid_request', 'lost_ownership'])
    expect((await slow.run(id)).result).toBe('second')
  })

  test('C038 a heartbeat may ask for longer, and later beats do not shorten it', async () => {
    const [entered, mayEnd] = [moment(), moment()]
    const patient = job({
      name: 'patient',
      run: async ({ heartbeat }) => {
        await heartbeat('10m')
        await heartbeat()
        entered.happen()
        await mayEnd.promise
      },
    })
    const engine = await start({ definitions: [patient], frozen: true })
    await engine.spawnId('patient')
    const tick = engine.tick()
    await entered.promise
    const rescuer = await start({ definitions: [patient], beside: engine, frozen: true })
    rescuer.advance(9 * 60_000)
    expect(await rescuer.tick()).toMatchObject({ rescued: 0, claimed: 0 })
    mayEnd.happen()
    expect(await tick).toMatchObject({ completed: 1 })
  })

  test('C041 leases are extended while a flush of eight outcomes is held up: two long handlers keep their runs', async () => {
    const [started, mayReturn, mayEnd, beats] = [moment(), moment(), moment(), moment()]
    let running = 0
    let extended = 0
    const work = hooked('work', async ({ n }) => {
      running += 1
      if (running === 10) started.happen()
      await (n < 8 ? mayReturn.promise : mayEnd.promise)
    })
    const leaseMs = 1_500
    const engine = await start({
      definitions: [work],
      leaseMs,
      wrap: (database) =>
        around(database, async (statements, send) => {
          const rows = await send()
          if (statements[0]?.name === 'extend_claims' && ++extended === 5) beats.happen()
          return rows
        }),
    })
    const ids = await engine.spawnMany('work', numbers(10))
    const tick = engine.tick()
    await started.promise
    const held = await holdRowLock(engine.fresh.connectionString, 'SELECT FROM pawl.runs WHERE id = $1 FOR UPDATE', [ids[0]])
    mayReturn.happen()
    await untilBlocked(engine.fresh.connectionString, { blockedBy: held.pid })
    await beats.promise
    await held.release()
    mayEnd.happen()
    expect(await tick).toMatchObject({ completed: 10, stale: 0, rescued: 0 })
  })
})

describe('a beat', () => {
  const { start } = sharedEngines()

  test('C041 a beat that is answered before the flush which ended some of its runs takes nothing away from the others', async () => {
    const [mayEnd, beaten] = [moment(), moment()]
    let committed = false
    const work = hooked('work', ({ n }) => (n < 8 ? undefined : mayEnd.promise))
    const engine = await start({
      definitions: [work],
      leaseMs: 600,
      wrap: (database) =>
        around(database, async (statements, send) => {
          const rows = await send()
          if (statements[0]?.name === 'extend_claims' && committed) beaten.happen()
          if (statements.some(({ name }) => name === 'apply_outcomes') && !committed) {
            committed = true
            await beaten.promise
            // the beat's answer is dealt with first
            await new Promise((resolve) => setImmediate(resolve))
          }
          return rows
        }),
    })
    await engine.spawnMany('work', numbers(10))
    const tick = engine.tick()
    await beaten.promise
    mayEnd.happen()
    expect(await tick).toMatchObject({ completed: 10, stale: 0 })
  })
})

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

describe('C059 C259', () => {
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

/** When a claim's lease ends, epoch milliseconds. */
async function leaseOf(engine: TestEngine, claimId: string): Promise<number | undefined> {
  const [lease] = await engine.sql<number>(
    'SELECT round(extract(epoch FROM lease_until) * 1000)::float8 FROM pawl.claims WHERE id = $1',
    [claimId],
  )
  return lease
}
