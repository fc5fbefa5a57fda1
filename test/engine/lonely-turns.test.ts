import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/index.ts'
import { LonelyTurns } from '../../src/worker/lonely-turns.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claimOf, numbers } from './claim-request.ts'

/** A job that notes in which order it ran, and calls `at` with each. */
function noting() {
  const order: number[] = []
  const box: { at: (n: number) => void } = { at: () => {} }
  const noted = job({
    name: 'noted',
    input: z.object({ n: z.number() }),
    run: ({ input }) => {
      order.push(input.n)
      box.at(input.n)
    },
  })
  return { order, noted, box }
}

/** Claims as many as are spawned together with others and never comes back: each has one loss and is due. */
async function loseTogether(engine: TestEngine, inputs: readonly unknown[]): Promise<void> {
  for (const input of inputs) await engine.spawnId('noted', input)
  await engine.store.claim(claimOf(engine, inputs.length, { leaseMs: 1_000, alone: false }))
  engine.advance(2_000)
}

describe('runs that must be alone', () => {
  const { start } = sharedEngines(18)

  test('C043 many of them do not hold up a run that never lost its host', async () => {
    const { order, noted } = noting()
    const engine = await start({ definitions: [noted], frozen: true })
    await loseTogether(engine, numbers(30))
    await engine.spawnId('noted', { n: 99 })
    await engine.tick()
    expect(order).toHaveLength(31)
    expect(order.indexOf(99)).toBeLessThanOrEqual(1)
  })

  test('C043 a flow whose claims are always full does not keep them waiting', async () => {
    const { order, noted, box } = noting()
    let wallMs = 0
    const engine = await start({
      definitions: [noted],
      frozen: true,
      budget: { batch: 5, concurrency: 5, wallMs: 3_600_000 },
      nowMs: () => wallMs,
    })
    await engine.spawnId('noted', { n: 7_000 })
    await engine.store.claim(claimOf(engine, 1, { leaseMs: 1_000, alone: false }))
    for (const input of numbers(200)) await engine.spawnId('noted', input)
    box.at = (n) => {
      wallMs += 20
      // its lease lapses while the flow goes on
      if (n === 20) engine.advance(2_000)
    }
    await engine.tick()
    expect(order).toHaveLength(201)
    expect(order.indexOf(7_000)).toBeGreaterThan(20)
    expect(order.indexOf(7_000)).toBeLessThan(120)
  })
})

describe('turns', () => {
  test('nobody else waits: at once, again and again', () => {
    const turns = new LonelyTurns()
    turns.noted({ lonely: true, others: false })
    expect(turns.may(0)).toBe(true)
    turns.over(50, 0)
    expect(turns.may(50)).toBe(true)
  })

  test('others wait: they get four times as long as the turn took, making room included', () => {
    const turns = new LonelyTurns()
    const seen = { lonely: true, others: true }
    turns.noted(seen)
    expect(turns.isDue(1_000)).toBe(true)
    turns.over(1_500, 1_300)
    turns.noted(seen)
    expect(turns.may(3_499)).toBe(false)
    expect(turns.isDue(3_499)).toBe(false)
    expect(turns.isDue(3_500)).toBe(true)
  })

  test('room that is not made in time is given up, and the others have their time', () => {
    const turns = new LonelyTurns()
    turns.noted({ lonely: true, others: true })
    expect(turns.isDue(1_000)).toBe(true)
    expect(turns.isDue(5_999)).toBe(true)
    expect(turns.isDue(6_000)).toBe(false)
    turns.noted({ lonely: true, others: true })
    expect(turns.isDue(25_999)).toBe(false)
    expect(turns.isDue(26_000)).toBe(true)
  })

  test('nothing of the kind is there, or somebody else took it: no room is made', () => {
    const turns = new LonelyTurns()
    expect(turns.isDue(1_000)).toBe(false)
    turns.noted({ lonely: true, others: true })
    turns.cameToNothing()
    expect(turns.isDue(1_000)).toBe(false)
  })
})
