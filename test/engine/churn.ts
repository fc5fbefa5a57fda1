import { expect } from 'vitest'
import type { TestEngine } from '../support/engine.ts'
import { claimRequest, finishes, flush } from '../traps/outcomes.ts'

/** Runs that are in hand, in one snapshot: what was admitted and has not been given back. */
const RUNNING = `
  SELECT count(*)::int FROM pawl.runs r JOIN pawl.environments e ON e.id = r.environment_id WHERE e.name = $1 AND r.status = 'running'`

export const running = async (engine: TestEngine): Promise<number> =>
  (await engine.sql<number>(RUNNING, [engine.environment]))[0] ?? 0

/**
 * Claims and finishes with so many claimers until nothing is left. Answers the most that were ever in hand at once: as the claimers
 * counted them, and as somebody saw them who looked at the database all the while.
 */
export async function churn(engine: TestEngine, total: number, claimers: number, gated: true | 'open' = true): Promise<number> {
  let [left, most, inHand] = [total, 0, 0]
  const taken = new Set<string>()
  const work = async () => {
    for (let empty = 0; left > 0 && empty < 2_000; ) {
      const { runs, setAside } = await engine.store.claim(claimRequest(engine, { limit: 5, gated }))
      inHand += runs.length
      for (const { id } of runs) taken.add(id)
      most = Math.max(most, inHand)
      await new Promise((resolve) => setImmediate(resolve))
      // from here on they may be given back at any time
      inHand -= runs.length
      await flush(
        engine,
        runs.map((run) => finishes(run)),
      )
      left -= runs.length
      empty = runs.length === 0 && setAside === 0 ? empty + 1 : 0
    }
  }
  let isOver = false
  const watch = async () => {
    while (!isOver) most = Math.max(most, await running(engine))
  }
  const watching = watch()
  await Promise.all(Array.from({ length: claimers }, work)).finally(() => {
    isOver = true
  })
  await watching
  // none twice: that would make it negative, or leave one out
  expect({ left, taken: taken.size }).toEqual({ left: 0, taken: total })
  return most
}
