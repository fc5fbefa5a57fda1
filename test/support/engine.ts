import { afterAll, afterEach, beforeAll } from 'vitest'
import type { Database, Statement } from '../../src/core/database.ts'
import { type CallOptions, type Definition, toCall } from '../../src/core/definition.ts'
import { type Logger, silentLogger } from '../../src/core/logger.ts'
import { toNewRun } from '../../src/core/new-run.ts'
import { createRegistry, type QueueOptions, type Registry } from '../../src/core/registry.ts'
import type { Admission, Delivery, HistoryRecord, NewRun, RunRecord, Store } from '../../src/core/store.ts'
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
  /** All requests since the start count against the budget, as on hosts with invocations. */
  readonly sharesInvocation?: boolean
  readonly environment?: string
  readonly leaseMs?: number
  readonly cancelGraceMs?: number
  readonly logger?: Logger
  /** Several engines over one database: pass the first one's. */
  readonly on?: FreshDatabase
  readonly connections?: number
  /** Another driver than node-postgres. */
  readonly connect?: (fresh: FreshDatabase) => Database
  /** Wraps the driver: to count, delay or fail requests from outside. */
  readonly wrap?: (database: Database) => Database
  /** The database clock of this engine stands still and moves by `advance` only. Default: it runs on. */
  readonly frozen?: boolean
  /** Only runs of these queues. */
  readonly only?: readonly string[]
  /** The host's wall clock, for budgets. */
  readonly nowMs?: () => number
  readonly random?: () => number
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
  readonly environment: string
  readonly database: Database
  readonly store: Store
  readonly registry: Registry
  readonly ticker: Ticker
  /** Moves the database clock of this engine's statements on; until the first call the server's own is used, unless it is frozen. */
  advance(ms: number): void
  /** What the clock of this engine's statements says, epoch milliseconds. */
  clock(): number
  /** Names of the statements of every request so far, in order. */
  readonly sent: readonly (readonly string[])[]
  spawn(definition: string, input?: unknown, options?: SpawnOptions): Promise<Admission>
  /** The id of a run that was really created. */
  spawnId(definition: string, input?: unknown, options?: SpawnOptions): Promise<string>
  /** Ids of runs created in one batch, one per input. */
  spawnMany(definition: string, inputs: readonly unknown[], options?: SpawnOptions): Promise<readonly string[]>
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
  const { connect = (to: FreshDatabase) => nodePostgres({ connectionString: to.connectionString, max: connections }) } = options
  const sent: string[][] = []
  const database = recording(wrap(connect(fresh)), sent)
  const registry = createRegistry(definitions, queues)
  const { clock, now, advance } = createClock(options.frozen === true)
  const store = createStore({ database, environment, now })
  const surroundings = { env: options.env ?? {}, services: options.services ?? {}, logger: options.logger ?? silentLogger }
  const ticker = createTicker({
    store,
    registry,
    surroundings,
    budget: { ...TEST_BUDGET, ...budget },
    requests: () => database.requests,
    leaseMs,
    cancelGraceMs: options.cancelGraceMs,
    queues: options.only,
    sharesInvocation: options.sharesInvocation,
    nowMs: options.nowMs,
    random: options.random,
    declared: { done: false },
  })
  const pool = fresh.pool({ max: 2 })
  const scope = { tenant: 'default' }
  const engine: TestEngine = {
    fresh,
    environment: environment ?? 'production',
    database,
    store,
    registry,
    ticker,
    advance,
    clock,
    sent,
    spawn: async (definition, input, spawnOptions) => {
      const [admission] = await store.spawn([await newRun(registry, definition, input, spawnOptions)])
      if (!admission) throw new Error('spawn answered nothing')
      return admission
    },
    spawnId: async (definition, input, spawnOptions) => {
      const admission = await engine.spawn(definition, input, spawnOptions)
      if (admission.kind !== 'created') throw new Error(`spawn answered ${admission.kind}`)
      return admission.id
    },
    spawnMany: async (definition, inputs, spawnOptions) => {
      const admissions = await store.spawn(
        await Promise.all(inputs.map((input) => newRun(registry, definition, input, spawnOptions))),
      )
      return admissions.map((admission) => {
        if (admission.kind !== 'created') throw new Error(`spawn answered ${admission.kind}`)
        return admission.id
      })
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
    sql: async (text, params = []) =>
      (await pool.query({ text, values: [...params], rowMode: 'array' })).rows.map((row) => row[0]),
    close: async () => {
      await ticker.stop()
      await database.close()
      if (!options.on) await fresh.close()
    },
  }
  return engine
}

