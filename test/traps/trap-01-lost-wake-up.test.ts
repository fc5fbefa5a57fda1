import { expect, test } from 'vitest'
import { statementsOfFlush } from '../../src/db/flush.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { flow, TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, contextOf, finishes, flush, gathers, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'
import { holdUntilEnd, openSession } from './session.ts'

forEachVersion('trap 1: a wake-up is never lost', (version) => {
  const { start } = sharedEngines(version)
  const startFlow = () => start({ definitions: [flow], version, connections: 8 })
  const waiting = (engine: TestEngine) =>
    engine.sql<string>(
      `SELECT r.id FROM pawl.runs r JOIN pawl.signals g ON g.run_id = r.id AND g.consumed_seq IS NULL AND g.name = ANY (r.awaits)
       JOIN pawl.environments e ON e.id = r.environment_id WHERE r.status = 'waiting' AND e.name = $1`,
      [engine.environment],
    )

  test('trap 1: a signal that is delivered while the run is being parked waits for the park, then wakes it', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [waits(run, ['a'])], endedClaims: [] }, run.id)) {
      await session.run(statement)
    }
    const delivery = engine.signal({ id }, 'a', 1)
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    expect(await delivery).toMatchObject({ kind: 'delivered', woke: true })
    const woken = await claimOne(engine)
    expect(woken).toMatchObject({ id, awaits: ['a'], timedOut: false, inbox: [{ name: 'a', payload: 1 }] })
    expect(await claim(engine)).toEqual([])
  })

  test('trap 1: a park that waits for a delivery finds its signal in the inbox and goes on', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const delivered = await holdUntilEnd(
      engine.fresh.connectionString,
      `WITH target AS (UPDATE pawl.runs SET signalled = true WHERE id = $1 RETURNING id)
       INSERT INTO pawl.signals (run_id, name, payload, created_at) SELECT id, 'a', '1', now() FROM target`,
      [id],
    )
    const park = flush(engine, [waits(run, ['a'])])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: delivered.pid })
    await delivered.release()
    expect((await park).outcomes).toEqual([{ kind: 'applied', status: 'waiting' }])
    expect(await engine.run(id)).toMatchObject({ status: 'pending' })
    expect(await claimOne(engine)).toMatchObject({ id, inbox: [{ name: 'a', payload: 1 }] })
  })

  test('trap 1: a signal that waited for the last step to finish finds an ended run, and is refused without a trace', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [finishes(run)], endedClaims: [] }, run.id)) {
      await session.run(statement)
    }
    const delivery = engine.signal({ id }, 'a', 1)
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    expect(await delivery).toEqual({ kind: 'no_target' })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.signals WHERE run_id = $1', [id])).toEqual([0])
    expect(await engine.run(id)).toMatchObject({ status: 'completed' })
  })

  test('C124 trap 1: waiting for a pack by waiting again is woken once per signal and never spins', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [waits(await claimOne(engine), ['a', 'b', 'c'])])
    const shown: string[][] = []
    for (const name of ['b', 'a', 'c']) {
      await engine.signal({ id }, name, name)
      const run = await claimOne(engine)
      shown.push(run.inbox.map((entry) => entry.name))
      if (name === 'c') await flush(engine, [finishes(run)])
      else await flush(engine, [gathers(run, ['a', 'b', 'c'])])
      expect(await claim(engine)).toEqual([])
    }
    expect(shown).toEqual([['b'], ['b', 'a'], ['b', 'a', 'c']])
  })

  test('trap 1: what is left out on waiting again is what was shown, by id: an older id that was committed later wakes', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [waits(await claimOne(engine), ['a', 'b'])])
    // the id is drawn first and committed last, as the inbox of another run lets it
    const [early] = await engine.sql<string>("SELECT nextval(pg_get_serial_sequence('pawl.signals', 'id'))::text")
    await engine.signal({ id }, 'b', 'shown')
    const run = await claimOne(engine)
    await engine.sql(
      `WITH late AS (INSERT INTO pawl.signals (id, run_id, name, payload, created_at) OVERRIDING SYSTEM VALUE VALUES ($1, $2, 'a', '1', now()))
       UPDATE pawl.runs SET signalled = true WHERE id = $2`,
      [early, id],
    )
    await flush(engine, [gathers(run, ['a', 'b'])])
    expect((await claimOne(engine)).inbox.map((entry) => entry.name)).toEqual(['a', 'b'])
  })

  test('trap 1: a stale park wakes nobody, whatever lies in the inbox', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [waits(await claimOne(engine), ['a', 'b'])])
    await engine.signal({ id }, 'a')
    const old = await claimOne(engine, { leaseMs: 1_000, alone: false })
    engine.advance(2_000)
    const owner = await claimOne(engine, { peek: true })
    await flush(engine, [gathers(owner, ['a', 'b'])])
    expect((await flush(engine, [waits({ ...old, inbox: [] }, ['a'])])).outcomes).toEqual([{ kind: 'stale' }])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', awaits: ['a', 'b'] })
    expect(await claim(engine)).toEqual([])
  })

  test(
    'C131 trap 1: parking and delivering at the same time wakes every run once, whichever comes first',
    async () => {
      const engine = await start({ definitions: TRAP_DEFINITIONS, version, connections: 8 })
      await inWaves(`trap 1 on PostgreSQL ${version}, park and deliver`, RACES, 25, async (size) => {
        const ids = await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
        const runs = await claim(engine)
        expect(runs).toHaveLength(size)
        await Promise.all(
          runs.flatMap((run, index) => {
            const park = () => flush(engine, [waits(run, ['a'])])
            const deliver = () => engine.signal({ id: run.id }, 'a', index)
            return index % 2 === 0 ? [park(), deliver()] : [deliver(), park()]
          }),
        )
        expect(await waiting(engine)).toEqual([])
        const woken = await claim(engine)
        expect(woken.map((run) => run.id)).toEqual([...ids].sort())
        expect(woken.every((run) => run.inbox.length === 1)).toBe(true)
        await flush(
          engine,
          woken.map((run) => finishes(run)),
        )
        expect(await claim(engine)).toEqual([])
      })
    },
    raceTimeout(RACES),
  )
})

const RACES = raceCount(400)
