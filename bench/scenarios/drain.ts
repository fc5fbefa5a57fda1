import { withClient } from '../database.ts'
import { sleep } from '../numbers.ts'
import { CHAINS, DRAINED, STEPS_PER_CHAIN } from '../templates.ts'
import type { Sample, Scenario, Subject } from './scenario.ts'

/** A drain that takes longer is given up: 20,000 runs in that time is 330 a second. */
const LIMIT_MS = 60_000
const ASK_MS = 5

interface DrainOptions {
  /** Handler starts to wait for. */
  readonly starts: number
  /** More is waiting than is counted: the clock stops at the last start, not when nothing is left. */
  readonly partial: boolean
}

export const drain: Scenario = {
  name: 'drain',
  title: 'Drain of 20,000 waiting no-op runs',
  unit: 'runs',
  template: 'waiting-20k',
  run: (subject) => runDrain(subject, { starts: DRAINED, partial: false }),
}

export const drainManyWaiting: Scenario = {
  name: 'drain-waiting',
  title: 'The first 20,000 of 200,000 waiting',
  unit: 'runs',
  template: 'waiting-200k',
  run: (subject) => runDrain(subject, { starts: DRAINED, partial: true }),
}

export const drainManyFinished: Scenario = {
  name: 'drain-finished',
  title: 'Drain of 20,000 with 1,000,000 finished rows',
  unit: 'runs',
  template: 'finished-1m',
  run: (subject) => runDrain(subject, { starts: DRAINED, partial: false }),
}

export const chains: Scenario = {
  name: 'chains',
  title: '2,000 chains of three steps',
  unit: 'steps',
  template: 'chains-2k',
  run: (subject) => runDrain(subject, { starts: CHAINS * STEPS_PER_CHAIN, partial: false }),
}

/** From the first handler's start until nothing is pending. The process does nothing but run. */
async function runDrain({ adapter, setting, url, meter }: Subject, { starts, partial }: DrainOptions): Promise<Sample> {
  let started = 0
  let lastAt = 0
  let requestsBefore = 0
  let finish = (): void => {}
  const all = new Promise<void>((resolve) => {
    finish = resolve
  })
  const engine = await adapter.open(url, setting, () => {
    if (started === 0) {
      requestsBefore = engine.requests?.() ?? 0
      meter.begin()
    }
    started += 1
    if (started !== starts) return
    lastAt = performance.now()
    finish()
  })
  await engine.start()
  await Promise.race([all, sleep(LIMIT_MS)])
  if (started < starts) throw new Error(`${adapter.name} ${setting}: only ${started} of ${starts} within ${LIMIT_MS} ms`)
  if (!partial) await untilNothingIsPending(url, adapter.pendingSql)
  const usage = meter.end(partial ? lastAt : undefined)
  const requests = engine.requests && engine.requests() - requestsBefore
  await engine.stop()
  return { ...usage, items: starts, requests }
}

export async function untilNothingIsPending(url: string, pendingSql: string): Promise<void> {
  await withClient(url, async (client) => {
    for (;;) {
      const { rows } = await client.query<{ pending: boolean }>(pendingSql)
      if (rows[0]?.pending !== true) return
      await sleep(ASK_MS)
    }
  })
}
