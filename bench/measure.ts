import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Adapter } from './adapters/adapter.ts'
import { type Counters, createDatabase, readCounters, urlOf, withClient } from './database.ts'
import type { Sample, Scenario } from './scenarios/scenario.ts'
import type { BenchServer } from './server.ts'
import type { Templates } from './templates.ts'

export interface ChildTask {
  readonly adapter: string
  readonly setting: string
  readonly scenario: string
  readonly url: string
  readonly postmaster: number | undefined
}

/** Marks the line of the result among whatever the queues print. */
export const RESULT_MARK = '@@result '

/** One repetition of one scenario by one adapter in one setting, as it is kept in `results.jsonl`. */
export interface Measurement extends Sample {
  readonly at: string
  readonly scenario: string
  readonly adapter: string
  readonly version: string
  readonly setting: string
  readonly repetition: number
  readonly rate: number
  /** Of the whole process, its start and end included, over the items. */
  readonly perItem: { readonly [K in keyof Counters]: number }
}

export interface MeasureParams {
  readonly server: BenchServer
  readonly templates: Templates
  readonly adapter: Adapter
  readonly setting: string
  readonly scenario: Scenario
  readonly repetition: number
}

const DATABASE = 'bench_run'
const CHILD = fileURLToPath(new URL(import.meta.url.endsWith('.ts') ? './child.ts' : './child.js', import.meta.url))

export async function measure(params: MeasureParams): Promise<Measurement> {
  const { server, templates, adapter, setting, scenario, repetition } = params
  await createDatabase(server.url, DATABASE, await templates.find(adapter, scenario.template))
  const url = urlOf(server.url, DATABASE)
  await withClient(url, (client) => client.query('SELECT pg_stat_statements_reset()'))
  // every measurement pays for its own full-page images and for no write that somebody before it left
  await withClient(server.url, (client) => client.query('CHECKPOINT'))
  const before = await readCounters(server.url, DATABASE)
  const { postmaster } = server
  const sample = await runChild({ adapter: adapter.name, setting, scenario: scenario.name, url, postmaster })
  const after = await readCounters(server.url, DATABASE)
  const per = (name: keyof Counters) => (after[name] - before[name]) / sample.items
  return {
    at: new Date().toISOString(),
    scenario: scenario.name,
    adapter: adapter.name,
    version: adapter.version,
    setting,
    repetition,
    ...sample,
    rate: sample.items / sample.seconds,
    perItem: {
      transactions: per('transactions'),
      statements: per('statements'),
      walBytes: per('walBytes'),
      fullPageImages: per('fullPageImages'),
    },
  }
}

function runChild(task: ChildTask): Promise<Sample> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...process.execArgv, CHILD, JSON.stringify(task)], {
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let out = ''
    let err = ''
    child.stdout.on('data', (data) => {
      out += data
    })
    child.stderr.on('data', (data) => {
      err += data
    })
    child.once('error', reject)
    child.once('close', (code) => {
      const line = out.split('\n').findLast((one) => one.startsWith(RESULT_MARK))
      if (line) return resolve(JSON.parse(line.slice(RESULT_MARK.length)))
      reject(new Error(`${task.adapter} ${task.setting} ${task.scenario} ended with ${code}: ${(err || out).slice(-2_000)}`))
    })
  })
}
