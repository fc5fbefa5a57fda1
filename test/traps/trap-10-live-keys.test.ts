import { expect, test } from 'vitest'
import * as z from 'zod'
import type { CommonOptions } from '../../src/core/definition.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { moment, sharedEngines, type TestEngine } from '../support/engine.ts'

const HOUR = 3_600_000
const SCOPES: readonly (readonly [string, CommonOptions<unknown, unknown>['keyScope']])[] = [
  ['live', 'live'],
  ['no ended status', { statuses: [] }],
  ['one ended status', { statuses: ['failed'] }],
  ['retained', 'retained'],
  ['a period that is over', { period: '1s' }],
]

forEachVersion('trap 10: the key of a live run', (version) => {
  const { start } = sharedEngines(version)

  test.each(SCOPES)(
    'trap 10 C017 with a scope of %s a live run holds its key in every status, and its own wakes commit',
    async (_, keyScope) => {
      const running = moment()
      const go = moment()
      const flow = machine({
        name: 'flow',
        state: z.object({}),
        keyScope,
        retry: { maxAttempts: 3, backoff: { kind: 'fixed', base: '1h' } },
        signals: { go: z.null() },
        initial: 'first',
        steps: {
          first: async ({ waitFor }) => {
            running.happen()
            await go.promise
            return waitFor('go', { goto: 'second' })
          },
          second: ({ attempt, done }) => {
            if (attempt === 1) throw new Error('again')
            return done(undefined)
          },
        },
      })
      const engine = await start({ definitions: [flow], version, frozen: true })
      const id = await engine.spawnId('flow', {}, { key: 'k', delay: '1h' })
      const held = (status: string) => expectHeld(engine, id, status)
      engine.advance(HOUR - 1)
      await held('pending')
      engine.advance(1)
      const ticking = engine.tick()
      await running.promise
      await held('running')
      go.happen()
      await ticking
      engine.advance(HOUR)
      await held('waiting')
      expect(await engine.signal({ key: 'k' }, 'go', null)).toMatchObject({ kind: 'delivered', runId: id })
      await held('pending')
      await engine.tick()
      await held('pending')
      expect((await engine.run(id)).attempt).toBe(1)
      engine.advance(HOUR)
      expect(await engine.tick()).toMatchObject({ completed: 1 })
      const isFree = keyScope !== 'retained'
      expect(await engine.spawn('flow', {}, { key: 'k' })).toMatchObject({ kind: isFree ? 'created' : 'occupied' })
    },
  )

  test('a signal by key finds the live run, also beside an ended one of another definition that still has that key', async () => {
    const waits = (name: string, keyScope: 'live' | 'retained') =>
      machine({
        name,
        state: z.object({}),
        keyScope,
        signals: { go: z.null() },
        initial: 'wait',
        steps: {
          wait: ({ waitFor, timedOut, done }) => (timedOut ? done(undefined) : waitFor('go', { goto: 'wait', timeout: '1s' })),
        },
      })
    const engine = await start({ definitions: [waits('ended', 'retained'), waits('alive', 'live')], version, frozen: true })
    await engine.spawnId('ended', {}, { key: 'k' })
    await engine.tick()
    engine.advance(1_000)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    expect(await engine.signal({ key: 'k' }, 'go', null)).toMatchObject({ kind: 'no_target' })
    const alive = await engine.spawnId('alive', {}, { key: 'k' })
    expect(await engine.signal({ key: 'k' }, 'go', null)).toMatchObject({ kind: 'delivered', runId: alive })
  })
})

async function expectHeld(engine: TestEngine, id: string, status: string): Promise<void> {
  expect((await engine.run(id)).status).toBe(status)
  expect(await engine.spawn('flow', {}, { key: 'k' })).toMatchObject({ kind: 'occupied', id, status })
}
