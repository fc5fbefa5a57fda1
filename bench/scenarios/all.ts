import { chains, drain, drainManyFinished, drainManyWaiting } from './drain.ts'
import { enqueueBatch, enqueueSingle } from './enqueue.ts'
import { fanOut } from './fan-out.ts'
import { idleStart } from './latency.ts'
import type { Scenario } from './scenario.ts'

export const scenarios: readonly Scenario[] = [
  drain,
  drainManyWaiting,
  drainManyFinished,
  enqueueSingle,
  enqueueBatch,
  idleStart,
  chains,
  fanOut,
]

export function findScenario(name: string): Scenario {
  const scenario = scenarios.find((one) => one.name === name)
  if (scenario === undefined) throw new Error(`No scenario "${name}": one of ${scenarios.map((one) => one.name).join(', ')}`)
  return scenario
}
