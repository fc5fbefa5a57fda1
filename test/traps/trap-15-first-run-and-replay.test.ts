import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'

const nothing = job({ name: 'nothing', run: () => undefined })
const emptyArray = job({ name: 'empty-array', run: () => [undefined] as never })

const seen: unknown[] = []
const State = z.object({ kept: z.unknown().optional(), when: z.unknown().optional(), count: z.number() })

/** Goes from step to step, in one claim or in several, and writes down what the second and third step see. */
const mover = machine({
  name: 'mover',
  input: z.object({ bag: z.unknown().optional(), apart: z.boolean() }),
  state: State as never,
  initialState: () => ({ count: 0, kept: { list: [1] } }) as never,
  initial: 'first',
  steps: {
    first: ({ next, input }) => {
      const { apart } = input as { apart: boolean }
      const state = { count: 1, kept: { gone: undefined, list: [1] }, when: new Date(0) } as never
      return next('second', { state, ...(apart ? { delay: 1 } : {}) })
    },
    second: ({ next, state, input }) => {
      const own = state as unknown as { kept: { list: number[] } }
      const { apart, bag } = input as { apart: boolean; bag: { items: number[] } }
      seen.push(structuredClone(own), 'gone' in own.kept)
      // what a step does to its values without giving them back is nobody else's business
      own.kept.list.push(2)
      bag.items.push(2)
      return next('third', apart ? { delay: 1 } : {})
    },
    third: ({ done, state, input }) => {
      seen.push(structuredClone(state), structuredClone(input.bag))
      return done(undefined)
    },
  },
})

forEachVersion('trap 15: the first run sees what a replay will see', (version) => {
  const { start } = sharedEngines(version)

  test('C061 trap 15: nothing returned is null, in the first reading and in SQL', async () => {
    const engine = await start({ definitions: [nothing], version })
    const id = await engine.spawnId('nothing')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: null })
    expect(await engine.sql('SELECT jsonb_typeof(result) FROM pawl.runs WHERE id = $1', [id])).toEqual(['null'])
  })

  test('trap 15: undefined in an array would come back as null, and is refused instead', async () => {
    const engine = await start({ definitions: [emptyArray], version })
    const id = await engine.spawnId('empty-array')
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'failed', error: { code: 'invalid_result' } })
  })

  test('C093 trap 15: the next steps of a machine see the same whether they go on in one claim or are claimed anew', async () => {
    const engine = await start({ definitions: [mover], version, frozen: true })
    const runs: unknown[][] = []
    for (const apart of [false, true]) {
      seen.length = 0
      await engine.spawnId('mover', { bag: { items: [1] }, apart })
      const reports = []
      for (let ticks = 0; ticks < 3; ticks += 1) {
        reports.push(await engine.tick())
        engine.advance(10)
      }
      expect(reports.reduce((sum, report) => sum + report.claimed, 0)).toBe(apart ? 3 : 1)
      runs.push([...seen])
    }
    expect(runs[0]).toEqual(runs[1])
    const stored = { count: 1, kept: { list: [1] }, when: '1970-01-01T00:00:00.000Z' }
    expect(runs[0]).toEqual([stored, false, stored, { items: [1] }])
  })
})
