import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import type { ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, finishes, flush } from '../traps/outcomes.ts'

const mail = job({ name: 'mail', queue: 'mails', input: z.number(), run: () => null })
const CLAIMERS = 8
const RUNS = 160

const pauseOf = (kind: 'queue' | 'definition') => ({
  ...{ kind, name: kind === 'queue' ? 'mails' : 'mail' },
  ...{ tenant: null, by: 'ops@example.org', declared: false },
})
const scope = { tenant: 'default', by: 'ops@example.org' }

/** Claims and finishes with eight claimers until `isOver`; says what they took, each time. */
function work(engine: TestEngine, isOver: () => boolean, taken: (runs: readonly ClaimedRun[], begunAt: number) => void) {
  const one = async () => {
    while (!isOver()) {
      const begunAt = performance.now()
      const runs = await claim(engine, { limit: 2 })
      taken(runs, begunAt)
      await flush(
        engine,
        runs.map((run) => finishes(run)),
      )
    }
  }
  return Promise.all(Array.from({ length: CLAIMERS }, one))
}

forEachVersion('pauses while eight claim', (version) => {
  const { start } = sharedEngines(version)
  const begin = () => start({ definitions: [mail], version, frozen: true, connections: 12 })
  const numbers = Array.from({ length: RUNS }, (_, n) => n)

  test.each(['queue', 'definition'] as const)(
    'C180 once a %s is paused no claim that begins takes anything of it; resumed, again and again, each run is taken once',
    async (kind) => {
      const engine = await begin()
      await engine.spawnMany('mail', numbers)
      const times = new Map<string, number>()
      let [pausedAt, within] = [Infinity, 0]
      const taken = (runs: readonly ClaimedRun[], begunAt: number) => {
        if (begunAt > pausedAt) within += runs.length
        for (const { id } of runs) times.set(id, (times.get(id) ?? 0) + 1)
      }
      const working = work(engine, () => times.size === RUNS, taken)
      while (times.size < RUNS) {
        expect(await engine.store.pause(pauseOf(kind))).toMatchObject({ did: 'paused' })
        pausedAt = performance.now()
        // claims go on meanwhile
        for (let looks = 0; looks < 4; looks += 1) expect(await claim(engine)).toEqual([])
        pausedAt = Infinity
        expect(await engine.store.resume(pauseOf(kind))).toMatchObject({ did: 'resumed' })
        const runs = await claim(engine, { limit: 5 })
        taken(runs, -Infinity)
        await flush(
          engine,
          runs.map((run) => finishes(run)),
        )
      }
      await working
      expect({ within, most: Math.max(...times.values()) }).toEqual({ within: 0, most: 1 })
    },
  )

  test('C181 runs that are paused and resumed one by one while eight claim are each taken once, and none that shows its hold', async () => {
    const engine = await begin()
    const ids = await engine.spawnMany('mail', numbers)
    const times = new Map<string, number>()
    const holding = new Set<string>()
    let wrong = 0
    const working = work(
      engine,
      () => times.size === RUNS,
      (runs) => {
        for (const { id } of runs) times.set(id, (times.get(id) ?? 0) + 1)
      },
    )
    // from the end, so that they meet the claims
    const odd = ids.filter((_, n) => n % 2).reverse()
    for (const id of odd) {
      const answer = await engine.store.pauseRun(id, scope)
      if (answer?.did === 'paused' && answer.status === 'pending') holding.add(id)
    }
    for (const id of holding) if (times.has(id)) wrong += 1
    for (const id of odd) await engine.store.resumeRun(id, scope)
    await working
    expect({ wrong, most: Math.max(...times.values()), taken: times.size }).toEqual({ wrong: 0, most: 1, taken: RUNS })
    expect(holding.size).toBeGreaterThan(0)
  })
})
