import { expect, onTestFinished, test } from 'vitest'
import type { Database } from '../../src/core/database.ts'
import type { ClaimedRun } from '../../src/core/store.ts'
import { statementsOfFlush } from '../../src/db/flush.ts'
import { claimRuns } from '../../src/db/statements/claim-runs.ts'
import { mintGates } from '../../src/db/statements/gates.ts'
import { forEachVersion } from '../support/database.ts'
import { around, sharedEngines, startEngine, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, claimRequest, contextOf, finishes, flush } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'
import { lockRun, openSession, type Session } from './session.ts'

forEachVersion('trap 5: exclusive keys', (version) => {
  const { start } = sharedEngines(version)
  const startGated = () => start({ definitions: TRAP_DEFINITIONS, version, connections: 16 })

  test('trap 5: a claim never waits for another that takes the same keys, new or known, in another order', async () => {
    const engine = await startGated()
    for (const key of ['b', 'a', 'a', 'b']) await engine.spawnId('exclusive', key)
    // as when they were idle for so long that upkeep dropped them
    await engine.sql('DELETE FROM pawl.limit_counters')
    const one = await openSession(engine.fresh.connectionString)
    const other = await openSession(engine.fresh.connectionString)
    await other.execute("SET LOCAL lock_timeout = '1ms'")
    const gates = (await engine.sql('SELECT DISTINCT gates[1] FROM pawl.runs')) as readonly string[]
    const making = mintGates('pawl', { environment: engine.environment, gates })
    expect(await claimed(one, engine, 2)).toEqual([])
    await one.run(making)
    // the keys are new: the other makes the same counters, and does not wait for the first to have made them
    await other.run(making)
    expect(await claimed(other, engine, 4)).toEqual([])
    await one.commit()
    await other.commit()
    expect(await untilClaimed(engine, 1)).toHaveLength(1)
    const again = await openSession(engine.fresh.connectionString)
    const last = await openSession(engine.fresh.connectionString)
    await last.execute("SET LOCAL lock_timeout = '1ms'")
    const held = await claimed(again, engine, 1)
    const rest = await claimed(last, engine, 4)
    expect(held.length + rest.length).toBeGreaterThan(0)
  })

  test('trap 5: a run whose counter another claim holds stays in the window: a skipped counter proves nothing', async () => {
    const engine = await startGated()
    await makeCounter(engine, 'key')
    await engine.spawnId('exclusive', 'key')
    const second = await engine.spawnId('exclusive', 'key')
    const session = await openSession(engine.fresh.connectionString)
    expect(await claimed(session, engine, 1)).toHaveLength(1)
    expect(await claim(engine)).toEqual([])
    expect(await engine.run(second)).toMatchObject({ status: 'pending', blockedOn: null })
    await session.abandon()
  })

  test('trap 5: a release that meets a claim which is blocking the next run waits for it, then hands over', async () => {
    const engine = await startGated()
    await makeCounter(engine, 'key')
    await engine.spawnId('exclusive', 'key')
    const holder = await claimOne(engine)
    const next = await engine.spawnId('exclusive', 'key')
    const session = await openSession(engine.fresh.connectionString)
    expect(await claimed(session, engine, 10)).toEqual([])
    const released = flush(engine, [finishes(holder)])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    await released
    expect(await engine.run(next)).toMatchObject({ status: 'pending', blockedOn: null })
    expect(await claimOne(engine)).toMatchObject({ id: next })
  })

  test('trap 5: a claim that meets a release skips the counter and leaves the run in the window', async () => {
    const engine = await startGated()
    await makeCounter(engine, 'key')
    await engine.spawnId('exclusive', 'key')
    const holder = await claimOne(engine)
    const next = await engine.spawnId('exclusive', 'key')
    const session = await openSession(engine.fresh.connectionString)
    await runFlush(session, engine, holder)
    expect(await claim(engine)).toEqual([])
    await session.commit()
    expect(await claimOne(engine)).toMatchObject({ id: next })
  })

  test('trap 5: a release commits at once although the row of the heir is locked, then waits for it and hands over', async () => {
    const engine = await startGated()
    const { holder, heir } = await blockOne(engine)
    const locked = await lockRun(engine.fresh.connectionString, heir)
    const released = flush(engine, [finishes(holder)])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: locked.pid })
    expect(await engine.run(holder.id)).toMatchObject({ status: 'completed' })
    await locked.release()
    await released
    expect(await claimOne(engine)).toMatchObject({ id: heir })
  })

  test('trap 5: an heir whose row was locked is handed the key by the upkeep when the releasing process is gone', async () => {
    const gone = (database: Database) =>
      around(database, (statements, send) =>
        statements[0]?.name === 'hand_over_late' ? Promise.reject(new Error('gone')) : send(),
      )
    const engine = await start({ definitions: TRAP_DEFINITIONS, version, wrap: gone })
    const { holder, heir } = await blockOne(engine)
    const locked = await lockRun(engine.fresh.connectionString, heir)
    await flush(engine, [finishes(holder)])
    await locked.release()
    expect(await claim(engine)).toEqual([])
    await engine.sql("UPDATE pawl.environments SET upkeep_at = '-infinity'")
    await engine.store.upkeep({ source: 'test', nextInMs: 60_000, minRetentionSeconds: 1_000_000 })
    expect(await claimOne(engine)).toMatchObject({ id: heir })
  })

  test('trap 5: an heir that changes after the snapshot of the handover is handed over all the same', async () => {
    const engine = await startEngine({ definitions: TRAP_DEFINITIONS, version })
    onTestFinished(engine.close)
    await makeCounter(engine, 'key')
    await engine.spawnId('exclusive', 'key')
    const holder = await claimOne(engine)
    const heir = await engine.spawnId('exclusive', 'key')
    expect(await claim(engine)).toEqual([])
    // the handover reads the policies between its snapshot and its locks
    await engine.sql('ALTER TABLE pawl.limits RENAME TO limits_table')
    await engine.sql(`CREATE FUNCTION pawl.pause() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
      $$ BEGIN IF current_query() LIKE '%heirs AS%' THEN PERFORM pg_advisory_xact_lock_shared(1); END IF; RETURN true; END $$`)
    await engine.sql('CREATE VIEW pawl.limits AS SELECT l.* FROM pawl.pause() AS p, pawl.limits_table l WHERE p')
    const pause = await openSession(engine.fresh.connectionString)
    await pause.execute('SELECT pg_advisory_xact_lock(1)')
    const released = flush(engine, [finishes(holder)])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: pause.pid })
    await engine.sql('UPDATE pawl.runs SET signalled = true WHERE id = $1', [heir])
    await pause.commit()
    await released
    expect(await engine.run(heir)).toMatchObject({ status: 'pending', blockedOn: null })
  })

  test(
    'C156 trap 5: eight claimers on twenty keys never run two of one key at once, leave nobody behind and never deadlock',
    async () => {
      const engine = await startGated()
      await inWaves(`trap 5 on PostgreSQL ${version}, runs of 20 keys by 8 claimers`, RACES, 200, (size) =>
        drainKeys(engine, size),
      )
      expect(engine.database.requests).toBe(engine.sent.length)
      expect(await engine.sql(BLOCKED, [engine.environment])).toEqual([0])
    },
    raceTimeout(RACES),
  )

  test(
    'trap 5: a key that is released while the next run is being blocked never loses its wake-up',
    async () => {
      const engine = await startGated()
      await makeCounter(engine, 'key')
      await engine.spawnId('exclusive', 'key')
      let holder = await claimOne(engine)
      await inWaves(`trap 5 on PostgreSQL ${version}, block and release`, RACES, 1, async () => {
        await engine.spawnId('exclusive', 'key')
        const [, claimed] = await Promise.all([flush(engine, [finishes(holder)]), claim(engine)])
        holder = claimed[0] ?? (await claimOne(engine))
      })
      await flush(engine, [finishes(holder)])
    },
    raceTimeout(RACES),
  )
})

