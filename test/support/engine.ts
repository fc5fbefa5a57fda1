import type { Database } from '../../src/core/database.ts'
import { type CallOptions, type Definition, toCall } from '../../src/core/definition.ts'
import { type Logger, silentLogger } from '../../src/core/logger.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import { createRegistry, type QueueOptions, type Registry } from '../../src/core/registry.ts'
import type { Admission, Delivery, HistoryRecord, RunRecord, Store } from '../../src/core/store.ts'
import type { Budget, TickReport } from '../../src/core/tick.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createStore } from '../../src/db/store.ts'
import { createTicker, type Ticker } from '../../src/worker/tick.ts'
import { type FreshDatabase, freshDatabase } from './database.ts'
import type { PostgresVersion } from './postgres-server.ts'

export interface EngineOptions {
  readonly definitions: readonly Definition<unknown, unknown>[]
  readonly queues?: Readonly<Record<string, QueueOptions>>
  readonly version?: PostgresVersion
  readonly budget?: Partial<Budget>
  readonly environment?: string
  readonly leaseMs?: number
  readonly logger?: Logger
  /** Several engines over one database: pass the first one's. */
  readonly on?: FreshDatabase
  readonly connections?: number
  /** Wraps the driver: to count, delay or fail requests from outside. */
  readonly wrap?: (database: Database) => Database
  readonly env?: unknown
  readonly services?: unknown
}

export interface SpawnOptions extends CallOptions {
  readonly id?: string
  readonly tenant?: string
  readonly version?: number
  readonly receipt?: { readonly key: string; readonly fingerprint: string }
}

/** An engine on a database of its own, with a clock that tests move. Nothing runs by itself: call `tick`. */
export interface TestEngine {
  readonly fresh: FreshDatabase
  readonly database: Database
  readonly store: Store
  readonly registry: Registry
  readonly ticker: Ticker
  /** Moves the database clock of this engine's statements on; until the first call the server's own is used. */
  advance(ms: number): void
  spawn(definition: string, input?: unknown, options?: SpawnOptions): Promise<Admission>
  /** The id of a run that was really created. */
  spawnId(definition: string, input?: unknown, options?: SpawnOptions): Promise<string>
  signal(to: { id: string } | { key: string; definition?: string }, name: string, payload?: unknown): Promise<Delivery>
  tick(): Promise<TickReport>
  run(id: string): Promise<RunRecord>
  history(id: string): Promise<readonly HistoryRecord[]>
  /** One value per row of a query, superuser. */
  sql<T>(text: string, params?: readonly unknown[]): Promise<readonly T[]>
  close(): Promise<void>
}

export const TEST_BUDGET: Budget = { wallMs: 60_000, requests: 100_000, concurrency: 100, batch: 100, lanes: 1, lingerMs: 0 }

export async function startEngine(options: EngineOptions): Promise<TestEngine> {
  const { definitions, queues, version, budget, environment, leaseMs, connections = 4, wrap = (database) => database } = options
  const fresh = options.on ?? (await freshDatabase(version))
  const database = wrap(nodePostgres({ connectionString: fresh.connectionString, max: connections }))
  const registry = createRegistry(definitions, queues)
  let offsetMs: number | undefined
  const now = () => (offsetMs === undefined ? null : new Date(Date.now() + offsetMs).toISOString())
  const store = createStore({ database, environment, now })
  const surroundings = { env: options.env ?? {}, services: options.services ?? {}, logger: options.logger ?? silentLogger }
  const ticker = createTicker({
    store,
    registry,
    surroundings,
    budget: { ...TEST_BUDGET, ...budget },
    requests: () => database.requests,
    leaseMs,
    declared: { done: false },
  })
  const pool = fresh.pool({ max: 2 })
  const scope = { tenant: 'default' }
  const engine: TestEngine = {
    fresh,
    database,
    store,
    registry,
    ticker,
    advance: (ms) => {
      offsetMs = (offsetMs ?? 0) + ms
    },
    spawn: async (definition, input, { id, tenant = 'default', version: of, receipt, ...callOptions } = {}) => {
      const call = toCall({ definition, version: of ?? 0, input, options: callOptions })
      const run = await toNewRun({ ...call, version: of }, { registry, tenant, id, receipt })
      const [admission] = await store.spawn([run])
      if (!admission) throw new Error('spawn answered nothing')
      return admission
    },
    spawnId: async (definition, input, spawnOptions) => {
      const admission = await engine.spawn(definition, input, spawnOptions)
      if (admission.kind !== 'created') throw new Error(`spawn answered ${admission.kind}`)
      return admission.id
    },
    signal: (to, name, payload) =>
      store.signal({
        ...scope,
        to: 'id' in to ? to : { key: to.key, definition: to.definition ?? null },
        name,
        payload: payload === undefined ? null : JSON.stringify(payload),
        receipt: null,
      }),
    tick: () => ticker.tick('test'),
    run: async (id) => {
      const run = await store.getRun(id, scope)
      if (!run) throw new Error(`no run ${id}`)
      return run
    },
    history: async (id) => (await store.history(id, scope, { limit: 500, cursor: null }))?.items ?? [],
    sql: async (text, params = []) => (await pool.query({ text, values: [...params], rowMode: 'array' })).rows.map((row) => row[0]),
    close: async () => {
      await ticker.stop()
      await database.close()
      if (!options.on) await fresh.close()
    },
  }
  return engine
}
