import { DEFAULT_TENANT } from '../core/bounds.ts'
import type { Calls } from '../core/calls.ts'
import type { Database } from '../core/database.ts'
import { PawlError } from '../core/errors.ts'
import { checkLimitName } from '../core/gate.ts'
import { type Logger, silentLogger } from '../core/logger.ts'
import { checkName } from '../core/names.ts'
import type { Env, Services } from '../core/register.ts'
import { createRegistry, type QueueOptions, type Registry } from '../core/registry.ts'
import type { RetryOptions } from '../core/retry.ts'
import type { Store } from '../core/store.ts'
import type { Budget, TickReport } from '../core/tick.ts'
import { createCalls } from './calls.ts'
import { createStatementCalls } from './statements.ts'
import { type CreateTransactionCallsOptions, createTransactionCalls } from './transaction.ts'
import { createTypedCalls, type NamedDefinition, type TypedCalls, type UntypedCalls } from './typed-calls.ts'

/** What pawl is made of besides this folder: put together where everything may be imported. */
export interface Composition {
  createStore(options: StoreParams): Store
  createTicker(options: TickerParams): RunningTicker
}

export interface StoreParams {
  readonly database: Database
  readonly schema: string
  readonly environment: string
  /** What is known of the database is remembered with this object. */
  readonly memory: object
  /** The instant that statements take for now; null: the server's clock. For tests. */
  readonly now: (() => string | null) | undefined
}

export interface TickerParams {
  readonly store: Store
  readonly registry: Registry
  readonly surroundings: { readonly env: unknown; readonly services: unknown; readonly logger: Logger }
  readonly budget: Budget
  readonly requests: () => number
  /** The budget's requests are those of the invocation that was connected for this. Default false: each pass may send so many. */
  readonly sharesInvocation?: boolean | undefined
  /** Shared by all tickers over one database: schedules and limits are declared once. */
  readonly declared: { done: boolean }
  readonly leaseMs?: number | undefined
  readonly queues?: readonly string[] | undefined
  readonly random?: (() => number) | undefined
  readonly nowMs?: (() => number) | undefined
  /** Makes the id of each claim, a UUID that nobody has. Default: random. */
  readonly newClaimId?: (() => string) | undefined
}

export interface RunningTicker {
  tick(source: string): Promise<TickReport>
  kick(source: string): Promise<TickReport>
  stop(): Promise<void>
}

/** What a host decides about ticking. */
export interface TickingOptions
  extends Pick<TickerParams, 'sharesInvocation' | 'leaseMs' | 'queues' | 'random' | 'nowMs' | 'newClaimId'> {
  readonly budget: Budget
}

export interface PawlDefaults {
  /** For what a definition's own `retry` leaves out. Default: 10 attempts, exponential from 5 s. */
  readonly retry?: RetryOptions | undefined
  /** Where a call says none. Default `default`. */
  readonly tenant?: string | undefined
}

export interface CreatePawlOptions<D extends readonly NamedDefinition[]> {
  /** Every job and machine, all versions that still have runs. */
  readonly definitions: D
  readonly queues?: Readonly<Record<string, QueueOptions>> | undefined
  readonly defaults?: PawlDefaults | undefined
  /** Default: says nothing. */
  readonly logger?: Logger | undefined
  /** Schema of the tables. Default `pawl`. */
  readonly schema?: string | undefined
  /** With it the calls of this object work outside a host's invocation. On Workers give it to the host instead: it belongs to one request. */
  readonly database?: Database | undefined
  /** For `database`; see `connect`. */
  readonly environment?: string | undefined
}

export interface ConnectOptions {
  readonly database: Database
  /** Runs belong to the environment that spawned them, and only it runs them. Default `production`. */
  readonly environment?: string | undefined
  /** Handed to every handler. */
  readonly env?: Env | undefined
  /** Handed to every handler. */
  readonly services?: Services | undefined
  /** Called after each commit that may have made a run due: the moment to tick. Must not throw. */
  readonly onCommit?: (() => void) | undefined
  /**
   * Stands for the database where each invocation has a `Database` of its own: what is known of it (its lanes, that schedules were
   * declared) is remembered with this object. Default: `database`.
   */
  readonly memory?: object | undefined
  /** The instant that the database takes for now, as RFC 3339 text; null: its own clock. For tests. */
  readonly now?: (() => string | null) | undefined
}

