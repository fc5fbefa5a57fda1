import { expect, test } from 'vitest'
import { toCall } from '../../src/core/definition.ts'
import { uuidv7 } from '../../src/core/ids.ts'
import { parseJson, toStored } from '../../src/core/json.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import { lockRuns } from '../../src/db/statements/lock-runs.ts'
import { recheckWaits } from '../../src/db/statements/settle-outcomes.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, finishes, flush, waits } from './outcomes.ts'

const MANY = 70_000

forEachVersion('trap 27: what the wire and the types can hold', (version) => {
  const { start } = sharedEngines(version)
  const startTasks = () => start({ definitions: TRAP_DEFINITIONS, version })

  test('C009 trap 27: 70,000 runs go in one spawn, and 70,000 outcomes in one flush: arrays, not a parameter each', async () => {
    const engine = await startTasks()
    const call = { ...toCall({ definition: 'task', version: 0, input: 1, options: {} }), version: undefined }
    const runs = await Promise.all(
      Array.from({ length: MANY }, () => toNewRun(call, { registry: engine.registry, tenant: 'default' })),
    )
    const answers = await engine.store.spawn(runs)
    expect(answers.every(({ kind }) => kind === 'created')).toBe(true)
    const claimed = await claim(engine, { limit: MANY })
    const strangers = Array.from({ length: MANY }, () => finishes({ ...claimed[0]!, id: uuidv7(), claimId: uuidv7() }))
    const { outcomes } = await flush(engine, [...claimed.map((run) => finishes(run)), ...strangers])
    expect(outcomes.slice(0, claimed.length).every(({ kind }) => kind === 'applied')).toBe(true)
    expect(outcomes.slice(claimed.length).every(({ kind }) => kind === 'stale')).toBe(true)
  }, 120_000)

  test('trap 27: 70,000 ids are one parameter of every statement that takes ids', async () => {
    const engine = await startTasks()
    const ids = Array.from({ length: MANY }, () => uuidv7())
    await engine.database.batch([
      lockRuns('pawl', { ids }),
      recheckWaits('pawl', { now: null, ids, shownRunIds: ids, shownSignalIds: ids.map(() => '1') }),
    ])
  })

  test('trap 27: a statement with more parameters than a message can count is refused before it is sent', async () => {
    const engine = await startTasks()
    const statement = { name: 'many', text: 'SELECT 1', params: Array.from({ length: 65_536 }, () => 1) }
    await expect(engine.database.query(statement)).rejects.toMatchObject({ fate: 'not_sent' })
  })

  test.each([
    ['NUL', 'a\0b'],
    ['a lone surrogate', '\udfff'],
    ['a lone surrogate in a name', { '\ud800': 1 }],
    ['NUL in a name', { 'a\0': 1 }],
    ['a member named __proto__', JSON.parse('{"__proto__": {"admin": true}}')],
    ['a number beyond a double', Number.POSITIVE_INFINITY],
  ])('trap 27: %s is refused where it is written, and nothing is', async (_, value) => {
    const engine = await startTasks()
    await expect(engine.spawn('task', { value })).rejects.toMatchObject({ code: 'invalid_input' })
    expect(await claim(engine)).toEqual([])
    expect(() => toStored(value, { field: 'signal' })).toThrow()
  })

  test.each([
    ['NUL', '"a\\u0000b"'],
    ['a lone surrogate', '"\\ud800"'],
    ['a member named __proto__', '{"a":{"__proto__":1}}'],
    ['1e400', '[1e400]'],
    ['an integer that a double would round', '9007199254740993'],
  ])('trap 27: %s in a body is refused', (_, text) => {
    expect(() => parseJson(text)).toThrow()
  })

  test('trap 27: pairs of surrogates, controls, quotes and braces come through arrays and back as they were', async () => {
    const engine = await startTasks()
    const texts = ['😀', '\u0001\t\n\r', '"\\{},NULL', 'null', 'ä\u2028', '\u001f\u001e', '{"a":1}', "'; DROP TABLE runs; --"]
    for (const text of texts) await engine.spawn('task', { text, [text]: text }, { tags: ['t'] })
    const seen = (await claim(engine)).map((run) => run.input as { text: string })
    expect(seen.map(({ text }) => text).sort()).toEqual([...texts].sort())
    for (const input of seen) expect(input).toEqual({ text: input.text, [input.text]: input.text })
    await engine.spawn('flow')
    const run = await claimOne(engine)
    await flush(engine, [waits(run, ['a'])])
    expect((await engine.run(run.id)).awaits).toEqual(['a'])
  })
})
