import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type pg from 'pg'
import { toCall } from '../../src/core/definition.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import { createRegistry } from '../../src/core/registry.ts'
import type { Store } from '../../src/core/store.ts'
import { definitions } from './definitions.ts'

export interface SoakOptions {
  readonly connectionString: string
  readonly store: Store
  readonly pool: pg.Pool
  readonly runs: number
  readonly kills: number
  /** Engines at a time. */
  readonly processes: number
  /** A process is killed at a random moment of this after it came up, in milliseconds. */
  readonly killWithinMs: number
  readonly log?: (line: string) => void
}

export interface SoakReport {
  readonly kills: number
  readonly runs: number
  readonly effects: number
  /** Claims that a kill interrupted. */
  readonly losses: number
  readonly violations: readonly string[]
}

const WORKER = fileURLToPath(new URL('./worker-process.ts', import.meta.url))
const FAN_WIDTH = 10
/** Runs spawned by one request. */
const SPAWNED_AT_ONCE = 200
/** Longest time for all to end once the killing is over. */
const SETTLE_MS = 60_000

/** Runs jobs, machines and fan-outs while their engines are killed with SIGKILL, then compares effects, attempts, history and results. */
export async function soak(options: SoakOptions): Promise<SoakReport> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-soak-'))
  const effectsFile = join(folder, 'effects.log')
  writeFileSync(effectsFile, '')
  try {
    const spawning = spawnAll(options)
    const killing = Promise.all(
      Array.from({ length: options.processes }, (_, index) => killRepeatedly(options, effectsFile, index)),
    )
    const waiting = await spawning
    const signalling = signalAll(options, waiting)
    await killing
    await signalling
    await untilAllEnded(options, effectsFile)
    return await judge(options, readEffects(effectsFile))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function spawnAll({ store, runs }: SoakOptions): Promise<readonly string[]> {
  const registry = createRegistry(definitions)
  const waiting: string[] = []
  for (let from = 0; from < runs; from += SPAWNED_AT_ONCE) {
    const numbers = Array.from({ length: Math.min(SPAWNED_AT_ONCE, runs - from) }, (_, index) => from + index)
    const calls = numbers.map((n) => {
      if (n % 50 === 0) return toCall({ definition: 'fan', version: 1, input: { width: FAN_WIDTH }, options: undefined })
      if (n % 4 === 0) return toCall({ definition: 'steps', version: 1, input: { n, sum: 0 }, options: undefined })
      return toCall({ definition: 'work', version: 1, input: { n }, options: undefined })
    })
    const admissions = await store.spawn(await Promise.all(calls.map((call) => toNewRun(call, { registry, tenant: 'default' }))))
    admissions.forEach((admission, index) => {
      if (admission.kind === 'created' && calls[index]?.definition === 'steps') waiting.push(admission.id)
    })
  }
  return waiting
}

async function signalAll({ store }: SoakOptions, ids: readonly string[]): Promise<void> {
  for (const id of ids) await store.signal({ tenant: 'default', to: { id }, name: 'go', payload: '{"add":10}', receipt: null })
}

function startWorker(options: SoakOptions, effectsFile: string): ChildProcess {
  return fork(WORKER, {
    env: { ...process.env, PAWL_DATABASE: options.connectionString, PAWL_EFFECTS: effectsFile },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
}

async function killRepeatedly(options: SoakOptions, effectsFile: string, index: number): Promise<void> {
  const share = Math.floor(options.kills / options.processes) + (index < options.kills % options.processes ? 1 : 0)
  for (let kill = 0; kill < share; kill += 1) {
    const worker = startWorker(options, effectsFile)
    const gone = once(worker, 'exit')
    await once(worker, 'message')
    await passTime(Math.random() * options.killWithinMs)
    worker.kill('SIGKILL')
    await gone
    options.log?.(`kill ${kill + 1}/${share} of engine ${index + 1}`)
  }
}

/** The moment of a kill is the test's input, not something waited for. */
function passTime(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

async function untilAllEnded(options: SoakOptions, effectsFile: string): Promise<void> {
  const worker = startWorker(options, effectsFile)
  const gone = once(worker, 'exit')
  const deadline = Date.now() + SETTLE_MS
  try {
    for (;;) {
      const { rows } = await options.pool.query<{ left: number }>(
        'SELECT count(*)::int AS left FROM pawl.runs WHERE finished_at IS NULL',
      )
      if (rows[0]?.left === 0) return
      if (Date.now() > deadline) throw new Error(`${rows[0]?.left} runs have not ended: ${await describeLeft(options)}`)
      await passTime(100)
    }
  } finally {
    worker.kill('SIGKILL')
    await gone
  }
}

/** What is known of a few runs that did not end. */
async function describeLeft({ pool }: SoakOptions): Promise<string> {
  const { rows } = await pool.query(`
    SELECT r.id, l.definition, r.status, r.step, r.seq, r.losses, r.lonely_losses, r.failures, r.timer_at, r.available_at, r.claimed_by, r.awaits, r.signalled, r.join_seq, r.join_remaining,
      EXISTS (SELECT FROM pawl.ready y WHERE y.run_id = r.id) AS ready, now() AS now,
      (SELECT array_agg(h.seq || ' ' || h.outcome ORDER BY h.seq) FROM pawl.history h WHERE h.run_id = r.id) AS history,
      (SELECT jsonb_agg(to_jsonb(c) - 'run_ids') FROM pawl.claims c WHERE r.id = ANY (c.run_ids)) AS claims,
      (SELECT count(*) FROM pawl.runs k WHERE k.parent_id = r.id AND k.finished_at IS NULL) AS children_left
    FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id WHERE r.finished_at IS NULL LIMIT 4`)
  return JSON.stringify(rows, null, 1)
}

interface Effects {
  readonly total: number
  /** Effects by run and step. */
  readonly bySteps: ReadonlyMap<string, number>
}

function readEffects(file: string): Effects {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean)
  const bySteps = new Map<string, number>()
  for (const line of lines) {
    const [runId, step] = line.split(' ')
    const key = `${runId} ${step}`
    bySteps.set(key, (bySteps.get(key) ?? 0) + 1)
  }
  return { total: lines.length, bySteps }
}

interface JudgedRun {
  readonly id: string
  readonly definition: string
  readonly status: string
  readonly input: { readonly n?: number; readonly width?: number }
  readonly result: number | null
  readonly error: unknown
}

async function judge(options: SoakOptions, effects: Effects): Promise<SoakReport> {
  const { pool } = options
  const violations: string[] = []
  const { rows } = await pool.query<JudgedRun>(
    'SELECT r.id, l.definition, r.status::text, r.input, r.result, r.error FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id',
  )
  const fans = rows.filter((run) => run.definition === 'fan').length
  if (rows.length !== options.runs + fans * FAN_WIDTH)
    violations.push(`${rows.length} runs exist, ${options.runs + fans * FAN_WIDTH} were accepted`)
  for (const run of rows) {
    const expected = expectedResult(run)
    if (run.status !== 'completed') violations.push(`${run.definition} ${run.id} is ${run.status}: ${JSON.stringify(run.error)}`)
    else if (run.result !== expected) violations.push(`${run.definition} ${run.id} gave ${run.result} instead of ${expected}`)
  }
  violations.push(...(await judgeHistory(pool, effects)))
  // environment 0 is the migrations' own: rows that keep pages
  for (const [table, ours] of [
    ['ready', 'lane_id <> 0'],
    ['uniques', 'environment_id <> 0'],
  ] as const) {
    const left = await pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM pawl.${table} WHERE ${ours}`)
    if (left.rows[0]?.n !== 0) violations.push(`${left.rows[0]?.n} rows are left in ${table}`)
  }
  const lost = await pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM pawl.history WHERE outcome = 'lost'`)
  return { kills: options.kills, runs: rows.length, effects: effects.total, losses: lost.rows[0]?.n ?? 0, violations }
}

function expectedResult({ definition, input }: JudgedRun): number {
  if (definition === 'work') return (input.n ?? 0) * 2
  if (definition === 'steps') return (input.n ?? 0) + 11
  return FAN_WIDTH * (FAN_WIDTH - 1)
}

/** Per step of a run: one outcome that moved it on, and no more effects than tries. */
async function judgeHistory(pool: pg.Pool, effects: Effects): Promise<string[]> {
  const { rows } = await pool.query<{ id: string; step: string; progress: number; tries: number }>(`
    SELECT run_id AS id, step, count(*) FILTER (WHERE outcome IN ('next', 'continue', 'wait', 'join', 'done'))::int AS progress,
      count(*) FILTER (WHERE outcome IN ('next', 'continue', 'wait', 'join', 'done', 'retry', 'lost'))::int AS tries
    FROM pawl.history WHERE outcome <> '' GROUP BY run_id, step`)
  const violations: string[] = []
  for (const { id, step, progress, tries } of rows) {
    const seen = effects.bySteps.get(`${id} ${step}`) ?? 0
    if (progress !== 1) violations.push(`step ${step} of ${id} has ${progress} outcomes`)
    if (seen < 1) violations.push(`step ${step} of ${id} has an outcome and no effect`)
    if (seen > tries) violations.push(`step ${step} of ${id} has ${seen} effects in ${tries} tries`)
  }
  return violations
}