/** What is left, for the failure. */
const STUCK = `SELECT json_build_object('status', r.status, 'blocked_on', r.blocked_on, 'in_window', EXISTS (SELECT FROM pawl.ready y WHERE y.run_id = r.id), 'held', c.held, 'seq', r.seq)
  FROM pawl.runs r LEFT JOIN pawl.limit_counters c ON c.gate = r.gates[1] WHERE r.finished_at IS NULL`

/** Nothing was found for long: right while a reply with claimed runs is on its way, or one is in the window; wrong when all are blocked. */
async function refuseStuck(engine: TestEngine): Promise<0> {
  const left = (await engine.sql(STUCK)) as readonly { readonly status: string; readonly in_window: boolean }[]
  if (left.length === 0 || left.some(({ status, in_window: inWindow }) => status === 'running' || inWindow)) return 0
  throw new Error(`${left.length} runs are stuck: ${JSON.stringify(left)}`)
}

const BLOCKED = `SELECT count(*)::int FROM pawl.runs r JOIN pawl.environments e ON e.id = r.environment_id WHERE e.name = $1 AND r.blocked_on IS NOT NULL`

const RACES = raceCount(400)

function claimStatement(engine: TestEngine, limit: number) {
  return claimRuns('pawl', {
    ...claimRequest(engine, { limit }),
    now: null,
    environment: engine.environment,
    definitions: engine.registry.definitions.map((definition) => definition.name),
    versions: engine.registry.definitions.map((definition) => definition.version),
    satellites: 256,
    knownLanes: [],
    admits: 'all',
  })
}

