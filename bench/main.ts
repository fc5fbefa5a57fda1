/**
 * `npm run bench [-- --quick] [--reps 3] [--only drain,chains] [--adapters pawl,minimal]`: measures, appends each measurement to
 * `results.jsonl` and prints tables; a full run also writes them to `RESULTS.md`.
 */
import { appendFileSync, existsSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { loadAdapter } from './adapters/all.ts'
import { describeEnvironment } from './environment.ts'
import { type Measurement, measure } from './measure.ts'
import { median } from './numbers.ts'
import { type Entry, type Group, makePlan } from './plan.ts'
import { keyOf, reportGroup, toTable } from './report.ts'
import { findScenario } from './scenarios/all.ts'
import { type BenchServer, openServer } from './server.ts'
import { reportTargets } from './targets.ts'
import { createTemplates, dropTemplates, type Templates } from './templates.ts'

const HELP = `npm run bench -- [options]
  --quick            under three minutes: two repetitions of the core
  --reps <n>         repetitions of everything
  --only <a,b>       scenarios: drain, drain-waiting, drain-finished, enqueue-batch, enqueue-single, idle-start, chains, fan-out
  --adapters <a,b>   minimal, pawl, pg-boss, graphile-worker
BENCH_PGHOST (BENCH_PGPORT, BENCH_PGUSER, BENCH_PGPASSWORD) names a server with pg_stat_statements; else one is started.`

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      reps: { type: 'string' },
      only: { type: 'string' },
      adapters: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return console.log(HELP)
  const only = toList(values.only)
  const adapters = toList(values.adapters)
  for (const name of only) findScenario(name)
  const repetitions = values.reps === undefined ? undefined : Number(values.reps)
  const groups = makePlan({ quick: values.quick, repetitions, only, adapters })
  const server = await openServer(process.env)
  try {
    const report = await runAll(server, groups)
    const isWhole = !values.quick && only.length === 0 && adapters.length === 0
    if (isWhole) writeFileSync(join(FOLDER, 'RESULTS.md'), report)
  } finally {
    await dropTemplates(server.url)
    await server.stop()
  }
}

/** The package's folder, from the sources and from what is built of them. */
const HERE = dirname(fileURLToPath(import.meta.url))
const FOLDER = existsSync(join(HERE, 'package.json')) ? HERE : join(HERE, '../..')

function toList(names: string | undefined): readonly string[] {
  return names === undefined ? [] : names.split(',')
}

async function runAll(server: BenchServer, groups: readonly Group[]): Promise<string> {
  const environment = toTable(['', ''], await describeEnvironment(server))
  console.log(`${environment}\n`)
  const templates = createTemplates(server.url)
  const results = new Map<string, Measurement[]>()
  const tables: string[] = []
  for (const group of groups) {
    await runGroup({ server, templates, group, results })
    const table = reportGroup(findScenario(group.scenario), group, results)
    console.log(`\n${table}\n`)
    tables.push(table)
  }
  const targets = reportTargets(groups, results)
  console.log(targets)
  return `${[INTRODUCTION, environment, describeCompany(results), targets, ...tables].join('\n\n')}\n`
}

/** How far the machine was our own. */
function describeCompany(results: ReadonlyMap<string, readonly Measurement[]>): string {
  const shares = [...results.values()].flat().map(({ othersCpu }) => othersCpu)
  const share = `${Math.round(median(shares) * 100)} %`
  if (median(shares) < QUIET) return `Others used ${share} of the processors meanwhile (median).`
  return `**Others used ${share} of the processors meanwhile (median).** Rates and latencies are far below what the machine can do, and
favour whoever keeps more processes runnable: compare "CPU ÷ minimal", WAL, transactions and memory, which company hardly changes.`
}

/** Share of the processors that others may have before times stop meaning much. */
const QUIET = 0.1

const INTRODUCTION = `# Results

Written by \`npm run bench\`. Medians; ratios are medians over repetitions of the ratio between neighbours in time, and are what to compare
between machines: absolute numbers belong to this one. "÷ minimal" divides by the hand-written loop with as many connections, which keeps no
history and guards nothing; "÷ pg-boss" by its best setting here. graphile-worker deletes finished jobs and keeps no history. "CPU of others" is
the share of the machine that neither the queue nor its PostgreSQL used.`

interface RunGroupParams {
  readonly server: BenchServer
  readonly templates: Templates
  readonly group: Group
  readonly results: Map<string, Measurement[]>
}

async function runGroup({ server, templates, group, results }: RunGroupParams): Promise<void> {
  const scenario = findScenario(group.scenario)
  for (let repetition = 0; repetition < group.repetitions; repetition++) {
    for (const entry of group.entries) {
      try {
        const adapter = await loadAdapter(entry.adapter)
        const measurement = await measure({ server, templates, adapter, setting: entry.setting, scenario, repetition })
        appendFileSync(join(FOLDER, 'results.jsonl'), `${JSON.stringify(measurement)}\n`)
        const key = keyOf(group.scenario, entry)
        results.set(key, [...(results.get(key) ?? []), measurement])
        console.log(progress(entry, measurement))
      } catch (error) {
        console.error(`${group.scenario} ${entry.adapter} ${entry.setting} failed: ${String(error)}`)
      }
    }
  }
}

function progress(entry: Entry, { scenario, repetition, rate, othersCpu }: Measurement): string {
  const others = Number.isFinite(othersCpu) ? `, others ${Math.round(othersCpu * 100)} % of the CPU` : ''
  return `${scenario} #${repetition + 1} ${entry.adapter} ${entry.setting}: ${Math.round(rate)}/s${others}`
}

await main()
