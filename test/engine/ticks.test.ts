import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { cron } from '../../src/core/trigger.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { forEachVersion } from '../support/database.ts'
import { moment, sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { echo, hooked } from './definitions.ts'

const HOUR_MS = 3_600_000
const MINUTE_MS = 60_000

/** Statements of a claim, which ride along with a flush. */
const CLAIMING = new Set(['rescue_lost', 'drop_lapsed_claims', 'promote_due', 'claim_runs', 'end_solitude', 'peek_next'])

/** A tick that finds nothing to keep up: the engine has declared what it declares, and upkeep is not due. */
async function settled(engine: TestEngine): Promise<TestEngine> {
  await engine.tick()
  return engine
}

async function requestsOf(engine: TestEngine, work: () => Promise<unknown>): Promise<number> {
  const before = engine.database.requests
  await work()
  return engine.database.requests - before
}

forEachVersion('requests', (version) => {
  const { start } = sharedEngines(version)

  test('C226 an empty tick is one request', async () => {
    const engine = await settled(await start({ definitions: [echo] }))
    expect(await requestsOf(engine, () => engine.tick())).toBe(1)
    expect(await engine.tick()).toMatchObject({ requests: 1, claimed: 0 })
  })

  test('C226 spawning, signalling and reading are one request each, also where a lane is new', async () => {
    const engine = await start({ definitions: [echo] })
    expect(await requestsOf(engine, () => engine.spawn('echo', 1))).toBe(1)
    const id = await engine.spawnId('echo', 1, { key: 'k' })
    expect(await requestsOf(engine, () => engine.spawn('echo', 1, { key: 'k' }))).toBe(1)
    expect(await requestsOf(engine, () => engine.spawn('echo', 1, { receipt: { key: 'r', fingerprint: 'f' } }))).toBe(1)
    expect(await requestsOf(engine, () => engine.signal({ id }, 'a'))).toBe(1)
    expect(await requestsOf(engine, () => engine.signal({ key: 'k' }, 'a'))).toBe(1)
    expect(await requestsOf(engine, () => engine.run(id))).toBe(1)
  })

  test.each([
    [1, 1],
    [7, 1],
    [10, 3],
    [99, 33],
    [100, 10],
    [100, 100],
    [101, 100],
    [120, 50],
    [1_000, 100],
  ])('C226 C260 draining %i one-step runs in batches of %i is at most their quotient and two requests', async (count, batch) => {
    const engine = await settled(await start({ definitions: [echo], budget: { batch, concurrency: batch } }))
    await engine.spawnMany(
      'echo',
      Array.from({ length: count }, (_, n) => n),
    )
    const report = await engine.tick()
    expect(report).toMatchObject({ claimed: count, completed: count, more: false })
    expect(report.requests).toBeLessThanOrEqual(Math.ceil(count / batch) + 2)
  })

  test('C227 fifty outcomes are committed by at most five statements, as many as five outcomes', async () => {
    const engine = await settled(await start({ definitions: [echo], budget: { batch: 50, concurrency: 50 } }))
    const statementsFor = async (count: number) => {
      const from = engine.sent.length
      await engine.spawnMany(
        'echo',
        Array.from({ length: count }, (_, n) => n),
      )
      await engine.tick()
      const flushes = engine.sent.slice(from).filter((names) => names.includes('apply_outcomes'))
      expect(flushes).toHaveLength(1)
      return flushes[0]?.filter((name) => !CLAIMING.has(name)).length
    }
    expect(await statementsFor(50)).toBeLessThanOrEqual(5)
    expect(await statementsFor(50)).toBe(await statementsFor(5))
  })
})

forEachVersion('ticks', (version) => {
  const { start } = sharedEngines(version)

  test('C246 a definition whose timeout does not fit the time left is not claimed', async () => {
    const slow = job({ name: 'slow', timeout: '1m', run: () => null })
    const quick = job({ name: 'quick', timeout: '1s', run: () => null })
    const engine = await start({ definitions: [slow, quick], budget: { wallMs: 10_000 } })
    const [first, second] = [await engine.spawnId('slow'), await engine.spawnId('quick')]
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
    expect((await engine.run(first)).status).toBe('pending')
    expect((await engine.run(second)).status).toBe('completed')
  })

  test('C246 a tick whose time is over claims no more and leaves nothing in its hands', async () => {
    let now = 0
    const work = job({
      name: 'work',
      timeout: '1s',
      run: () => {
        now += 3_000
      },
    })
    const engine = await start({ definitions: [work], nowMs: () => now, budget: { wallMs: 10_000, batch: 1, concurrency: 1 } })
    const ids = await engine.spawnMany('work', Array.from({ length: 10 }))
    const report = await engine.tick()
    expect(report).toMatchObject({ claimed: 3, completed: 3, more: true })
    expect(await engine.sql(CLAIMS, [engine.environment])).toEqual([])
    const left = await Promise.all(ids.map((id) => engine.run(id)))
    expect(left.filter(({ status, attempt }) => status === 'pending' && attempt === 0)).toHaveLength(7)
    now = 0
    expect(await engine.tick()).toMatchObject({ completed: 3 })
  })

  test('C246 a tick stops at the requests it may send', async () => {
    const engine = await start({ definitions: [echo], budget: { requests: 20, batch: 1, concurrency: 1 } })
    await engine.spawnMany('echo', Array.from({ length: 100 }))
    const before = engine.database.requests
    const report = await engine.tick()
    expect(engine.database.requests - before).toBeLessThanOrEqual(20)
    expect(report.completed).toBeGreaterThan(10)
    expect(report.more).toBe(true)
  })

  test('C246 the next tick of a process that lives on has as many again, one of the same invocation has what is left', async () => {
    const engine = await start({ definitions: [echo], budget: { requests: 20, batch: 1, concurrency: 1 } })
    await engine.spawnMany('echo', Array.from({ length: 100 }))
    for (let n = 1; n <= 3; n += 1) expect((await engine.tick()).completed).toBeGreaterThan(10)
    const shared = await start({
      beside: engine,
      definitions: [echo],
      budget: { requests: 20, batch: 1 },
      sharesInvocation: true,
    })
    const first = await shared.tick()
    expect(first.completed).toBeGreaterThan(10)
    expect((await shared.tick()).completed).toBe(0)
    expect(shared.database.requests).toBeLessThanOrEqual(20)
  })

  test('C050 a stopped ticker finishes what runs, claims nothing more, and what it left is free at once', async () => {
    const [entered, mayEnd] = [moment(), moment()]
    const work = hooked('work', async () => {
      entered.happen()
      await mayEnd.promise
    })
    const engine = await start({ definitions: [work], budget: { batch: 2, concurrency: 2 } })
    await engine.spawnMany('work', [{ n: 0 }, { n: 1 }, { n: 2 }])
    const tick = engine.tick()
    await entered.promise
    const stopping = engine.ticker.stop()
    mayEnd.happen()
    expect(await tick).toMatchObject({ claimed: 2, completed: 2 })
    await stopping
    const next = await start({ definitions: [work], beside: engine })
    expect(await next.tick()).toMatchObject({ completed: 1, rescued: 0 })
  })

  test('C247 three ticks of one ticker at once start no run twice', async () => {
    const starts: number[] = []
    const counted = hooked('counted', ({ n }) => void starts.push(n))
    const engine = await start({ definitions: [counted], budget: { batch: 10, concurrency: 10 } })
    await engine.spawnMany(
      'counted',
      Array.from({ length: 100 }, (_, n) => ({ n })),
    )
    const reports = await Promise.all([engine.tick(), engine.tick(), engine.tick()])
    expect(reports.reduce((sum, { completed }) => sum + completed, 0)).toBe(100)
    expect(reports.every(({ stale }) => stale === 0)).toBe(true)
    expect(new Set(starts).size).toBe(100)
    expect(starts).toHaveLength(100)
  })

  test('C250 a kick after a spawn runs it without waiting for a tick', async () => {
    const engine = await start({ definitions: [echo] })
    const id = await engine.spawnId('echo', 1)
    expect(await engine.ticker.kick('spawn')).toMatchObject({ completed: 1 })
    expect((await engine.run(id)).status).toBe('completed')
  })

  test('C250 a thousand kicks while a pass is on are one pass', async () => {
    const [entered, mayEnd] = [moment(), moment()]
    const work = hooked('work', async ({ n }) => {
      if (n > 0) return
      entered.happen()
      await mayEnd.promise
    })
    const engine = await settled(await start({ definitions: [work] }))
    await engine.spawnMany('work', [{ n: 0 }])
    const before = engine.database.requests
    const first = engine.ticker.kick('first')
    await entered.promise
    await engine.spawnMany('work', [{ n: 1 }, { n: 2 }])
    const kicks = Array.from({ length: 1_000 }, () => engine.ticker.kick('spawn'))
    mayEnd.happen()
    const reports = await Promise.all([first, ...kicks])
    expect(new Set(reports).size).toBe(1)
    expect(reports[0]).toMatchObject({ completed: 3, more: false })
    expect(engine.database.requests - before).toBeLessThanOrEqual(6)
  })
})

/** Everything that time alone moves: a wait with a timeout, a retry, a schedule, a dead host's run, retention. */
const waits = machine({
  name: 'waits',
  state: z.object({}),
  output: z.boolean(),
  signals: { never: z.null() },
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('never', { goto: 'end', timeout: '10m' }),
    end: ({ timedOut, done }) => done(timedOut),
  },
})
const flaky = job({
  name: 'flaky',
  retry: { maxAttempts: 3, backoff: { kind: 'fixed', base: '5m' } },
  run: ({ attempt }) => {
    if (attempt < 3) throw new Error('not yet')
    return attempt
  },
})
const hourly = job({ name: 'hourly', retention: '3h', triggers: [cron('0 * * * *')], run: () => 'fired' })
const timely = [waits, flaky, hourly, echo]

