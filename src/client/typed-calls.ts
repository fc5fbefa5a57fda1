/** The calls as an application makes them: typed by its definitions. */
import type { CallerTransaction } from '../core/caller-transaction.ts'
import type {
  Calls,
  EmitResult,
  Reconciled,
  RetryCall,
  RetryResult,
  SignalResult,
  SpawnCall,
  SpawnItem,
  SpawnResult,
} from '../core/calls.ts'
import type { SignalMap } from '../core/context.ts'
import type { CallOptions, Definition, InputOf, ResultOf } from '../core/definition.ts'
import { type Duration, toMs } from '../core/duration.ts'
import { PawlError } from '../core/errors.ts'
import type { OperatingCalls } from '../core/operating.ts'
import type { Call, RunError } from '../core/outcome.ts'
import type { ResolveCall, ResolveResult } from '../core/resolution.ts'
import type { In } from '../core/schema.ts'
import type { CancelAnswer, RunRecord } from '../core/store.ts'
import type { PreparedSpawn, PreparedStatements, StatementCalls } from './statements.ts'
import type {
  EmittedInTransaction,
  InTransaction,
  SignalledInTransaction,
  SpawnedInTransaction,
  SpawnedManyInTransaction,
  TransactionCalls,
} from './transaction.ts'
import { MAX_WAIT_MS } from './wait.ts'

export type NamedDefinition = Definition<unknown, unknown>

/** What one call says besides the input. */
export interface SpawnOptions extends CallOptions {
  /** A UUID of your own: spawning it again answers the run that is there. */
  readonly id?: string | undefined
  /** The same request under the same key is answered as it was the first time. Kept 7 days. */
  readonly idempotencyKey?: string | undefined
  /** Default `default`. */
  readonly tenant?: string | undefined
}

export interface TenantOption {
  /** Default `default`. */
  readonly tenant?: string | undefined
}

export interface CancelOptions extends TenantOption {
  /** Who asks and why, for the record: part of the run's error. */
  readonly by?: string | undefined
  /** At most 1,000 characters. */
  readonly reason?: string | undefined
}

export interface SignalOptions extends TenantOption {
  /** The same signal under the same key arrives once. */
  readonly idempotencyKey?: string | undefined
}

export interface EmitOptions extends TenantOption {
  /** How long the event is there for runs that wait for it later. Default 7 days, at least a second. */
  readonly retention?: Duration | undefined
  /** The same request under the same key is answered as it was the first time. Kept 7 days. */
  readonly idempotencyKey?: string | undefined
}

/** What may be left out when nothing is declared. */
type Optional<V, O> = undefined extends V ? [value?: V, options?: O] : [value: V, options?: O]
type OptionalPayload<V, O> = [null] extends [V] ? [payload?: V, options?: O] : Optional<V, O>

/** What `spawn` takes after the definition. */
export type SpawnArguments<T> = Optional<InputOf<T>, SpawnOptions>
/** The same in a transaction of the caller's. */
export type SpawnInTransactionArguments<T> = [input: InputOf<T>, options: SpawnOptions & InTransaction]

type SignalsOf<T> = T extends { readonly signals: infer G extends SignalMap } ? G : never
/** Signals that one of the definitions declares. */
export type SignalName<T> = T extends unknown ? keyof SignalsOf<T> & string : never
/** What such a signal carries, by whichever of them declares it. */
export type SignalPayload<T, K extends string> = T extends unknown
  ? K extends keyof SignalsOf<T>
    ? In<SignalsOf<T>[K]>
    : never
  : never
type EventsOf<T> = T extends { readonly events: infer G extends SignalMap } ? G : never
/** Events that one of the definitions declares. */
export type EventName<T> = T extends unknown ? keyof EventsOf<T> & string : never
/** What such an event carries, by whichever of them declares it. */
export type EventPayload<T, K extends string> = T extends unknown
  ? K extends keyof EventsOf<T>
    ? In<EventsOf<T>[K]>
    : never
  : never
export type EventArguments<T, K extends string, O = EmitOptions> = OptionalPayload<EventPayload<T, K>, O>
export type SignalArguments<T, K extends string, O = SignalOptions> = OptionalPayload<SignalPayload<T, K>, O>

export type SignalInTransactionArguments<T, K extends string> = [
  payload: [null] extends [SignalPayload<T, K>] ? SignalPayload<T, K> | undefined : SignalPayload<T, K>,
  options: SignalOptions & InTransaction,
]

export type EventInTransactionArguments<T, K extends string> = [
  payload: [null] extends [EventPayload<T, K>] ? EventPayload<T, K> | undefined : EventPayload<T, K>,
  options: Omit<EmitOptions, 'idempotencyKey'> & InTransaction,
]

