import { expect, onTestFinished, test } from 'vitest'
import { isTerminal } from '../../src/core/status.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, startEngine, type TestEngine } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimRequest, fails, finishes, flush, moves, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'

const RACES = raceCount(150)
/** What the capabilities ask for, also in the short form. */
const A_THOUSAND = raceCount(1_000)
const SCOPE = { tenant: 'default' }

forEachVersion('races', (version) => {
  const { start } = sharedEngines(version)
  const startMany = () => start({ definitions: TRAP_DEFINITIONS, version, connections: 16 })

  test(
    'C130 trap 1: a timeout and a signal at the same time wake the run once, and the signal is shown or kept',
    async () => {
      const engine = await startMany()
      await inWaves(`PostgreSQL ${version}, timeout and deliver`, A_THOUSAND, 25, (size) => raceTimeouts(engine, size))
    },
    raceTimeout(A_THOUSAND),
  )

  test(
    'C060 trap 2: a cancellation and an outcome at the same time end the run once, without a deadlock',
    async () => {
      const engine = await startMany()
      await inWaves(`PostgreSQL ${version}, cancel and complete`, A_THOUSAND, 20, (size) => raceCancels(engine, size))
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(A_THOUSAND),
  )

  test(
    'C045 trap 16: a rescue and a late outcome at the same time give the run one next transition',
    async () => {
      const engine = await startMany()
      await inWaves(`PostgreSQL ${version}, rescue and flush`, RACES, 15, (size) => raceRescues(engine, size))
    },
    raceTimeout(RACES),
  )

  test(
    'C032 trap 5: claims at the same time never take one run twice and leave none',
    async () => {
      const engine = await startMany()
      await inWaves(`PostgreSQL ${version}, claim and claim`, RACES * 2, 100, async (size) => {
        await Promise.all(Array.from({ length: size }, () => engine.spawnId('task')))
        const taken: string[] = []
        const take = async () => {
          for (let left = true; left; ) {
            const { runs, peek } = await engine.store.claim(claimRequest(engine, { limit: 10, peek: true }))
            taken.push(...runs.map((run) => run.id))
            await flush(
              engine,
              runs.map((run) => finishes(run)),
            )
            left = runs.length > 0 || peek?.more === true
          }
        }
        await Promise.all(Array.from({ length: 8 }, take))
        expect(taken).toHaveLength(size)
        expect(new Set(taken).size).toBe(size)
      })
    },
    raceTimeout(RACES),
  )

  test(
    'C014 trap 4: spawns with one key from sixteen connections make one run, though the default isolation is REPEATABLE READ',
    async () => {
      const engine = await startEngine({ definitions: TRAP_DEFINITIONS, version, connections: 16 })
      onTestFinished(engine.close)
      await engine.sql(`ALTER DATABASE "${engine.fresh.name}" SET default_transaction_isolation TO 'repeatable read'`)
      let keys = 0
      await inWaves(`PostgreSQL ${version}, spawn and spawn`, RACES, 1, async () => {
        keys += 1
        const receipt = { key: `receipt ${keys}`, fingerprint: 'same' }
        const options = keys % 2 === 0 ? { key: `key ${keys}` } : { receipt }
        const answers = await Promise.all(Array.from({ length: 16 }, () => engine.spawn('task', keys, options)))
        expect(answers.filter(({ kind }) => kind === 'created')).toHaveLength(1)
        expect(new Set(answers.map((answer) => ('id' in answer ? answer.id : answer.kind))).size).toBe(1)
      })
      expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0')).toEqual([RACES])
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES * 2),
  )

  test(
    'C219 trap 4: a key that ends and is taken again at the same time is always answered with a run',
    async () => {
      const engine = await startMany()
      await inWaves(`PostgreSQL ${version}, end and spawn`, RACES, 1, async () => {
        await engine.spawn('task', null, { key: 'again' })
        const [holder] = await claim(engine)
        const [, ...answers] = await Promise.all([
          flush(engine, [finishes(holder!)]),
          ...Array.from({ length: 3 }, () => engine.spawn('task', null, { key: 'again' })),
        ])
        for (const answer of answers) expect(['created', 'occupied']).toContain(answer.kind)
        expect(answers.filter(({ kind }) => kind === 'created').length).toBeLessThanOrEqual(1)
        await flush(
          engine,
          (await claim(engine)).map((run) => finishes(run)),
        )
      })
    },
    raceTimeout(RACES),
  )
})

async function raceTimeouts(engine: TestEngine, size: number): Promise<void> {
  const ids = await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
  await flush(
    engine,
    (await claim(engine)).map((run) => waits(run, ['a'], 1_000)),
  )
  engine.advance(1_000)
  const early = await Promise.all([
    claim(engine, { limit: 5 }),
    claim(engine, { limit: 5 }),
    ...ids.map(async (id) => void (await engine.signal({ id }, 'a'))),
    claim(engine, { limit: 5 }),
  ])
  const woken = [...early.flatMap((runs) => runs ?? []), ...(await claim(engine))]
  expect(woken.map((run) => run.id).sort()).toEqual([...ids].sort())
  for (const run of woken) {
    const kept = await engine.sql<string>('SELECT name FROM pawl.signals WHERE run_id = $1 AND consumed_seq IS NULL', [run.id])
    expect(kept).toEqual(['a'])
    expect(run.timedOut || run.inbox.length === 1).toBe(true)
  }
  await flush(
    engine,
    woken.map((run) => finishes(run)),
  )
  expect(await claim(engine)).toEqual([])
}

async function raceCancels(engine: TestEngine, size: number): Promise<void> {
  await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
  const runs = await claim(engine)
  await Promise.all(
    runs.flatMap((run, index) => {
      const outcome = [finishes(run), fails(run), moves(run, 'middle'), waits(run, ['a'])][index % 4]!
      const write = () => flush(engine, [outcome])
      const cancel = () => engine.store.cancel(run.id, { ...SCOPE, by: null })
      return index % 2 === 0 ? [write(), cancel(), cancel()] : [cancel(), write(), cancel()]
    }),
  )
  for (const { id } of runs) {
    const ends = (await engine.history(id)).filter(({ outcome }) => ['done', 'fail', 'cancel'].includes(outcome))
    expect(ends).toHaveLength(1)
    expect(isTerminal((await engine.run(id)).status)).toBe(true)
  }
  expect(await claim(engine)).toEqual([])
}

async function raceRescues(engine: TestEngine, size: number): Promise<void> {
  await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
  const runs = await claim(engine, { leaseMs: 1_000, alone: false })
  const due = new Date(engine.clock() + 1_000).toISOString()
  // the rescuer's clock is past the lease, the late worker's is not yet
  const rescuer = await startEngine({
    definitions: TRAP_DEFINITIONS,
    on: engine.fresh,
    environment: engine.environment,
    connections: 2,
  })
  rescuer.advance(Date.parse(due) - Date.now() + 1_000)
  const [replies] = await Promise.all([
    Promise.all(runs.map((run) => flush(engine, [finishes(run)]))),
    claim(rescuer, { peek: true, limit: 1, alone: false }),
    claim(rescuer, { peek: true, limit: 1, alone: false }),
  ])
  for (const [index, run] of runs.entries()) {
    const [answer] = replies[index]!.outcomes
    const { status, losses, seq } = await engine.run(run.id)
    if (answer?.kind === 'applied') expect({ status, losses, seq }).toEqual({ status: 'completed', losses: 0, seq: run.seq + 1 })
    else expect({ losses, ended: isTerminal(status) }).toEqual({ losses: 1, ended: false })
    expect((await engine.history(run.id)).map(({ outcome }) => outcome)).toEqual([answer?.kind === 'applied' ? 'done' : 'lost'])
  }
  await rescuer.close()
  await engine.sql('DELETE FROM pawl.ready y USING pawl.runs r WHERE r.id = y.run_id AND r.id = ANY ($1)', [
    runs.map(({ id }) => id),
  ])
}