/** A pawl over a database: what one invocation works with. */
export interface ConnectedPawl<D extends readonly NamedDefinition[]> extends TypedCalls<D> {
  readonly registry: Registry
  readonly database: Database
  readonly store: Store
  /** The same calls, untyped by definition: what the HTTP API serves. */
  readonly calls: Calls
  /** Makes what ticks. Costs nothing; one per invocation, or one for as long as the process lives. */
  createTicker(options: TickingOptions): RunningTicker
}

/** Definitions and settings: one object per application, which hosts take. Its calls work when it was given a `database`. */
export interface Pawl<D extends readonly NamedDefinition[]> extends TypedCalls<D> {
  readonly definitions: D
  readonly registry: Registry
  readonly schema: string
  readonly logger: Logger
  /** The calls and the engine over that database. Costs nothing: make one per invocation. */
  connect(options: ConnectOptions): ConnectedPawl<D>
}

/** The names of schemas are checked where the statements are made. */
const DEFAULT_SCHEMA_NAME = 'pawl'
const DEFAULT_ENVIRONMENT = 'production'

/**
 * Puts definitions and settings together; validates all of it once. Costs no request.
 * @throws PawlError `invalid_configuration` naming field, got and allowed.
 */
export function createPawlWith<const D extends readonly NamedDefinition[]>(
  composition: Composition,
  options: CreatePawlOptions<D>,
): Pawl<D> {
  const {
    definitions,
    queues,
    defaults = {},
    logger = silentLogger,
    schema = DEFAULT_SCHEMA_NAME,
    database,
    environment,
  } = options
  const registry = createRegistry(definitions, queues, { retry: defaults.retry })
  for (const name of registry.limits.keys()) checkLimitName(name)
  checkName(defaults.tenant ?? DEFAULT_TENANT, { field: 'defaults.tenant' })
  const declaredIn = new WeakMap<object, Map<string, { done: boolean }>>()
  const connect = (to: ConnectOptions): ConnectedPawl<D> => {
    const place = checkName(to.environment ?? DEFAULT_ENVIRONMENT, { field: 'environment' })
    const { memory = to.database } = to
    const store = composition.createStore({ database: to.database, schema, environment: place, memory, now: to.now })
    const connected = connectCalls({ store, registry, defaults: { tenant: defaults.tenant }, onCommit: to.onCommit })
    const surroundings = { env: to.env, services: to.services, logger }
    const before = to.database.requests
    const requests = () => to.database.requests - before
    return {
      ...createTypedCalls<D>(() => connected),
      registry,
      database: to.database,
      store,
      calls: connected.calls,
      createTicker: (ticking) => {
        const declared = declaredFor(declaredIn, memory, place)
        return composition.createTicker({ ...ticking, store, registry, surroundings, requests, declared })
      },
    }
  }
  let own: UntypedCalls | undefined
  const ownCalls = (): UntypedCalls => {
    if (database === undefined) throw notConnected()
    own ??= connectCalls({ store: connect({ database, environment }).store, registry, defaults: { tenant: defaults.tenant } })
    return own
  }
  return { ...createTypedCalls<D>(ownCalls), definitions, registry, schema, logger, connect }
}

function connectCalls(options: CreateTransactionCallsOptions): UntypedCalls {
  return {
    calls: createCalls(options),
    transactions: createTransactionCalls(options),
    statements: createStatementCalls(options),
  }
}

function declaredFor(
  declaredIn: WeakMap<object, Map<string, { done: boolean }>>,
  memory: object,
  environment: string,
): { done: boolean } {
  const byEnvironment = declaredIn.get(memory) ?? new Map<string, { done: boolean }>()
  declaredIn.set(memory, byEnvironment)
  const declared = byEnvironment.get(environment) ?? { done: false }
  byEnvironment.set(environment, declared)
  return declared
}

function notConnected(): PawlError {
  const detail =
    'This pawl has no database: give one to createPawl({ database }), or use pawl.connect({ database }) or what the host hands you in its invocation.'
  return new PawlError('not_connected', detail)
}
