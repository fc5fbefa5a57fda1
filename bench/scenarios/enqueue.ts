import { parallel } from '../numbers.ts'
import type { Sample, Scenario, Subject } from './scenario.ts'

const SINGLE = 5_000
const IN_FLIGHT = 20
const ROWS = 100_000
const BATCH = 1_000
/** Before the clock starts: connections, prepared statements, compiled code. */
const WARM_UP = 50

export const enqueueSingle: Scenario = {
  name: 'enqueue-single',
  title: '5,000 runs enqueued one by one, 20 in flight',
  unit: 'runs',
  template: 'empty',
  run: (subject) => measured(subject, SINGLE, (engine) => parallel(SINGLE, IN_FLIGHT, (index) => engine.enqueue(index))),
}

export const enqueueBatch: Scenario = {
  name: 'enqueue-batch',
  title: '100,000 runs enqueued in batches of 1,000',
  unit: 'rows',
  template: 'empty',
  run: (subject) =>
    measured(subject, ROWS, async (engine) => {
      for (let from = 0; from < ROWS; from += BATCH) await engine.enqueueBatch(from, BATCH)
    }),
}

type Engine = Awaited<ReturnType<Subject['adapter']['open']>>

async function measured(
  { adapter, setting, url, meter }: Subject,
  items: number,
  work: (engine: Engine) => Promise<void>,
): Promise<Sample> {
  const engine = await adapter.open(url, setting, () => {})
  await parallel(WARM_UP, IN_FLIGHT, (index) => engine.enqueue(index))
  const requestsBefore = engine.requests?.() ?? 0
  meter.begin()
  await work(engine)
  const usage = meter.end()
  const requests = engine.requests && engine.requests() - requestsBefore
  await engine.stop()
  return { ...usage, items, requests }
}
