import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/index.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { numbers } from './claim-request.ts'

const BACKLOG = 100_000
const BATCH = 1_000

forEachVersion('shares of a tick', (version) => {
  const { start } = sharedEngines(version)

  test('C275 a backlog of 100,000 runs of one tenant delays the single run of another by no more than a tick', async () => {
    const ran: string[] = []
    let wallMs = 0
    const noted = job({
      name: 'noted',
      input: z.object({ n: z.number() }),
      run: ({ run }) => {
        ran.push(run.tenant)
        wallMs += 500
      },
    })
    const engine = await start({
      definitions: [noted],
      version,
      budget: { batch: 20, concurrency: 20, wallMs: 60_000 },
      nowMs: () => wallMs,
    })
    const flood = numbers(BATCH)
    for (let from = 0; from < BACKLOG; from += BATCH) await engine.spawnMany('noted', flood, { tenant: 'loud' })
    await engine.spawnId('noted', { n: 0 }, { tenant: 'quiet' })
    const report = await engine.tick()
    expect(report.more).toBe(true)
    expect(ran.slice(0, 20)).toContain('quiet')
    expect(ran).toContain('loud')
  }, 120_000)

  test('C154 a host that ticks for one queue runs at most as many of it at once as it was given places', async () => {
    let running = 0
    let most = 0
    const slow = job({
      name: 'slow',
      queue: 'mail',
      input: z.object({ n: z.number() }),
      run: async () => {
        running += 1
        most = Math.max(most, running)
        await Promise.resolve()
        await new Promise((resolve) => setImmediate(resolve))
        running -= 1
      },
    })
    const engine = await start({ definitions: [slow], version, only: ['mail'], budget: { batch: 10, concurrency: 3 } })
    for (const input of numbers(12)) await engine.spawnId('slow', input)
    expect(await engine.tick()).toMatchObject({ completed: 12 })
    expect(most).toBe(3)
  })
})
