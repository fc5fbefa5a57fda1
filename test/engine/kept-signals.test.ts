import { afterAll, beforeAll, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { startEngine, type TestEngine } from '../support/engine.ts'

const seen: string[][] = []

/** Waits for `a`, then for `b`, then for `a` again, and notes what each step was shown. */
const turns = machine({
  name: 'turns',
  state: z.object({}),
  signals: { a: z.number(), b: z.number() },
  initial: 'first',
  steps: {
    first: ({ waitFor }) => waitFor('a', { goto: 'second' }),
    second: ({ signals, waitFor }) => {
      seen.push(signals.all.map((signal) => `${signal.name}${signal.payload}`))
      return waitFor('b', { goto: 'third' })
    },
    third: ({ signals, waitFor }) => {
      seen.push(signals.all.map((signal) => `${signal.name}${signal.payload}`))
      return waitFor('a', { goto: 'last' })
    },
    last: ({ signals, done }) => {
      seen.push(signals.all.map((signal) => `${signal.name}${signal.payload}`))
      return done(undefined)
    },
  },
})

let broken = true
const child = job({ name: 'kept-child', run: () => 7 })

/** Fails for good in the step that was woken, until it is mended. */
const failing = machine({
  name: 'failing',
  state: z.object({}),
  signals: { go: z.number() },
  output: z.object({ go: z.number(), children: z.number() }),
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('go', { goto: 'spread' }),
    spread: ({ signals, state, join, fail }) => {
      if (broken) return fail('not yet')
      return signals.first('go') ? join([child.with(null)], { goto: 'gather', state }) : fail('the signal is gone')
    },
    gather: ({ children, done, fail }) => {
      const [first] = children(child)
      if (!first) return fail('the children are gone')
      return gatherBroken ? fail('not yet either') : done({ go: 1, children: children(child).length })
    },
  },
})
let gatherBroken = true

let engine: TestEngine
beforeAll(async () => {
  engine = await startEngine({ definitions: [turns, failing, child] })
})
afterAll(() => engine.close())

test('C125 a step that waits for another name is done with the signal it was shown', async () => {
  const id = await engine.spawnId('turns', {})
  await engine.tick()
  for (const [name, payload] of [
    ['a', 1],
    ['b', 1],
    ['a', 2],
  ] as const) {
    await engine.signal({ id }, name, payload)
    await engine.tick()
  }
  expect(seen).toEqual([['a1'], ['b1'], ['a2']])
  expect((await engine.run(id)).status).toBe('completed')
})

test('a run that failed keeps its signals and its children for a retry by hand', async () => {
  const id = await engine.spawnId('failing', {})
  await engine.tick()
  await engine.signal({ id }, 'go', 1)
  await engine.tick()
  expect((await engine.run(id)).status).toBe('failed')
  broken = false
  await engine.store.retry(id, { tenant: 'default' })
  await engine.tick()
  expect((await engine.run(id)).error?.message).toBe('not yet either')
  gatherBroken = false
  await engine.store.retry(id, { tenant: 'default' })
  await engine.tick()
  expect((await engine.run(id)).result).toEqual({ go: 1, children: 1 })
})

const mailbox: number[] = []
const reader = machine({
  name: 'mailbox',
  state: z.object({}),
  signals: { item: z.number(), stop: z.null() },
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor(['item', 'stop'], { goto: 'read' }),
    read: ({ signals, waitFor, done }) => {
      for (const signal of signals.all) if (signal.name === 'item') mailbox.push(signal.payload)
      return signals.first('stop') ? done(undefined) : waitFor(['item', 'stop'], { goto: 'read' })
    },
  },
})

test('C125 a step that waits for the same names in a loop sees each signal once', async () => {
  const other = await startEngine({ definitions: [reader], on: engine.fresh, environment: 'mailbox' })
  const id = await other.spawnId('mailbox', {})
  await other.tick()
  for (const n of [1, 2, 3]) {
    await other.signal({ id }, 'item', n)
    await other.tick()
  }
  await other.signal({ id }, 'item', 4)
  await other.signal({ id }, 'stop', null)
  await other.tick()
  expect(mailbox).toEqual([1, 2, 3, 4])
  expect((await other.run(id)).status).toBe('completed')
  await other.close()
})

test('a run that was cancelled while it waited is not retried: its next step was to be entered by what it waited for', async () => {
  const id = await engine.spawnId('turns', {})
  await engine.tick()
  await engine.store.cancel(id, { tenant: 'default', by: null })
  expect(await engine.store.retry(id, { tenant: 'default' })).toEqual({ kind: 'not_retryable', status: 'cancelled' })
  expect((await engine.run(id)).status).toBe('cancelled')
})
