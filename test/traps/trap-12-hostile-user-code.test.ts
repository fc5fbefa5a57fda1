import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'

/** What a handler may return or throw without ever having thought of JSON, Postgres or us. */
const HOSTILE: Readonly<Record<string, () => unknown>> = {
  'a value that contains itself': () => {
    const value: Record<string, unknown> = {}
    value.self = value
    return value
  },
  'a BigInt': () => 1n,
  'a toJSON that throws': () => ({
    toJSON: () => {
      throw new Error('no')
    },
  }),
  'a getter that throws': () => ({
    get value() {
      throw new Error('no')
    },
  }),
  'a then that throws': () => ({
    // biome-ignore lint/suspicious/noThenProperty: that is the point
    get then() {
      throw new Error('no')
    },
  }),
  'a thenable that throws': () => ({
    // biome-ignore lint/suspicious/noThenProperty: that is the point
    then: () => {
      throw new Error('no')
    },
  }),
  'NUL in a text': () => 'a\0b',
  'a lone surrogate': () => '\ud800',
  'undefined in an array': () => [undefined],
  NaN: () => Number.NaN,
  'a Map': () => new Map(),
  'more than a payload may be': () => 'x'.repeat(1_048_577),
  'a revoked proxy': () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  },
  'an error whose name throws': () => {
    throw new Nameless('no')
  },
  'a thrown proxy that nobody may look at': () => {
    throw new Proxy(
      {},
      {
        getPrototypeOf: () => {
          throw new Error('no')
        },
      },
    )
  },
  'a thrown nothing': () => {
    throw undefined
  },
  'a rejected hostile error': () => Promise.reject(new Nameless('no')),
}

class Nameless extends Error {
  override get name(): string {
    throw new Error('no name')
  }
}

const hostile = job({
  name: 'hostile',
  input: z.string(),
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
  run: ({ input }) => HOSTILE[input]!() as null,
})
const innocent = job({ name: 'innocent', run: () => 'done' })
const brokenBackoff = job({
  name: 'broken-backoff',
  retry: {
    maxAttempts: 3,
    backoff: () => {
      throw new Error('no delay')
    },
  },
  run: () => {
    throw new Error('thrown')
  },
})
const brokenDecision = job({
  name: 'broken-decision',
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
  run: () => {
    throw new Error('thrown')
  },
  onError: () => {
    throw new Nameless('no decision')
  },
})
const badStatement = job({
  name: 'bad-statement',
  input: z.enum(['object', 'nul', 'syntax', 'many']),
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
  run: ({ input, done }) => {
    const params = { object: [{ a: 1 }], nul: ['a\0'], syntax: [], many: Array.from({ length: 70_000 }, () => 1) }[input]
    return done(null, { commit: [{ sql: input === 'syntax' ? 'SELEC 1' : 'SELECT $1::text', params: params as never }] })
  },
})
const unstorableState = machine({
  name: 'unstorable-state',
  input: z.null(),
  state: z.object({ value: z.string() }),
  initialState: () => ({ value: '' }),
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: 0 } },
  initial: 'start',
  steps: { start: ({ next }) => next('end', { state: { value: '\ud800' } }), end: ({ done }) => done(undefined) },
})

const definitions = [hostile, innocent, brokenBackoff, brokenDecision, badStatement, unstorableState]

forEachVersion('trap 12: what user code does wrong', (version) => {
  const { start } = sharedEngines(version)

  test.each(Object.keys(HOSTILE))('C081 trap 12: %s ends the run, and nothing else', async (what) => {
    const engine = await start({ definitions, version })
    const id = await engine.spawnId('hostile', what)
    const neighbour = await engine.spawnId('innocent')
    const report = await engine.tick()
    expect(report).toMatchObject({ completed: 1, failed: 1, more: false })
    expect(report.requests).toBeLessThan(10)
    expect(await engine.run(id)).toMatchObject({ status: 'failed', losses: 0 })
    expect((await engine.history(id)).length).toBeLessThanOrEqual(2)
    expect(await engine.run(neighbour)).toMatchObject({ status: 'completed', result: 'done' })
  })

  test('trap 12: a backoff function and a decision that throw are failures of the step', async () => {
    const engine = await start({ definitions, version })
    const backoff = await engine.spawnId('broken-backoff')
    const decision = await engine.spawnId('broken-decision')
    expect(await engine.tick()).toMatchObject({ failed: 2, more: false })
    expect(await engine.run(backoff)).toMatchObject({ status: 'failed', error: { message: 'no delay' } })
    expect(await engine.run(decision)).toMatchObject({ status: 'failed' })
  })

  test('trap 12: a state that cannot be stored is a failure of the step that gave it', async () => {
    const engine = await start({ definitions, version })
    const id = await engine.spawnId('unstorable-state', null)
    expect(await engine.tick()).toMatchObject({ failed: 1, more: false })
    expect(await engine.run(id)).toMatchObject({ status: 'failed', step: 'start', state: { value: '' } })
  })

  test.each(['object', 'nul', 'syntax', 'many'] as const)(
    'trap 12: a statement to commit that is no statement (%s) fails its run alone',
    async (kind) => {
      const engine = await start({ definitions, version })
      const id = await engine.spawnId('bad-statement', kind)
      const neighbour = await engine.spawnId('innocent')
      expect(await engine.tick()).toMatchObject({ completed: 1, failed: 1, more: false })
      expect(await engine.run(id)).toMatchObject({ status: 'failed', losses: 0 })
      expect(await engine.run(neighbour)).toMatchObject({ status: 'completed' })
    },
  )
})