/** How a run stands, with what it gave once it has. */
export type RunResult<R> = { readonly id: string } & (
  | { readonly status: 'completed'; readonly result: R }
  | { readonly status: 'failed' | 'cancelled' | 'discarded'; readonly error: RunError }
  | { readonly status: 'pending' | 'running' | 'waiting' | 'uncertain' }
)

export interface ResultOptions extends TenantOption {
  /** How long to wait for the end, at most 25 s. Default: not at all. It asks again with growing pauses, about 30 times in 25 s. */
  readonly wait?: Duration | undefined
}

export type RunAddress = { readonly id: string } | { readonly key: string; readonly definition?: string | undefined }

/** To be sent in one READ COMMITTED transaction: `const ours = await pawl.statements.spawn(…)`, then `sql.transaction([…])`, then `ours.afterCommit()`. */
export interface TypedStatements<D extends readonly NamedDefinition[]> {
  spawn<T extends NamedDefinition>(definition: T, ...args: SpawnArguments<T>): Promise<PreparedSpawn>
  /** Reads the target by a request of its own only where definitions disagree about the signal. */
  signal<T extends D[number], K extends SignalName<T>>(
    to: { readonly definition: T; readonly key: string },
    name: K,
    ...args: SignalArguments<T, K>
  ): Promise<PreparedStatements<SignalResult>>
  signal<K extends SignalName<D[number]>>(
    to: RunAddress,
    name: K,
    ...args: SignalArguments<D[number], K>
  ): Promise<PreparedStatements<SignalResult>>
  emit<K extends EventName<D[number]>>(
    name: K,
    ...args: EventArguments<D[number], K, Omit<EmitOptions, 'idempotencyKey'>>
  ): Promise<PreparedStatements<{ readonly name: string }>>
  /** What a batch has thrown: as a PawlError when it was for one of these statements, else as it is. */
  explain(error: unknown): unknown
}