forEachVersion('time', (version) => {
  const { start } = sharedEngines(version)

  test('C245 with no process between ticks everything goes on: runs, waits, retries, dead claims, schedules, retention', async () => {
    const first = await start({ definitions: timely, frozen: true })
    const ids = await Promise.all([first.spawnId('waits', {}), first.spawnId('flaky')])
    const abandoned = await first.spawnId('echo', 'rescued')
    await first.store.claim({
      claimId: crypto.randomUUID(),
      definitions: [{ name: 'echo', version: 1 }],
      queues: null,
      limit: 1,
      maxBytes: 1_000_000,
      leaseMs: 30_000,
      laneCursor: 0,
      alone: true,
      besides: [],
      peek: true,
    })
    const total = { fired: 0, pruned: 0, rescued: 0 }
    // each tick is another process, two minutes after the one before
    for (let at = 0; at <= 9 * HOUR_MS; at += at < HOUR_MS ? 2 * MINUTE_MS : 30 * MINUTE_MS) {
      const engine = await start({ definitions: timely, beside: first, frozen: true, connections: 1 })
      engine.advance(first.clock() - engine.clock() + at)
      const report = await engine.tick()
      total.fired += report.fired
      total.pruned += report.pruned
      total.rescued += report.rescued
      await engine.close()
    }
    const [waited, retried] = await Promise.all(ids.map((id) => first.run(id)))
    expect(waited).toMatchObject({ status: 'completed', result: true })
    expect(retried).toMatchObject({ status: 'completed', result: 3 })
    expect(await first.run(abandoned)).toMatchObject({ status: 'completed', result: 'rescued', losses: 1 })
    expect(total.rescued).toBe(1)
    expect(total.fired).toBe(9)
    expect(total.pruned).toBeGreaterThanOrEqual(4)
  })

  test('C248 after half an hour without a tick, all that was due is done, late and once', async () => {
    const every5 = job({ name: 'every-5', triggers: [cron('*/5 * * * *')], run: () => 'fired' })
    const definitions = [waits, flaky, every5]
    const engine = await start({ definitions, frozen: true })
    const [waiting, failing] = [await engine.spawnId('waits', {}), await engine.spawnId('flaky')]
    await engine.tick()
    engine.advance(30 * MINUTE_MS)
    const late = await engine.tick()
    expect(late).toMatchObject({ fired: 1, retried: 1, more: false })
    expect(await engine.run(waiting)).toMatchObject({ status: 'completed', result: true })
    expect((await engine.history(waiting)).map(({ outcome }) => outcome)).toEqual(['wait', 'done'])
    engine.advance(5 * MINUTE_MS)
    expect(await engine.tick()).toMatchObject({ fired: 1 })
    expect(await engine.run(failing)).toMatchObject({ status: 'completed', attempt: 3 })
    const firings = await engine.sql(FIRINGS, [engine.environment])
    expect(firings).toHaveLength(2)
  })

  test('C201 C245 eight ticks that see the same slot due at once fire it once', async () => {
    const options = { definitions: timely, frozen: true, connections: 1 }
    const first = await start(options)
    const others = await Promise.all(Array.from({ length: 7 }, () => start({ ...options, beside: first })))
    const engines = [first, ...others]
    const at = first.clock() + HOUR_MS
    // each has declared its schedules and has nothing to keep up
    for (const engine of engines) await engine.tick()
    for (const engine of engines) engine.advance(at - engine.clock())
    const held = await holdRowLock(
      first.fresh.connectionString,
      `SELECT FROM pawl.schedules WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1) FOR UPDATE`,
      [first.environment],
    )
    // all have spawned, or been told that another has, when all wait to move the schedule on
    const ticks = Promise.all(engines.map((engine) => engine.tick()))
    await untilBlocked(first.fresh.connectionString, { queryMatches: /schedules/ }, engines.length)
    await held.release()
    expect((await ticks).reduce((sum, { fired }) => sum + fired, 0)).toBe(1)
    expect(await first.sql(FIRINGS, [first.environment])).toHaveLength(1)
  })
})

