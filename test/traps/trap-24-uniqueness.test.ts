import { describe, expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import type { Admission } from '../../src/core/store.ts'
import { forEachVersion, freshDatabase } from '../support/database.ts'
import { type SpawnOptions, sharedEngines, startEngine, type TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { claimRequest, finishes } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'

const HOUR = 3_600_000

const hourly = job({ name: 'hourly', input: z.string(), unique: { period: '1h' }, run: () => null })
const same = job({ name: 'same', input: z.string(), unique: {}, run: () => null })
const plain = job({ name: 'plain', input: z.string(), run: () => null })
const last = job({ name: 'last', input: z.number(), debounce: { wait: '1m' }, run: ({ input }) => input })
const all = job({ name: 'all', input: z.array(z.number()), batch: { wait: '1m', size: 30 }, run: ({ input }) => input })
const DEFINITIONS = [hourly, same, plain, last, all]

const kinds = (answers: readonly Admission[]) => answers.map(({ kind }) => kind).sort()
const ids = (answers: readonly Admission[]) => [...new Set(answers.map((answer) => ('id' in answer ? answer.id : answer.kind)))]

/** The same spawn from as many clients at once, each in a request of its own. */
function fromClients(count: number, spawn: (client: number) => Promise<Admission>): Promise<Admission[]> {
  return Promise.all(Array.from({ length: count }, (_, client) => spawn(client)))
}

const countRuns = async (engine: TestEngine) =>
  (
    await engine.sql<number>(
      'SELECT count(*)::int FROM pawl.runs WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1)',
      [engine.environment],
    )
  )[0]

forEachVersion('trap 24: uniqueness', (version) => {
  const { start } = sharedEngines(version)
  const startMany = () => start({ definitions: DEFINITIONS, version, frozen: true, connections: 16 })

  test(
    'trap 24 C022 of many that take over what has expired one wins, and the others are answered with it',
    async () => {
      const engine = await startMany()
      const count = raceCount(20)
      await inWaves('taking over expired entries', count, 10, async (size) => {
        const inputs = Array.from({ length: size }, (_, n) => String(n))
        const before = await Promise.all(inputs.map((input) => engine.spawn('hourly', input)))
        engine.advance(HOUR)
        const answers = await Promise.all(inputs.map((input) => fromClients(8, () => engine.spawn('hourly', input))))
        answers.forEach((each, n) => {
          expect(kinds(each)).toEqual(['created', ...Array.from({ length: 7 }, () => 'occupied')])
          expect(ids(each)).toHaveLength(1)
          expect(ids(each)).not.toEqual(ids([before[n] as Admission]))
        })
        engine.advance(HOUR)
      })
    },
    raceTimeout(raceCount(20)),
  )

  test('trap 24: a takeover that waits for another one finds the entry taken, and its run is not written', async () => {
    const engine = await startMany()
    const first = await engine.spawnId('hourly', 'a')
    engine.advance(HOUR)
    const lock = await holdRowLock(engine.fresh.connectionString, 'SELECT FROM pawl.uniques WHERE run_id = $1 FOR UPDATE', [
      first,
    ])
    const one = engine.spawn('hourly', 'a')
    const other = engine.spawn('hourly', 'a')
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /INSERT INTO "pawl"\.uniques/ }, 2)
    await lock.release()
    const answers = await Promise.all([one, other])
    expect(kinds(answers)).toEqual(['created', 'occupied'])
    expect(ids(answers)).toHaveLength(1)
    expect(await countRuns(engine)).toBe(2)
  })

  test('trap 24: a spawn never locks what is held, so that the end of the holder does not wait for it', async () => {
    const engine = await startMany()
    const holder = await engine.spawnId('same', 'a')
    const [run] = (await engine.store.claim(claimRequest(engine))).runs
    if (!run) throw new Error('nothing claimed')
    const lock = await holdRowLock(
      engine.fresh.connectionString,
      'SELECT FROM pawl.uniques WHERE run_id = $1 FOR NO KEY UPDATE',
      [holder],
    )
    expect(await engine.spawn('same', 'a')).toMatchObject({ kind: 'occupied', id: holder })
    await lock.release()
    await engine.store.flush({ outcomes: [finishes(run)], endedClaims: [run.claimId] }, null)
    expect(await engine.spawn('same', 'a')).toMatchObject({ kind: 'created' })
  })

  test(
    'C010 C019 spawns race with the end of the run that has their entry: never two that live, and nobody is left without an answer',
    async () => {
      const engine = await startMany()
      const count = raceCount(40)
      await inWaves('spawns against ends', count, 10, async (size) => {
        const inputs = Array.from({ length: size }, (_, n) => String(n))
        await Promise.all(inputs.map((input) => engine.spawn('same', input, { key: input })))
        const { runs } = await engine.store.claim(claimRequest(engine))
        const ending = Promise.all(runs.map((run) => engine.store.flush({ outcomes: [finishes(run)], endedClaims: [] }, null)))
        const answers = await Promise.all(
          inputs.map((input) => fromClients(3, () => engine.spawn('same', input, { key: input }))),
        )
        await ending
        for (const each of answers) {
          expect(kinds(each).filter((kind) => kind !== 'created' && kind !== 'occupied')).toEqual([])
          expect(kinds(each).filter((kind) => kind === 'created').length).toBeLessThanOrEqual(1)
        }
        await engine.tick()
      })
    },
    raceTimeout(raceCount(40)),
  )

  test(
    'C270 eight clients trigger one debounced run at once: one run, with an input of theirs, and all are told so',
    async () => {
      const engine = await startMany()
      const count = raceCount(6)
      await inWaves('debounced at once', count, 1, async () => {
        const answers = await fromClients(8, (client) => engine.spawn('last', client))
        expect(ids(answers)).toHaveLength(1)
        expect(kinds(answers).filter((kind) => kind === 'created')).toHaveLength(1)
        const before = await engine.run(ids(answers)[0] as string)
        expect(before.availableAt).toBe(engine.clock() + 60_000)
        engine.advance(60_000)
        expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      })
    },
    raceTimeout(raceCount(6)),
  )

  test(
    'C270 eight clients send to batches at once: every input in exactly one run, none with more than its size',
    async () => {
      const engine = await startMany()
      const count = raceCount(2)
      await inWaves('batched at once', count, 1, async () => {
        const from = (client: number) => Array.from({ length: 12 }, (_, n) => client * 100 + n)
        const answers = await Promise.all(
          Array.from({ length: 8 }, async (_, client) => {
            const own: Admission[] = []
            for (const item of from(client)) own.push(await engine.spawn('all', [item]))
            return own
          }),
        )
        expect(kinds(answers.flat()).filter((kind) => kind !== 'created' && kind !== 'occupied')).toEqual([])
        const runs = await Promise.all(ids(answers.flat()).map((id) => engine.run(id)))
        expect(runs.flatMap(({ input }) => input as number[]).sort((a, b) => a - b)).toEqual(
          Array.from({ length: 8 }, (_, client) => from(client)).flat(),
        )
        expect(Math.max(...runs.map(({ input }) => (input as number[]).length))).toBeLessThanOrEqual(30)
        engine.advance(60_000)
        expect(await engine.tick()).toMatchObject({ completed: runs.length })
      })
    },
    raceTimeout(20 * raceCount(2)),
  )

  test(
    'C270 triggers race with the start of the run: each input is in the run that has begun or in the next',
    async () => {
      const engine = await startMany()
      const count = raceCount(10)
      await inWaves('triggers against starts', count, 1, async () => {
        const first = await engine.spawnId('all', [0])
        engine.advance(60_000)
        const [claimed, ...answers] = await Promise.all([
          engine.store.claim(claimRequest(engine)),
          ...Array.from({ length: 4 }, (_, n) => engine.spawn('all', [n + 1])),
        ])
        const taken = claimed.runs.flatMap(({ input }) => input as number[])
        const others = ids(answers).filter((id) => id !== first)
        expect(others.length).toBeLessThanOrEqual(1)
        const later = await Promise.all(others.map((id) => engine.run(id)))
        const isStarted = claimed.runs.length > 0
        const own = isStarted ? taken : ((await engine.run(first)).input as number[])
        expect([...own, ...later.flatMap(({ input }) => input as number[])].sort()).toEqual([0, 1, 2, 3, 4])
        if (isStarted) await engine.store.flush({ outcomes: claimed.runs.map((run) => finishes(run)), endedClaims: [] }, null)
        engine.advance(60_000)
        await engine.tick()
      })
    },
    raceTimeout(raceCount(10)),
  )
})