/** Every call is one request, unless it waits. */
export interface TypedCalls<D extends readonly NamedDefinition[]> extends OperatingCalls {
  /**
   * Accepts one run. Spawns of the same moment share a request; each is answered after its commit. `created: false`: a live run holds
   * the key or has the id, and it is that one. Throws invalid_input, invalid_request, unknown_definition, payload_too_large, conflict,
   * idempotency_mismatch, unknown_outcome, database_unreachable, database_busy, schema_outdated.
   *
   * With `tx` it is accepted when that transaction is committed, and never otherwise: one request over node-postgres and Neon's WebSocket,
   * in which the transaction is checked, too. A run with the same key or idempotency key waits for it. Delays count from its BEGIN. Throws
   * besides invalid_request (`tx`, `isolation`) and wrong_database.
   */
  spawn<T extends NamedDefinition>(definition: T, ...args: SpawnInTransactionArguments<T>): Promise<SpawnedInTransaction>
  spawn<T extends NamedDefinition>(definition: T, ...args: SpawnArguments<T>): Promise<SpawnResult>
  /** Accepts up to 10,000 calls made by `definition.with(input)`: an answer for each, in order; those refused leave the others alone. */
  spawnMany(calls: readonly (Call | SpawnCall)[], options: TenantOption & InTransaction): Promise<SpawnedManyInTransaction>
  spawnMany(calls: readonly (Call | SpawnCall)[], options?: TenantOption): Promise<readonly SpawnItem[]>
  /**
   * Sends a signal to one run, by id or key. Kept until the run asks for it. Throws no_target, invalid_signal, conflict,
   * idempotency_mismatch. With `tx` it is there when that transaction is committed; until then the run's next step cannot be committed
   * either, so send it last.
   */
  signal<T extends D[number], K extends SignalName<T>>(
    to: { readonly definition: T; readonly key: string },
    name: K,
    ...args: SignalInTransactionArguments<T, K>
  ): Promise<SignalledInTransaction>
  signal<K extends SignalName<D[number]>>(
    to: RunAddress,
    name: K,
    ...args: SignalInTransactionArguments<D[number], K>
  ): Promise<SignalledInTransaction>
  signal<T extends D[number], K extends SignalName<T>>(
    to: { readonly definition: T; readonly key: string },
    name: K,
    ...args: SignalArguments<T, K>
  ): Promise<SignalResult>
  signal<K extends SignalName<D[number]>>(to: RunAddress, name: K, ...args: SignalArguments<D[number], K>): Promise<SignalResult>
  /**
   * Broadcasts an event to the runs that wait for it, and to those that will while it is there. The first of a name wins until it expires: another
   * one says `created: false` and changes nothing. An expired event is as if it had never been: who waits for its name then waits for the
   * next. One request, and one more for each thousand who wait. Throws invalid_event, invalid_request, payload_too_large, idempotency_mismatch.
   *
   * With `tx` it is emitted once that transaction has been committed, by the tick that `afterCommit` starts or by the next one, and never
   * otherwise: nobody waits for the transaction meanwhile, and whether the event is the first of its name is decided then.
   */
  emit<K extends EventName<D[number]>>(name: K, ...args: EventInTransactionArguments<D[number], K>): Promise<EmittedInTransaction>
  emit<K extends EventName<D[number]>>(name: K, ...args: EventArguments<D[number], K>): Promise<EmitResult>
  /** The same calls as statements for a batch of the caller's own: what Neon HTTP has in place of transactions. Costs no request. */
  readonly statements: TypedStatements<D>
  /** How the run stands. Throws not_found, also for a run of another definition. */
  result<T extends NamedDefinition>(definition: T, id: string, options?: ResultOptions): Promise<RunResult<ResultOf<T>>>
  result(id: string, options?: ResultOptions): Promise<RunResult<unknown>>
  /**
   * Ends a run, or asks a running one to end: its handler's signal fires at the next heartbeat or flush. Its children follow with the next
   * ticks. Idempotent; says what it did. Throws not_found, invalid_request.
   */
  cancel(id: string, options?: CancelOptions): Promise<CancelAnswer>
  /**
   * Starts the step of an ended run anew: in place, keeping state and committed steps, or (`asNewRun`) its input once more as a run of its
   * own, which bears `retriedFrom` in its origin. Throws not_found, not_retryable, key_taken.
   */
  retry(id: string, options?: RetryCall & TenantOption): Promise<RetryResult>
  /**
   * Carries out what a person decided about an uncertain run: it happened (`success`, with the result), it did not (`failure`, with the
   * error), or it is to be tried again (`replay`). Idempotent by the decision's id. Throws not_found, conflict, invalid_request,
   * invalid_result, invalid_error, payload_too_large.
   */
  resolve(id: string, decision: ResolveCall, options?: TenantOption): Promise<ResolveResult>
  /**
   * What a spawn or a signal under that idempotency key has come to, after `unknown_outcome` or a COMMIT whose reply was lost. One request,
   * which waits for one that is being written at that moment. Throws not_found when nothing was decided under it: sent again under the
   * same key it happens once.
   */
  reconcile(options: TenantOption & { readonly idempotencyKey: string }): Promise<Reconciled>
  /** Everything about a run; instants in epoch milliseconds. Throws not_found. */
  run(id: string, options?: TenantOption): Promise<RunRecord>
}

interface AnyTarget {
  readonly id?: string
  readonly key?: string
  readonly definition?: string | NamedDefinition | undefined
}

/** The calls of one pawl over its database. */
export interface UntypedCalls {
  readonly calls: Calls
  readonly transactions: TransactionCalls
  readonly statements: StatementCalls
}