/** The runs it answers; its last row may say what else it was. */
async function claimed(session: Session, engine: TestEngine, limit: number) {
  return (await session.run(claimStatement(engine, limit))).filter(({ id }) => id !== null)
}

async function untilClaimed(engine: TestEngine, count: number): Promise<readonly ClaimedRun[]> {
  for (let claims = 0; claims < 5; claims += 1) {
    const runs = await claim(engine, { limit: count })
    if (runs.length > 0) return runs
  }
  return []
}

/** A run that holds a key, and one that is blocked on it. */
async function blockOne(engine: TestEngine): Promise<{ readonly holder: ClaimedRun; readonly heir: string }> {
  await makeCounter(engine, 'key')
  await engine.spawnId('exclusive', 'key')
  const holder = await claimOne(engine)
  const heir = await engine.spawnId('exclusive', 'key')
  expect(await claim(engine)).toEqual([])
  expect(await engine.run(heir)).toMatchObject({ blockedOn: expect.stringContaining('key') })
  return { holder, heir }
}

/** Runs one run of that key, so that its counter is there. */
async function makeCounter(engine: TestEngine, key: string): Promise<void> {
  await engine.spawnId('exclusive', key)
  const [run] = await untilClaimed(engine, 1)
  await flush(engine, [finishes(run!)])
}

async function runFlush(session: Session, engine: TestEngine, run: ClaimedRun): Promise<void> {
  const statements = statementsOfFlush(contextOf(engine), { outcomes: [finishes(run)], endedClaims: [] }, run.claimId)
  for (const statement of statements) await session.run(statement)
}

/** Spawns runs of twenty keys and drains them with eight claimers, each claiming as it flushes. */
async function drainKeys(engine: TestEngine, count: number): Promise<void> {
  await Promise.all(Array.from({ length: count }, (_, index) => engine.spawnId('exclusive', `key ${index % 20}`)))
  const running = new Set<string>()
  let left = count
  let empty = 0
  const work = async () => {
    let inHand: readonly ClaimedRun[] = []
    while (left > 0) {
      for (const run of inHand) running.delete(run.input as string)
      const reply = await engine.store.flush(
        { outcomes: inHand.map((run) => finishes(run)), endedClaims: [] },
        claimRequest(engine, { limit: 5 }),
      )
      expect(reply.outcomes.every((outcome) => outcome.kind === 'applied')).toBe(true)
      left -= inHand.length
      inHand = reply.claim?.runs ?? []
      empty = inHand.length === 0 && running.size === 0 ? empty + 1 : 0
      if (empty > 50) empty = await refuseStuck(engine)
      for (const run of inHand) {
        expect(running.has(run.input as string)).toBe(false)
        running.add(run.input as string)
      }
    }
  }
  await Promise.all(Array.from({ length: 8 }, work))
  expect(left).toBe(0)
}
