import type { Adapter } from '../adapters/adapter.ts'
import type { Meter, Usage } from '../meter.ts'
import type { TemplateName } from '../templates.ts'

/** What is measured, in a process of its own. */
export interface Subject {
  readonly adapter: Adapter
  readonly setting: string
  /** Of a fresh copy of the scenario's template. */
  readonly url: string
  readonly meter: Meter
}

export interface Sample extends Usage {
  /** Runs (or steps) that the time was spent on. */
  readonly items: number
  readonly latenciesMs?: readonly number[]
  /** Database requests in that time, where the queue counts them. */
  readonly requests?: number | undefined
}

export interface Scenario {
  readonly name: string
  readonly title: string
  /** What `items` counts. */
  readonly unit: 'runs' | 'steps' | 'rows'
  /** What the database holds when it begins. */
  readonly template: TemplateName
  run(subject: Subject): Promise<Sample>
}
