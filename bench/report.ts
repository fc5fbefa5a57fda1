import type { Measurement } from './measure.ts'
import { median, percentile } from './numbers.ts'
import type { Entry, Group } from './plan.ts'
import type { Scenario } from './scenarios/scenario.ts'

/** Repetitions of one entry, in order; a repetition that failed is missing. */
export type Results = ReadonlyMap<string, readonly Measurement[]>

export function keyOf(scenario: string, { adapter, setting }: Entry): string {
  return JSON.stringify([scenario, adapter, setting])
}

type Row = readonly string[]

export function toTable(head: Row, rows: readonly Row[]): string {
  const line = (cells: Row) => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

/** One table per group. */
export function reportGroup(scenario: Scenario, group: Group, results: Results): string {
  const rows = group.entries.map((entry) =>
    scenario.name === 'idle-start' ? latencyRow(entry, group, results) : rateRow(entry, group, results),
  )
  const head = scenario.name === 'idle-start' ? LATENCY_HEAD : rateHead(scenario.unit)
  return `### ${scenario.title}\n\n${toTable(head, rows)}`
}

const COST_HEAD = ['requests', 'statements', 'transactions', 'WAL bytes', 'of it page images', 'PG CPU µs', 'Node CPU µs']

function rateHead(unit: string): Row {
  const one = unit.slice(0, -1)
  return [
    'queue',
    'setting',
    `${unit}/s (min–max)`,
    '÷ minimal',
    '÷ pg-boss',
    'CPU ÷ minimal',
    ...COST_HEAD.map((cost) => `${cost}/${one}`),
    'RSS MB',
    'CPU of others',
  ]
}

const LATENCY_HEAD: Row = ['queue', 'setting', 'samples', 'p50 ms', 'p99 ms', 'max ms', 'p50 ÷ minimal', 'RSS MB']

function rateRow(entry: Entry, group: Group, results: Results): Row {
  const own = results.get(keyOf(group.scenario, entry)) ?? []
  if (own.length === 0) return [entry.adapter, entry.setting, 'failed']
  const rates = own.map((measurement) => measurement.rate)
  const of = (value: (measurement: Measurement) => number) => median(own.map(value))
  return [
    entry.adapter,
    entry.setting,
    `${whole(median(rates))} (${whole(Math.min(...rates))}–${whole(Math.max(...rates))})`,
    ratio(ratioTo(own, minimalOf(entry, group, results))),
    ratio(ratioTo(own, bestOf('pg-boss', group, results))),
    ratio(of(cpuSeconds) / median(minimalOf(entry, group, results).map(cpuSeconds))),
    fraction(of((one) => (one.requests === undefined ? Number.NaN : one.requests / one.items))),
    fraction(of((one) => one.perItem.statements)),
    fraction(of((one) => one.perItem.transactions)),
    whole(of((one) => one.perItem.walBytes)),
    fraction(of((one) => one.perItem.fullPageImages)),
    whole(of((one) => (one.postgresCpuSeconds / one.items) * 1e6)),
    whole(of((one) => (one.nodeCpuSeconds / one.items) * 1e6)),
    whole(of((one) => one.rssMb)),
    percent(of((one) => one.othersCpu)),
  ]
}

/** Of PostgreSQL and of the process: unlike time it says something on a busy machine too. */
function cpuSeconds({ postgresCpuSeconds, nodeCpuSeconds }: Measurement): number {
  return postgresCpuSeconds + nodeCpuSeconds
}

function latencyRow(entry: Entry, group: Group, results: Results): Row {
  const latencies = latenciesOf(results.get(keyOf(group.scenario, entry)))
  if (latencies.length === 0) return [entry.adapter, entry.setting, 'failed']
  const minimal = minimalOf(entry, group, results)
  const own = results.get(keyOf(group.scenario, entry)) ?? []
  return [
    entry.adapter,
    entry.setting,
    String(latencies.length),
    percentile(latencies, 0.5).toFixed(1),
    percentile(latencies, 0.99).toFixed(1),
    Math.max(...latencies).toFixed(1),
    ratio(percentile(latencies, 0.5) / percentile(latenciesOf(minimal), 0.5)),
    whole(median(own.map((one) => one.rssMb))),
  ]
}

export function latenciesOf(measurements: readonly Measurement[] | undefined): readonly number[] {
  return measurements?.flatMap((one) => one.latenciesMs ?? []) ?? []
}

export function minimalOf(entry: Entry, group: Group, results: Results): readonly Measurement[] {
  if (entry.against === undefined) return []
  return results.get(keyOf(group.scenario, { adapter: 'minimal', setting: entry.against })) ?? []
}

/** The setting of that queue with the highest median. */
export function bestOf(adapter: string, group: Group, results: Results): readonly Measurement[] {
  const candidates = group.entries
    .filter((entry) => entry.adapter === adapter)
    .map((entry) => results.get(keyOf(group.scenario, entry)) ?? [])
    .filter((measurements) => measurements.length > 0)
  const rateOf = (measurements: readonly Measurement[]) => median(measurements.map((one) => one.rate))
  return candidates.sort((left, right) => rateOf(right) - rateOf(left))[0] ?? []
}

/** The median over repetitions of the ratio within each: neighbours in time are compared with each other. */
export function ratioTo(own: readonly Measurement[], other: readonly Measurement[]): number {
  const ratios = own.flatMap((one) => {
    const neighbour = other.find((candidate) => candidate.repetition === one.repetition)
    return neighbour ? [one.rate / neighbour.rate] : []
  })
  return median(ratios)
}

const NOTHING = '–'
const whole = (value: number) => (Number.isFinite(value) ? Math.round(value).toLocaleString('en') : NOTHING)
const ratio = (value: number) => (Number.isFinite(value) ? value.toFixed(2) : NOTHING)
const percent = (value: number) => (Number.isFinite(value) ? `${Math.round(value * 100)} %` : NOTHING)

function fraction(value: number): string {
  if (!Number.isFinite(value)) return NOTHING
  return value >= 10 ? whole(value) : value >= 0.1 ? value.toFixed(2) : value.toFixed(4)
}
