import { expect, test } from 'vitest'
import { readBlockedGates } from '../../src/db/statements/heal-gates.ts'
import { dropLapsedClaims, rescueLost } from '../../src/db/statements/keep-claims.ts'
import { promoteDue } from '../../src/db/statements/promote-due.ts'
import { pruneEnded, pruneReceipts } from '../../src/db/statements/upkeep.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, finishes, flush } from './outcomes.ts'

const DAY = 86_400_000

forEachVersion('trap 22: sweeps are bounded', (version) => {
  const { start } = sharedEngines(version)
  const startTasks = () => start({ definitions: TRAP_DEFINITIONS, version, frozen: true })
  const spawnMany = (engine: TestEngine, count: number, options = {}) =>
    Promise.all(Array.from({ length: count }, (_, index) => engine.spawnId('task', index, options)))

  test('trap 22: no more becomes due at once than the bound, in the order in which it is due', async () => {
    const engine = await startTasks()
    const ids = []
    for (let index = 0; index < 7; index += 1) ids.push(await engine.spawnId('task', index, { delay: 1_000 + index }))
    engine.advance(DAY)
    expect(await sweep(engine, promoteDue, { limit: 3 })).toMatchObject({ promoted: 3 })
    expect((await claim(engine, { limit: 3 })).map((run) => run.input)).toEqual(expect.arrayContaining([0, 1, 2]))
    expect(await sweep(engine, promoteDue, { limit: 100 })).toMatchObject({ promoted: 0 })
  })

  test('C044 trap 22: no more runs are rescued at once than the bound, be they of one claim or of many', async () => {
    const engine = await startTasks()
    await spawnMany(engine, 12)
    for (let claims = 0; claims < 6; claims += 1) await claim(engine, { limit: 1, leaseMs: 1_000, alone: false })
    await claim(engine, { limit: 6, leaseMs: 1_001, alone: false })
    engine.advance(DAY)
    const counts: number[] = []
    for (let passes = 0; passes < 8; passes += 1) {
      counts.push(Number((await sweep(engine, rescueLost, { limit: 4 }))?.rescued))
      await sweep(engine, dropLapsedClaims, { limit: 4 })
    }
    expect(Math.max(...counts)).toBe(4)
    expect(await engine.sql(LOST, [engine.environment])).toEqual([12])
  })

  test('trap 22: no more lapsed claims are dropped at once than the bound', async () => {
    const engine = await startTasks()
    await spawnMany(engine, 5)
    for (let claims = 0; claims < 5; claims += 1) {
      await flush(
        engine,
        (await claim(engine, { limit: 1, leaseMs: 1_000, alone: false })).map((run) => finishes(run)),
      )
    }
    engine.advance(DAY)
    await sweep(engine, dropLapsedClaims, { limit: 2 })
    expect(await engine.sql(CLAIMS, [engine.environment])).toEqual([3])
  })

  test('C211 trap 22: no more ended runs are deleted at once than the bound, and the pass says that there is more', async () => {
    const engine = await startTasks()
    await spawnMany(engine, 10)
    await flush(
      engine,
      (await claim(engine)).map((run) => finishes(run)),
    )
    engine.advance(60 * DAY)
    const first = await sweep(engine, pruneEnded, { limit: 4, minRetentionSeconds: 0 })
    expect(first).toMatchObject({ pruned: 4, more: true })
    expect(await sweep(engine, pruneEnded, { limit: 100, minRetentionSeconds: 0 })).toMatchObject({ pruned: 6 })
  })

  test('trap 22: no more expired receipts are deleted at once than the bound', async () => {
    const engine = await startTasks()
    for (let index = 0; index < 5; index += 1)
      await engine.spawn('task', index, { receipt: { key: `r${index}`, fingerprint: 'f' } })
    engine.advance(60 * DAY)
    expect(await sweep(engine, pruneReceipts, { limit: 2 })).toMatchObject({ pruned: 2 })
    expect(await sweep(engine, pruneReceipts, { limit: 100 })).toMatchObject({ pruned: 3 })
  })

  test('trap 22: no more gates with waiters are looked at than the bound', async () => {
    const engine = await startTasks()
    for (const key of ['a', 'b', 'c', 'd']) {
      await engine.spawnId('exclusive', key)
      await engine.spawnId('exclusive', key)
    }
    for (let claims = 0; claims < 3; claims += 1) await claim(engine)
    const statement = readBlockedGates('pawl', { now: null, environment: engine.environment, limit: 3 })
    expect(await engine.database.query(statement)).toHaveLength(3)
  })
})

const LOST = `SELECT count(*)::int FROM pawl.history h JOIN pawl.runs r ON r.id = h.run_id JOIN pawl.environments e ON e.id = r.environment_id
  WHERE h.outcome = 'lost' AND e.name = $1`
const CLAIMS = 'SELECT count(*)::int FROM pawl.claims c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1'

type Sweep<P> = (schema: string, params: P) => Parameters<TestEngine['database']['batch']>[0][number]

/** One pass, alone. */
async function sweep<P extends { readonly now: string | null; readonly environment: string }>(
  engine: TestEngine,
  statement: Sweep<P>,
  params: Omit<P, 'now' | 'environment'>,
) {
  const now = new Date(engine.clock()).toISOString()
  const [rows = []] = await engine.database.batch([statement('pawl', { ...params, now, environment: engine.environment } as P)])
  return rows[0]
}
