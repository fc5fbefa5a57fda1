import { expect, test } from 'vitest'
import * as z from 'zod'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'

const MINUTE = 60_000

/** Waits, a minute each time, until it has been told or has waited three times. Every visit throws once, so that it is tried again. */
const loop = machine({
  name: 'loop',
  state: z.object({ waits: z.number() }),
  signals: { go: z.null() },
  output: z.object({ waits: z.number(), told: z.boolean() }),
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state }) => waitFor('go', { goto: 'read', timeout: MINUTE, state: { waits: state.waits + 1 } }),
    read: ({ signals, state, timedOut, attempt, next, done }) => {
      seen.push([state.waits, attempt, timedOut])
      if (attempt === 1) throw new Error('once more')
      const told = signals.first('go') !== undefined
      return told || state.waits === 3 ? done({ waits: state.waits, told }) : next('wait')
    },
  },
})
let seen: (readonly [waits: number, attempt: number, timedOut: boolean])[] = []

/** Gathers three names, and ends with what there is when the time is up. */
const pack = machine({
  name: 'pack',
  state: z.object({ until: z.number() }),
  signals: { a: z.number(), b: z.number(), c: z.number() },
  output: z.object({ got: z.array(z.string()), timedOut: z.boolean(), attempt: z.number() }),
  initial: 'wait',
  steps: {
    wait: ({ waitFor, state }) => waitFor(['a', 'b', 'c'], { goto: 'collect', timeout: state.until }),
    collect: ({ signals, state, timedOut, attempt, waitFor, done }) => {
      const got = signals.all.map(({ name, payload }) => `${name}${payload}`)
      if (timedOut || got.length === 3) return done({ got, timedOut, attempt })
      return waitFor(['a', 'b', 'c'], { goto: 'collect', keep: true, timeout: state.until })
    },
  },
})

forEachVersion('waits that run out', (version) => {
  const { start } = sharedEngines(version)
  const begin = () => start({ definitions: [loop, pack], version, frozen: true })

  test('C128 a loop of three waits that run out ends after three timeouts, each of which a second attempt sees again', async () => {
    const engine = await begin()
    seen = []
    const id = await engine.spawnId('loop', { waits: 0 })
    const startedAt = engine.clock()
    await engine.tick()
    for (let waits = 1; waits <= 3; waits += 1) {
      expect(await engine.run(id)).toMatchObject({ status: 'waiting', availableAt: startedAt + waits * MINUTE })
      engine.advance(MINUTE - 1)
      expect((await engine.tick()).claimed).toBe(0)
      engine.advance(1)
      await engine.tick()
    }
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: { waits: 3, told: false } })
    expect(engine.clock() - startedAt).toBe(3 * MINUTE)
    expect(seen).toEqual([1, 2, 3].flatMap((waits) => [1, 2].map((attempt) => [waits, attempt, true])))
    expect((await engine.history(id)).filter(({ outcome }) => outcome === 'wait')).toHaveLength(3)
  })

  test('C128 a timeout of an earlier wait is none of the one that is told', async () => {
    const engine = await begin()
    seen = []
    const id = await engine.spawnId('loop', { waits: 0 })
    await engine.tick()
    engine.advance(MINUTE)
    await engine.tick()
    await engine.signal({ id }, 'go', null)
    await engine.tick()
    expect((await engine.run(id)).result).toEqual({ waits: 2, told: true })
    expect(seen.map(([, , timedOut]) => timedOut)).toEqual([true, true, false, false])
  })

  test('C127 a pack of which a part has come when the time is up is entered with that part, and no attempt is counted', async () => {
    const engine = await begin()
    const id = await engine.spawnId('pack', { until: MINUTE })
    await engine.tick()
    await engine.signal({ id }, 'b', 1)
    await engine.tick()
    await engine.signal({ id }, 'a', 2)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', attempt: 0 })
    engine.advance(MINUTE)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1, retried: 0 })
    expect((await engine.run(id)).result).toEqual({ got: ['b1', 'a2'], timedOut: true, attempt: 1 })
  })
})
