/** What pawl has set itself, and how far it has come. Nothing here makes the command fail: times belong to a machine. */
import type { Measurement } from './measure.ts'
import { median, percentile } from './numbers.ts'
import type { Group } from './plan.ts'
import { bestOf, keyOf, latenciesOf, type Results, ratioTo, toTable } from './report.ts'

interface Target {
  readonly what: string
  readonly asked: string
  /** NaN: not measured. */
  readonly got: number
  readonly met: (got: number) => boolean
  readonly digits: number
}

const atLeast = (bound: number) => (got: number) => got >= bound
const atMost = (bound: number) => (got: number) => got <= bound

export function reportTargets(groups: readonly Group[], results: Results): string {
  const measured = targets(groups, results).filter(({ got }) => Number.isFinite(got))
  const rows = measured.map(({ what, asked, got, met, digits }) => [
    what,
    asked,
    got.toFixed(digits),
    met(got) ? 'yes' : '**no**',
  ])
  return `### Targets\n\n${toTable(['what', 'asked', 'measured', 'met'], rows)}`
}

function targets(groups: readonly Group[], results: Results): readonly Target[] {
  const of = (scenario: string, adapter: string, setting: string) => results.get(keyOf(scenario, { adapter, setting })) ?? []
  const drains = groups.find((group) => group.scenario === 'drain')
  const best = (adapter: string) => (drains ? bestOf(adapter, drains, results) : [])
  const one = of('drain', 'pawl', '1×100')
  const four = of('drain', 'pawl', '4×100')
  const middle = (measurements: readonly Measurement[], value: (one: Measurement) => number) => median(measurements.map(value))
  const batch = (adapter: string) => of('enqueue-batch', adapter, 'client')
  const idle = percentile(latenciesOf(of('idle-start', 'pawl', '4×100')), 0.5)
  return [
    {
      what: "drain, pawl's best ÷ pg-boss's best",
      asked: '≥ 1.00',
      got: ratioTo(best('pawl'), best('pg-boss')),
      met: atLeast(1),
      digits: 2,
    },
    {
      what: 'drain, one connection ÷ minimal',
      asked: '≥ 0.45',
      got: ratioTo(one, of('drain', 'minimal', 'update 1×100')),
      met: atLeast(0.45),
      digits: 2,
    },
    {
      what: 'drain, four connections ÷ minimal',
      asked: '≥ 0.35',
      got: ratioTo(four, of('drain', 'minimal', 'update 4×100')),
      met: atLeast(0.35),
      digits: 2,
    },
    {
      what: "drain, pawl's best ÷ graphile-worker's best",
      asked: '1.00 is the mark',
      got: ratioTo(best('pawl'), best('graphile-worker')),
      met: atLeast(1),
      digits: 2,
    },
    ...['drain-waiting', 'drain-finished'].map((scenario) => ({
      what: `${scenario}, four connections ÷ the plain drain`,
      asked: '≥ 0.75',
      got: middle(of(scenario, 'pawl', '4×100'), (m) => m.rate) / middle(four, (m) => m.rate),
      met: atLeast(0.75),
      digits: 2,
    })),
    {
      what: 'drain with a tenth limited ÷ the plain drain, in time',
      asked: '≤ 1.30',
      got: ratioTo(four, of('drain', 'pawl-limited', '4×100')),
      met: atMost(1.3),
      digits: 2,
    },
    {
      what: 'drain through a gate of eight shards ÷ the plain drain',
      asked: '≥ 0.80',
      got: ratioTo(of('drain', 'pawl-sharded', '4×100'), four),
      met: atLeast(0.8),
      digits: 2,
    },
    {
      what: 'enqueue in batches ÷ minimal',
      asked: '≥ 0.43',
      got: ratioTo(batch('pawl'), batch('minimal')),
      met: atLeast(0.43),
      digits: 2,
    },
    {
      what: 'WAL bytes per run, one connection',
      asked: '≤ 2,200',
      got: middle(one, (m) => m.perItem.walBytes),
      met: atMost(2_200),
      digits: 0,
    },
    {
      what: 'transactions per run, one connection',
      asked: '≤ 0.03',
      got: middle(one, (m) => m.perItem.transactions),
      met: atMost(0.03),
      digits: 4,
    },
    {
      what: 'resident memory while draining, MB',
      asked: '≤ 110',
      got: middle(four, (m) => m.rssMb),
      met: atMost(110),
      digits: 0,
    },
    { what: 'idle start by kick, p50 ms', asked: '≤ 5.0', got: idle, met: atMost(5), digits: 1 },
  ]
}