/** A run as spawning prepares it. */
export async function newRun(
  registry: Registry,
  definition: string,
  input: unknown,
  options: SpawnOptions = {},
): Promise<NewRun> {
  const { id, tenant = 'default', version, receipt, ...callOptions } = options
  const call = toCall({ definition, version: version ?? 0, input, options: callOptions })
  return toNewRun({ ...call, version }, { registry, tenant, id, receipt })
}

export interface SharedEngines {
  /**
   * An engine over the database that the tests of this `describe` share, in an environment of its own, so that none sees another's
   * runs. `beside`: another engine of the same environment. Closed after the test.
   */
  readonly start: (options: EngineOptions & { readonly beside?: TestEngine }) => Promise<TestEngine>
}

/** Call it in a `describe`: it makes a database before its tests and drops it after them. */
export function sharedEngines(version?: PostgresVersion): SharedEngines {
  let fresh: FreshDatabase | undefined
  let environments = 0
  const open: TestEngine[] = []
  beforeAll(async () => {
    fresh = await freshDatabase(version)
  })
  afterEach(async () => {
    await Promise.all(open.splice(0).map((engine) => engine.close()))
  })
  afterAll(() => fresh?.close())
  return {
    start: async ({ beside, ...options }) => {
      const environment = beside?.environment ?? `test-${++environments}`
      const engine = await startEngine({ environment, ...(fresh && { on: fresh }), ...options })
      open.push(engine)
      return engine
    },
  }
}

function createClock(frozen: boolean) {
  const frozenAt = frozen ? Date.now() : undefined
  let offsetMs = frozen ? 0 : undefined
  const clock = () => (frozenAt ?? Date.now()) + (offsetMs ?? 0)
  return {
    clock,
    now: () => (offsetMs === undefined ? null : new Date(clock()).toISOString()),
    advance: (ms: number) => {
      offsetMs = (offsetMs ?? 0) + ms
    },
  }
}

/** The same driver; what is sent through it is written down. */
function recording(database: Database, sent: string[][]): Database {
  return {
    driver: database.driver,
    get requests() {
      return database.requests
    },
    query: (statement) => {
      sent.push([statement.name])
      return database.query(statement)
    },
    batch: (statements) => {
      sent.push(statements.map(({ name }) => name))
      return database.batch(statements)
    },
    close: () => database.close(),
  }
}

/** The same driver with something done around every batch that is sent. */
export function around(
  database: Database,
  batch: (statements: readonly Statement[], send: () => ReturnType<Database['batch']>) => ReturnType<Database['batch']>,
): Database {
  return {
    driver: database.driver,
    get requests() {
      return database.requests
    },
    query: (statement) => database.query(statement),
    batch: (statements) => batch(statements, () => database.batch(statements)),
    close: () => database.close(),
  }
}

/** Something that happens once: a test waits for it, or lets it happen. */
export interface Moment<T = void> {
  readonly promise: Promise<T>
  readonly happen: (value: T) => void
}

export function moment<T = void>(): Moment<T> {
  let happen: (value: T) => void = () => {}
  const promise = new Promise<T>((resolve) => {
    happen = resolve
  })
  return { promise, happen }
}
