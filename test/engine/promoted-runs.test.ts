import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimOne, finishes, flush } from '../traps/outcomes.ts'

/** Upkeep comes every minute, and is not to be what helps. */
const SOON = 40_000
const SCOPE = { tenant: 'default', by: null }

const hourly = limit('hourly', { rate: { count: 1, per: '1 hour' } })
const single = limit('single', { concurrency: 1, rate: { count: 1_000, per: '1 minute' } })
/** When the next can be admitted. */
const ROOM_AFTER_MS: Readonly<Record<string, number>> = { hourly: 3_600_000, single: 0 }
const definitions = [hourly, single].map((limited) =>
  job({ name: limited.name, input: z.unknown(), limits: [limited], run: () => null }),
)

/** What takes a run out of the window that was promoted for a token, before it is claimed. */
const LEAVING: Readonly<Record<string, (engine: TestEngine, definition: string, id: string) => Promise<unknown>>> = {
  'is cancelled': ({ store }, _, id) => store.cancel(id, SCOPE),
  'is paused': ({ store }, _, id) => store.pauseRun(id, SCOPE),
  'is over its deadline': (engine) => {
    engine.advance(SOON)
    return engine.store.endDue()
  },
  'is moved to later': (engine, definition) =>
    engine.spawn(definition, {}, { key: 'first', delay: '1 day', onConflict: 'reschedule' }),
  'stands in a queue that is paused': ({ store }) => store.pause({ ...SCOPE, kind: 'queue', name: 'apart', declared: true }),
}

forEachVersion('runs that were promoted for tokens', (version) => {
  const { start } = sharedEngines(version)

  test.for([hourly.name, single.name].flatMap((name) => Object.keys(LEAVING).map((how) => [name, how] as const)))(
    'C163 %s: the room of one that %s goes to who comes next, at once',
    async ([definition, how]) => {
      const engine = await start({ definitions, version, frozen: true })
      await engine.store.declareLimits([...engine.registry.limits].map(([name, policy]) => ({ name, policy })))
      await engine.tick()
      const roomAfterMs = ROOM_AFTER_MS[definition] ?? 0
      await engine.spawnId(definition)
      const holder = await claimOne(engine)
      const first = await engine.spawnId(definition, {}, { key: 'first', queue: 'apart', maxDuration: roomAfterMs + SOON })
      const next = await engine.spawnId(definition)
      expect(await claim(engine)).toEqual([])
      await flush(engine, [finishes(holder)])
      engine.advance(roomAfterMs)
      // rates are looked after, and nothing is taken
      await claim(engine, { queues: ['nobody'] })
      expect([(await engine.run(first)).blockedOn, (await engine.run(next)).blockedOn]).toEqual([null, expect.any(String)])
      await LEAVING[how]?.(engine, definition, first)
      await engine.tick()
      expect(await engine.run(first)).not.toMatchObject({ status: 'completed' })
      expect(await engine.run(next)).toMatchObject({ status: 'completed' })
    },
  )
})
