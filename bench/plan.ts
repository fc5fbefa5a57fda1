/** What is measured beside what. Everything in one group is repeated in turn (A B C A B C), so that a busy moment strikes all alike. */

export interface Entry {
  readonly adapter: string
  readonly setting: string
  /** The setting of the minimal loop that its rate is divided by. */
  readonly against?: string
}

export interface Group {
  readonly scenario: string
  readonly repetitions: number
  readonly entries: readonly Entry[]
}

const one = { against: 'update 1×100' }
const four = { against: 'update 4×100' }
const client = { setting: 'client', against: 'client' }

const clients: readonly Entry[] = [
  { adapter: 'minimal', ...client },
  { adapter: 'pawl', ...client },
  { adapter: 'pg-boss', ...client },
  { adapter: 'graphile-worker', ...client },
]

const drainCore: readonly Entry[] = [
  { adapter: 'minimal', setting: 'update 1×100', ...one },
  { adapter: 'pawl', setting: '1×100', ...one },
  { adapter: 'pawl', setting: '1×500', ...one },
  { adapter: 'minimal', setting: 'update 4×100', ...four },
  { adapter: 'pawl', setting: '4×100', ...four },
  { adapter: 'pg-boss', setting: '4×100', ...four },
  { adapter: 'graphile-worker', setting: 'local queue 500, c24', ...four },
]

const drainMore: readonly Entry[] = [
  { adapter: 'minimal', setting: 'update 1×500', ...one },
  { adapter: 'minimal', setting: 'fused 1×100', ...one },
  { adapter: 'pawl', setting: '1×100, one in flight', ...one },
  { adapter: 'pg-boss', setting: '1×100', ...one },
  { adapter: 'pg-boss', setting: '1×1000', ...one },
  { adapter: 'minimal', setting: 'fused 4×100', ...four },
  { adapter: 'pawl', setting: '4×250', ...four },
  { adapter: 'pg-boss', setting: '10×100', ...four },
  { adapter: 'graphile-worker', setting: 'default c10', ...four },
  { adapter: 'graphile-worker', setting: 'local queue 500, c100', ...four },
]

/** Beside the plain one: what limits cost. */
const drainLimited: readonly Entry[] = [
  { adapter: 'pawl-limited', setting: '4×100', ...four },
  { adapter: 'pawl-sharded', setting: '4×100', ...four },
]

const deep: readonly Entry[] = [
  { adapter: 'minimal', setting: 'update 1×100', ...one },
  { adapter: 'pawl', setting: '1×100', ...one },
  { adapter: 'minimal', setting: 'update 4×100', ...four },
  { adapter: 'pawl', setting: '4×100', ...four },
  { adapter: 'pg-boss', setting: '4×100', ...four },
]

const idle: readonly Entry[] = [
  { adapter: 'minimal', setting: 'update 1×100', ...one },
  { adapter: 'pawl', setting: '4×100', ...one },
  { adapter: 'pg-boss', setting: 'notify', ...one },
  { adapter: 'graphile-worker', setting: 'default c10', ...one },
]

const flows: readonly Entry[] = [
  { adapter: 'minimal', setting: 'update 1×100', ...one },
  { adapter: 'pawl', setting: '1×100', ...one },
  { adapter: 'minimal', setting: 'update 4×100', ...four },
  { adapter: 'pawl', setting: '4×100', ...four },
]

export interface PlanOptions {
  /** Under three minutes: two repetitions of the core, without the databases that take long to fill. */
  readonly quick: boolean
  readonly repetitions: number | undefined
  /** Names of scenarios and adapters; none: all. */
  readonly only: readonly string[]
  readonly adapters: readonly string[]
}

export function makePlan({ quick, repetitions, only, adapters }: PlanOptions): readonly Group[] {
  const times = repetitions ?? (quick ? 2 : 5)
  const few = repetitions ?? (quick ? 1 : 3)
  const groups: readonly Group[] = [
    { scenario: 'drain', repetitions: times, entries: quick ? drainCore : [...drainCore, ...drainLimited, ...drainMore] },
    ...(quick && only.length === 0
      ? []
      : [
          { scenario: 'drain-waiting', repetitions: few, entries: deep },
          { scenario: 'drain-finished', repetitions: few, entries: deep },
        ]),
    { scenario: 'enqueue-batch', repetitions: times, entries: clients },
    { scenario: 'enqueue-single', repetitions: few, entries: clients },
    { scenario: 'idle-start', repetitions: few, entries: idle },
    { scenario: 'chains', repetitions: few, entries: flows },
    { scenario: 'fan-out', repetitions: few, entries: flows },
  ]
  const wanted = (name: string) => adapters.length === 0 || adapters.includes(name)
  return groups
    .filter((group) => only.length === 0 || only.includes(group.scenario))
    .map((group) => ({ ...group, entries: group.entries.filter((entry) => wanted(entry.adapter)) }))
}
