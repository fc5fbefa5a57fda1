import { describe, expect, test } from 'vitest'
import { job } from '../../src/core/job.ts'
import { forEachVersion } from '../support/database.ts'
import { around, moment, sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claimOf, LEASE_MS, numbers, PAUSE_MS } from './claim-request.ts'
import { echo, hooked } from './definitions.ts'

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

  test('a connection plans its claims once, and keeps no setting of that', async () => {
    const engine = await start({ definitions: [echo], connections: 1 })
    for (let times = 0; times < 3; times += 1) await engine.store.claim(claimOf(engine, 10))
    const text = `SELECT p.custom_plans::int AS custom, current_setting('plan_cache_mode') AS mode
      FROM pg_prepared_statements p WHERE p.statement LIKE '%fitting AS MATERIALIZED%'`
    const [plans] = await engine.database.query({ name: '', text, params: [] })
    expect(plans).toMatchObject({ custom: 0, mode: 'auto' })
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

  test('C041 a lease of a quarter is not extended all the time: its beats are longer apart than a timer can be', async () => {
    const started = moment()
    const mayEnd = moment()
    const work = hooked('work', () => {
      started.happen()
      return mayEnd.promise
    })
    const engine = await start({ definitions: [work], leaseMs: 90 * 86_400_000 })
    await engine.spawnMany('work', numbers(1))
    const tick = engine.tick()
    await started.promise
    // some milliseconds: a timer that is too long goes off after one
    for (let turns = 0; turns < 30; turns += 1) await engine.sql('SELECT 1')
    mayEnd.happen()
    expect(await tick).toMatchObject({ completed: 1 })
    expect(engine.sent.flat().filter((name) => name === 'extend_claims')).toEqual([])
  })
})

/** When a claim's lease ends, epoch milliseconds. */
async function leaseOf(engine: TestEngine, claimId: string): Promise<number | undefined> {
  const [lease] = await engine.sql<number>(
    'SELECT round(extract(epoch FROM lease_until) * 1000)::float8 FROM pawl.claims WHERE id = $1',
    [claimId],
  )
  return lease
}