describe('a pass', () => {
  const { start } = sharedEngines()

  test.each([2, 4])('C032 C247 with %i exchanges in flight drains 1,000 runs, each started once', async (lanes) => {
    const starts: number[] = []
    const counted = hooked('counted', ({ n }) => void starts.push(n))
    const budget = { lanes, batch: 20, concurrency: 20 * lanes }
    const engine = await start({ definitions: [counted], budget, connections: lanes + 1 })
    await engine.spawnMany(
      'counted',
      Array.from({ length: 1_000 }, (_, n) => ({ n })),
    )
    expect(await engine.tick()).toMatchObject({ completed: 1_000, stale: 0, more: false })
    expect(starts).toHaveLength(1_000)
    expect(new Set(starts).size).toBe(1_000)
  })

  test('C246 whose database goes away rejects, and tells its handlers; what it held is taken up after its lease', async () => {
    const [entered, aborted] = [moment(), moment()]
    let calls = 0
    const work = job({
      name: 'work',
      input: z.object({ n: z.number() }),
      run: async ({ input, abortSignal }) => {
        calls += 1
        if (calls > 2) return input.n
        if (input.n === 1) {
          abortSignal.addEventListener('abort', () => aborted.happen())
          entered.happen()
          await aborted.promise
        } else {
          await entered.promise
          await proxy.faults.refuse()
        }
        return input.n
      },
    })
    const direct = await start({ definitions: [work] })
    const proxy = await startFaultProxy(direct.fresh.connectionString)
    const connect = () => nodePostgres({ connectionString: proxy.connectionString, max: 2 })
    const engine = await start({ definitions: [work], beside: direct, connect })
    const ids = await direct.spawnMany('work', [{ n: 0 }, { n: 1 }])
    await expect(engine.tick()).rejects.toMatchObject({ name: 'DatabaseError' })
    await aborted.promise
    direct.advance(31_000)
    expect(await direct.tick()).toMatchObject({ rescued: 2, completed: 2 })
    const runs = await Promise.all(ids.map((id) => direct.run(id)))
    expect(runs.map(({ status, attempt }) => [status, attempt])).toEqual([
      ['completed', 2],
      ['completed', 2],
    ])
    await proxy.close()
  })
})

describe('nextDueAt', () => {
  const { start } = sharedEngines()

  test('is the earliest of timers, leases and schedules', async () => {
    const engine = await start({ definitions: timely, frozen: true })
    const { nextDueAt } = await engine.tick()
    // the next full hour, by the schedule
    expect(nextDueAt).toBe(Math.floor(engine.clock() / HOUR_MS) * HOUR_MS + HOUR_MS)
    await engine.spawn('echo', 1, { delay: '1s' })
    expect((await engine.tick()).nextDueAt).toBe(Math.min(engine.clock() + 1_000, nextDueAt ?? 0))
  })
})

const CLAIMS = `
  SELECT id FROM pawl.claims WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)`
const FIRINGS = `
  SELECT origin FROM pawl.runs WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1) AND origin ? 'schedule'`
