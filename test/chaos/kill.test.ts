import { expect, test } from 'vitest'
import { startEngine } from '../support/engine.ts'
import { definitions } from './definitions.ts'
import { soak } from './soak-run.ts'

test('C032 C042 C259 killing engines with SIGKILL at random moments loses nothing, doubles no outcome and fails no innocent run', {
  timeout: 180_000,
}, async () => {
  const engine = await startEngine({ definitions })
  try {
    const report = await soak({
      connectionString: engine.fresh.connectionString,
      store: engine.store,
      pool: engine.fresh.pool({ max: 2 }),
      runs: 400,
      kills: 12,
      processes: 2,
      killWithinMs: 700,
    })
    expect(report.violations).toEqual([])
    expect(report.losses).toBeGreaterThan(0)
  } finally {
    await engine.close()
  }
})