/** The typed face of the calls. They are asked for at each call, so that it may throw when there is no database. */
export function createTypedCalls<const D extends readonly NamedDefinition[]>(connected: () => UntypedCalls): TypedCalls<D> {
  const calls = () => connected().calls
  // the overloads are the compiler's; here each has one shape
  const typed = {
    spawn: async (definition: NamedDefinition, input?: unknown, options: SpawnOptions & Partial<InTransaction> = {}) => {
      const { tenant, tx, ...rest } = options
      const call = { ...rest, definition: definition.name, version: definition.version, input }
      return 'tx' in options
        ? connected().transactions.spawn(tx as CallerTransaction, call, { tenant })
        : calls().spawn(call, { tenant })
    },
    spawnMany: async (items: readonly (Call | SpawnCall)[], options: TenantOption & Partial<InTransaction> = {}) => {
      const { tenant, tx } = options
      const asked = items.map(toSpawnCall)
      if (!('tx' in options)) return calls().spawnMany(asked, { tenant })
      return connected().transactions.spawnMany(tx as CallerTransaction, asked, { tenant })
    },
    signal: async (to: AnyTarget, name: string, payload?: unknown, options: SignalOptions & Partial<InTransaction> = {}) => {
      const { tenant, tx, idempotencyKey } = options
      const call = { to: toTarget(to), name, payload, idempotencyKey }
      return 'tx' in options
        ? connected().transactions.signal(tx as CallerTransaction, call, { tenant })
        : calls().signal(call, { tenant })
    },
    emit: async (name: string, payload?: unknown, options: EmitOptions & Partial<InTransaction> = {}) => {
      const { tenant, tx, ...rest } = options
      const call = { ...rest, name, payload }
      return 'tx' in options
        ? connected().transactions.emit(tx as CallerTransaction, call, { tenant })
        : calls().emit(call, { tenant })
    },
    statements: {
      spawn: async (definition: NamedDefinition, input?: unknown, { tenant, ...options }: SpawnOptions = {}) =>
        connected().statements.spawn({ ...options, definition: definition.name, version: definition.version, input }, { tenant }),
      signal: async (to: AnyTarget, name: string, payload?: unknown, { tenant, idempotencyKey }: SignalOptions = {}) =>
        connected().statements.signal({ to: toTarget(to), name, payload, idempotencyKey }, { tenant }),
      emit: async (name: string, payload?: unknown, { tenant, ...options }: EmitOptions = {}) =>
        connected().statements.emit({ ...options, name, payload }, { tenant }),
      explain: (error: unknown) => connected().statements.explain(error),
    },
    result: async (first: NamedDefinition | string, second?: string | ResultOptions, third?: ResultOptions) => {
      if (typeof first === 'string') return readResult(calls(), first, undefined, second as ResultOptions | undefined)
      return readResult(calls(), second as string, first, third)
    },
    cancel: async (id: string, options?: CancelOptions) => calls().cancel(id, options),
    retry: async (id: string, { tenant, ...options }: RetryCall & TenantOption = {}) => calls().retry(id, options, { tenant }),
    resolve: async (id: string, decision: ResolveCall, options?: TenantOption) => calls().resolve(id, decision, options),
    reconcile: async ({ idempotencyKey, tenant }: TenantOption & { readonly idempotencyKey: string }) =>
      calls().reconcile(idempotencyKey, { tenant }),
    run: async (id: string, options?: TenantOption) => calls().getRun(id, options),
    ...passOn(calls),
  }
  return typed as unknown as TypedCalls<D>
}

/** What operators call is untyped by definition. */
function passOn(calls: () => Calls): OperatingCalls {
  return {
    pauseQueue: async (name, caller) => calls().pauseQueue(name, caller),
    resumeQueue: async (name, caller) => calls().resumeQueue(name, caller),
    pauseDefinition: async (name, caller) => calls().pauseDefinition(name, caller),
    resumeDefinition: async (name, caller) => calls().resumeDefinition(name, caller),
    pauseRun: async (id, caller) => calls().pauseRun(id, caller),
    resumeRun: async (id, caller) => calls().resumeRun(id, caller),
    changeMany: async (call, caller) => calls().changeMany(call, caller),
    explain: async (id, caller) => calls().explain(id, caller),
    stats: async (caller) => calls().stats(caller),
    health: async () => calls().health(),
  }
}

/** A call made by `with` has its delay in milliseconds. */
function toSpawnCall(item: Call | SpawnCall): SpawnCall {
  if (!('delayMs' in item)) return item
  const { delayMs, deadlines: { maxTotalMs, maxWaitMs, maxIdleMs } = {}, __result, ...call } = item
  return { ...call, delay: delayMs, maxDuration: maxTotalMs, startWithin: maxWaitMs, progressWithin: maxIdleMs }
}

function toTarget({ id, key, definition }: AnyTarget): { id: string } | { key: string; definition?: string | undefined } {
  if (id !== undefined) return { id }
  return { key: key as string, definition: typeof definition === 'object' ? definition.name : definition }
}

async function readResult(
  calls: Calls,
  id: string,
  definition: NamedDefinition | undefined,
  { wait, tenant }: ResultOptions = {},
): Promise<RunResult<unknown>> {
  const waitMs = wait === undefined ? 0 : toMs(wait, 'wait', { code: 'invalid_request' })
  const run = await calls.waitForRun(id, Math.min(waitMs, MAX_WAIT_MS), { tenant })
  if (definition !== undefined && run.definition !== definition.name) {
    const detail = `The run ${id} is of "${run.definition}", not of "${definition.name}".`
    throw new PawlError('not_found', detail, { field: 'definition', got: run.definition, allowed: definition.name })
  }
  return toRunResult(run)
}

function toRunResult({ id, status, result, error }: RunRecord): RunResult<unknown> {
  switch (status) {
    case 'completed':
      return { id, status, result }
    case 'failed':
    case 'cancelled':
    case 'discarded':
      return { id, status, error: error ?? { code: status, message: `The run was ${status}.` } }
    default:
      return { id, status }
  }
}