describe('under a default isolation that the database has of its own', () => {
  test.each([
    ['a key', 'plain', (n: number): SpawnOptions => ({ key: `k${n}` })],
    ['a receipt', 'plain', (n: number): SpawnOptions => ({ receipt: { key: `r${n}`, fingerprint: 'f' } })],
    ['an input', 'same', (): SpawnOptions => ({})],
    ['an input in a period', 'hourly', (): SpawnOptions => ({})],
  ] as const)(
    'C014 C019 sixteen clients admit the same by %s under REPEATABLE READ: exactly one run',
    async (_, definition, optionsOf) => {
      const fresh = await freshDatabase()
      const admin = fresh.pool({ max: 1 })
      await admin.query(`ALTER DATABASE ${fresh.name} SET default_transaction_isolation = 'repeatable read'`)
      const engine = await startEngine({ definitions: DEFINITIONS, on: fresh, connections: 16 })
      onTestFinished(async () => {
        await engine.close()
        await fresh.close()
      })
      const isolation = await engine.database.query({ name: 'isolation', text: 'SHOW default_transaction_isolation', params: [] })
      expect(Object.values(isolation[0] ?? {})).toEqual(['repeatable read'])
      for (let round = 0; round < 5; round += 1) {
        const answers = await fromClients(16, () => engine.spawn(definition, `input ${round}`, optionsOf(round)))
        expect(ids(answers)).toHaveLength(1)
        expect(answers.filter(({ kind }) => kind === 'created')).toHaveLength(1)
        expect(await countRuns(engine)).toBe(round + 1)
      }
    },
  )
})
