import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'

const Anything = z.object({ x: z.unknown() })
const seen: unknown[] = []

const echo = job({
  name: 'echo',
  input: Anything,
  run: ({ input, headers, fail }: never) => {
    void headers
    const { x } = input as { x: unknown }
    seen.push(x)
    if (x === 'fail') return (fail as (error: unknown) => never)({ x: 1 })
    return { x } as never
  },
} as never)

const waiting = machine({
  name: 'waiting',
  input: z.null(),
  state: z.object({ x: z.number() }),
  initialState: () => ({ x: 1 }),
  signals: { ping: z.object({ x: z.number() }) },
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('ping', { goto: 'end', state: { x: 2 } }),
    end: ({ signals, done }) => {
      seen.push(signals.first('ping')?.payload)
      return done(undefined)
    },
  },
})

forEachVersion('trap 21: JSON is encoded once', (version) => {
  const { start } = sharedEngines(version)
  const startAll = () => start({ definitions: [echo, waiting], version })

  test('trap 21: input, result, headers and origin are objects to SQL, and what was sent to the handler', async () => {
    const engine = await startAll()
    seen.length = 0
    const id = await engine.spawnId('echo', { x: { y: ['1', 1, null, true, 'ä"\\'] } }, { headers: { x: 'h' } })
    await engine.tick()
    expect(seen).toEqual([{ y: ['1', 1, null, true, 'ä"\\'] }])
    expect(await engine.sql("SELECT input->'x'->'y'->>0 FROM pawl.runs WHERE id = $1", [id])).toEqual(['1'])
    expect(await engine.sql("SELECT result->'x'->'y'->>4 FROM pawl.runs WHERE id = $1", [id])).toEqual(['ä"\\'])
    expect(await engine.sql("SELECT headers->>'x' FROM pawl.runs WHERE id = $1", [id])).toEqual(['h'])
    expect(await engine.run(id)).toMatchObject({ input: { x: { y: ['1', 1, null, true, 'ä"\\'] } }, headers: { x: 'h' } })
  })

  test.each([['a text'], ['{"x":1}'], [''], [1], [false], [null], [[]], [[[1]]]])('trap 21: %j stays what it is', async (x) => {
    const engine = await startAll()
    seen.length = 0
    const id = await engine.spawnId('echo', { x })
    await engine.tick()
    expect(seen).toEqual([x])
    expect((await engine.run(id)).result).toEqual({ x })
  })

  test('C139 trap 21: state, the payload of a signal and an error are objects to SQL', async () => {
    const engine = await startAll()
    const id = await engine.spawnId('waiting', null)
    await engine.tick()
    expect(await engine.sql("SELECT state->>'x' FROM pawl.runs WHERE id = $1", [id])).toEqual(['2'])
    await engine.signal({ id }, 'ping', { x: 7 })
    expect(await engine.sql("SELECT payload->>'x' FROM pawl.signals WHERE run_id = $1", [id])).toEqual(['7'])
    seen.length = 0
    await engine.tick()
    expect(seen).toEqual([{ x: 7 }])
    const failing = await engine.spawnId('echo', { x: 'fail' })
    await engine.tick()
    expect(await engine.sql("SELECT error->'data'->>'x' FROM pawl.runs WHERE id = $1", [failing])).toEqual(['1'])
    expect(await engine.sql("SELECT error->'data'->>'x' FROM pawl.history WHERE run_id = $1", [failing])).toEqual(['1'])
  })
})
