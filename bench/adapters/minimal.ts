import pg from 'pg'
import { withClient } from '../database.ts'
import type { Adapter, Engine } from './adapter.ts'

/**
 * The queue one writes by hand in an afternoon: one table, one index, claims by SKIP LOCKED, no guards, no history, no retries. It is
 * the practical ceiling of one Node process on the `pg` driver, and the measure that everything else is divided by.
 */

interface Setting {
  readonly connections: number
  readonly batch: number
  /** `update`: claim and completion are two statements, two round trips. `fused`: one. */
  readonly mode: 'update' | 'fused'
}

const SETTINGS: Readonly<Record<string, Setting>> = {
  client: { connections: 1, batch: 100, mode: 'update' },
  'update 1×100': { connections: 1, batch: 100, mode: 'update' },
  'update 1×500': { connections: 1, batch: 500, mode: 'update' },
  'update 4×100': { connections: 4, batch: 100, mode: 'update' },
  'fused 1×100': { connections: 1, batch: 100, mode: 'fused' },
  'fused 4×100': { connections: 4, batch: 100, mode: 'fused' },
}

const TABLES = `
CREATE SCHEMA q;
CREATE TABLE q.jobs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, state smallint NOT NULL DEFAULT 0, attempts int NOT NULL DEFAULT 0,
  run_at timestamptz NOT NULL DEFAULT now(), locked_until timestamptz, payload jsonb, finished_at timestamptz) WITH (fillfactor = 70);
CREATE INDEX ON q.jobs (run_at, id) WHERE state = 0;
CREATE TABLE q.steps (job bigint NOT NULL, step int NOT NULL, result jsonb, PRIMARY KEY (job, step))`

const CLAIM = `
UPDATE q.jobs j SET state = 1, attempts = attempts + 1, locked_until = now() + interval '30 s'
FROM (SELECT id FROM q.jobs WHERE state = 0 AND run_at <= now() ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) s
WHERE j.id = s.id RETURNING j.id, j.kind, j.payload`
const COMPLETE = `UPDATE q.jobs SET state = 2, finished_at = now() WHERE id = ANY ($1::bigint[])`
const COMPLETE_AND_CLAIM = `WITH done AS (UPDATE q.jobs SET state = 2, finished_at = now() WHERE id = ANY ($2::bigint[])) ${CLAIM}`
const RECORD_STEP = `INSERT INTO q.steps (job, step, result) SELECT x, $2, '1'::jsonb FROM unnest($1::bigint[]) x ON CONFLICT DO NOTHING`
const ENQUEUE = `WITH i AS (INSERT INTO q.jobs (kind, payload) VALUES ($1, $2) RETURNING id) SELECT pg_notify('q', ''), id FROM i`
const ENQUEUE_MANY = `INSERT INTO q.jobs (kind, payload) SELECT $1, x FROM unnest($2::jsonb[]) x`

const BATCH = 1_000
const POLL_MS = 500
const STEPS = [0, 1, 2]

interface Job {
  readonly id: string
  readonly kind: string
}

export const minimal: Adapter = {
  name: 'minimal',
  version: '–',
  setup: (url) => withClient(url, async (client) => void (await client.query(TABLES))),
  open: async (url, setting, onStart) => createEngine(url, SETTINGS[setting] ?? unknownSetting(setting), onStart),
  pendingSql: 'SELECT EXISTS (SELECT FROM q.jobs WHERE state < 2) AS pending',
  addFinished: (url, count) =>
    withClient(url, async (client) => {
      await client.query(
        `INSERT INTO q.jobs (kind, payload, state, attempts, finished_at) SELECT 'noop', jsonb_build_object('i', g), 2, 1, now() FROM generate_series(1, $1::int) g`,
        [count],
      )
    }),
}

function unknownSetting(setting: string): never {
  throw new Error(`minimal has no setting "${setting}"`)
}

function createEngine(url: string, setting: Setting, onStart: () => void): Engine {
  const pool = new pg.Pool({ connectionString: url, max: 10 })
  let workers: Workers | undefined
  const enqueueMany = async (kind: string, from: number, count: number) => {
    const payloads = Array.from({ length: count }, (_, index) => ({ i: from + index }))
    await pool.query({ name: 'enqueue_many', text: ENQUEUE_MANY, values: [kind, payloads] })
  }
  return {
    enqueue: async (i) => void (await pool.query({ name: 'enqueue', text: ENQUEUE, values: ['noop', { i }] })),
    enqueueBatch: (from, count) => enqueueMany('noop', from, count),
    enqueueChains: (count) => enqueueMany('chain', 0, count),
    fanOut: async (children) => {
      for (let from = 0; from < children; from += BATCH) await enqueueMany('noop', from, Math.min(BATCH, children - from))
    },
    start: async () => {
      workers = await startWorkers(url, setting, onStart)
    },
    stop: async () => {
      await workers?.stop()
      await pool.end()
    },
  }
}

interface Workers {
  stop(): Promise<void>
}

async function startWorkers(url: string, setting: Setting, onStart: () => void): Promise<Workers> {
  const bell = createBell()
  const listener = await connect(url)
  await listener.query('LISTEN q')
  listener.on('notification', bell.ring)
  const clients = await Promise.all(Array.from({ length: setting.connections }, () => connect(url)))
  const loops = clients.map((client) => runLoop(client, setting, onStart, bell))
  return {
    stop: async () => {
      bell.close()
      await Promise.all(loops)
      await Promise.all([listener, ...clients].map((client) => client.end()))
    },
  }
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  return client
}

async function runLoop(client: pg.Client, { mode, batch }: Setting, onStart: () => void, bell: Bell): Promise<void> {
  let done: readonly string[] = []
  while (bell.open) {
    const rung = bell.count
    const fused = { name: 'complete_and_claim', text: COMPLETE_AND_CLAIM, values: [batch, done] }
    const query = mode === 'fused' ? fused : { name: 'claim', text: CLAIM, values: [batch] }
    const { rows: jobs } = await client.query<Job>(query)
    done = []
    if (jobs.length === 0) {
      if (rung === bell.count) await bell.wait(POLL_MS)
      continue
    }
    const ids = jobs.map((job) => job.id)
    await runJobs(client, jobs, ids, onStart)
    if (mode === 'fused') done = ids
    else await client.query({ name: 'complete', text: COMPLETE, values: [ids] })
  }
}

async function runJobs(client: pg.Client, jobs: readonly Job[], ids: readonly string[], onStart: () => void): Promise<void> {
  if (jobs[0]?.kind === 'noop') {
    for (const _ of jobs) onStart()
    return
  }
  for (const step of STEPS) {
    for (const _ of jobs) onStart()
    await client.query({ name: 'record_step', text: RECORD_STEP, values: [ids, step] })
  }
}

interface Bell {
  readonly open: boolean
  /** Times rung: one that rings between a claim and the wait must not be missed. */
  readonly count: number
  ring(): void
  wait(ms: number): Promise<void>
  close(): void
}

function createBell(): Bell {
  let wake: (() => void)[] = []
  const bell = {
    open: true,
    count: 0,
    ring: () => {
      bell.count += 1
      const waiting = wake
      wake = []
      for (const resolve of waiting) resolve()
    },
    wait: (ms: number) =>
      new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms)
        wake.push(() => {
          clearTimeout(timer)
          resolve()
        })
      }),
    close: () => {
      bell.open = false
      bell.ring()
    },
  }
  return bell
}
