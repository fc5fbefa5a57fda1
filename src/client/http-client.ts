import type { EmitResult, Reconciled, RetryCall, RetryResult, SignalResult, SpawnItem, SpawnResult } from '../core/calls.ts'
import type { InputOf, ResultOf } from '../core/definition.ts'
import { type Duration, fromMs, toMs } from '../core/duration.ts'
import { notAllowed, type PawlError } from '../core/errors.ts'
import type { RunError } from '../core/outcome.ts'
import type { ResolveCall, ResolveResult } from '../core/resolution.ts'
import { isTerminal, type Status } from '../core/status.ts'
import type { CancelAnswer, Page } from '../core/store.ts'
import { emitEvent } from './http-events.ts'
import { exchange, type HttpExchangeOptions, toPawlProblem } from './http-exchange.ts'
import { createOperationsClient, type OperationsClient } from './http-operations.ts'
import type {
  EmitOptions,
  EventArguments,
  EventName,
  NamedDefinition,
  RunResult,
  SignalArguments,
  SignalName,
  SignalOptions,
  SpawnOptions,
} from './typed-calls.ts'
import { hostPacing, MAX_WAIT_MS } from './wait.ts'

export interface CreateClientOptions {
  /** Where the API is mounted, without the `/v1`: `https://example.org/pawl`. */
  readonly url: string
  /** An API key with the scopes that are used. None: a server in development. */
  readonly key?: string | undefined
  /** With a root key: for whom. */
  readonly tenant?: string | undefined
  /** How long one request may take, besides what it was asked to wait. Default 30 s. */
  readonly timeout?: Duration | undefined
  /** Default: that of the host. */
  readonly fetch?: ((url: string, init: RequestInit) => Promise<Response>) | undefined
  /** How the client waits before it repeats a request. For tests. */
  readonly pause?: ((ms: number) => Promise<void>) | undefined
}

/** What a pawl tells a client: types only, so that no handler comes into the caller's bundle. */
export interface PawlTypes {
  readonly definitions: readonly NamedDefinition[]
}

type DefinitionsOf<P extends PawlTypes> = P['definitions'][number]
export type DefinitionName<P extends PawlTypes> = DefinitionsOf<P>['name']
/** The definition of that name; several versions of it are alternatives. */
export type DefinitionNamed<P extends PawlTypes, K extends string> = Extract<DefinitionsOf<P>, { readonly name: K }>

export interface ClientSpawnOptions extends Omit<SpawnOptions, 'tenant'> {
  /** Default: the latest. */
  readonly version?: number | undefined
}

/** One of several runs to spawn. */
export type ClientSpawn<P extends PawlTypes> = {
  [K in DefinitionName<P>]: Omit<ClientSpawnOptions, 'idempotencyKey'> & {
    readonly definition: K
    readonly input?: InputOf<DefinitionNamed<P, K>>
  }
}[DefinitionName<P>]

type Arguments<V, O> = undefined extends V ? [input?: V, options?: O] : [input: V, options?: O]

export interface ListRunsOptions {
  readonly status?: Status | readonly Status[] | undefined
  readonly definition?: string | undefined
  readonly queue?: string | undefined
  readonly key?: string | undefined
  readonly tag?: string | undefined
  readonly parent?: string | undefined
  /** Created at or after, and before. */
  readonly since?: Date | string | undefined
  readonly until?: Date | string | undefined
  /** Default 50, at most 500. */
  readonly limit?: number | undefined
  readonly cursor?: string | undefined
}

/** A run as lists show it; instants are RFC 3339 with milliseconds. */
export interface ListedRun {
  readonly id: string
  readonly definition: string
  readonly version: number
  readonly queue: string
  readonly priority: number
  readonly status: Status
  readonly hold?: { readonly reason: string } & Readonly<Record<string, unknown>>
  readonly step: string
  readonly visit: number
  readonly attempt: number
  readonly maxAttempts: number
  readonly error?: RunError
  readonly waitingFor?: {
    readonly kind: string
    readonly names?: readonly string[]
    readonly events?: readonly string[]
    readonly runs?: readonly string[]
    readonly remaining?: number
    readonly until?: string
  }
  readonly blockedOn?: string
  readonly key?: string
  readonly tags: readonly string[]
  readonly parentId?: string
  readonly createdAt: string
  readonly updatedAt: string
  readonly scheduledFor?: string
  readonly availableAt: string | null
  readonly cancelRequestedAt?: string
  /** Who asked it to end and why, or which deadline was over; also while it has not ended yet. */
  readonly cancellation?: Pick<RunError, 'by' | 'reason' | 'deadline'>
  readonly finishedAt?: string
}

export interface DetailedRun extends ListedRun {
  readonly input: unknown
  readonly state?: unknown
  readonly result?: unknown
  readonly headers: Readonly<Record<string, string>>
  /** Why it is, or was, uncertain, and who resolved it how. */
  readonly uncertainty?: Readonly<Record<string, unknown>>
}

export interface HistoryEntry {
  readonly seq: number
  readonly visit: number
  readonly attempt: number
  readonly step: string
  readonly outcome: string
  readonly startedAt: string
  readonly finishedAt: string
  readonly error?: RunError
}

/** The HTTP API, typed. Every call is one request; each throws PawlErrors with the codes of the API. */
export interface HttpClient<P extends PawlTypes> extends OperationsClient {
  /** With an id or an idempotency key, a 503 that says when is asked again, twice at most. A lost reply is `unknown_outcome`. */
  spawn<K extends DefinitionName<P>>(
    name: K,
    ...args: Arguments<InputOf<DefinitionNamed<P, K>>, ClientSpawnOptions>
  ): Promise<SpawnResult>
  /** An answer per item, in order. The key of the whole is `idempotencyKey`; items have none of their own. */
  spawnMany(
    runs: readonly ClientSpawn<P>[],
    options?: { readonly idempotencyKey?: string | undefined },
  ): Promise<readonly SpawnItem[]>
  signal<K extends SignalName<DefinitionsOf<P>>>(
    to: { readonly id: string } | { readonly key: string; readonly definition?: DefinitionName<P> | undefined },
    name: K,
    ...args: SignalArguments<DefinitionsOf<P>, K, Pick<SignalOptions, 'idempotencyKey'>>
  ): Promise<SignalResult>
  /** Broadcasts an event; `created: false`: one of its name is there, and is as it was. With an idempotency key it is asked again as `spawn` is. */
  emit<K extends EventName<DefinitionsOf<P>>>(
    name: K,
    ...args: EventArguments<DefinitionsOf<P>, K, Omit<EmitOptions, 'tenant'>>
  ): Promise<EmitResult>
  /** How a run of that definition stands; `wait` (at most 25 s) holds the request until it ends. */
  result<K extends DefinitionName<P>>(
    name: K,
    id: string,
    options?: { readonly wait?: Duration | undefined },
  ): Promise<RunResult<ResultOf<DefinitionNamed<P, K>>>>
  run(id: string, options?: { readonly wait?: Duration | undefined }): Promise<DetailedRun>
  list(options?: ListRunsOptions): Promise<Page<ListedRun>>
  history(
    id: string,
    options?: { readonly limit?: number | undefined; readonly cursor?: string | undefined },
  ): Promise<Page<HistoryEntry>>
  /** Ends a run, or asks a running one to end. Idempotent; says what it did. */
  cancel(id: string, options?: { readonly reason?: string | undefined }): Promise<CancelAnswer>
  /** What a spawn or a signal under that key came to; see `reconcile` of a pawl. Needs the scope `runs:read`. Throws not_found. */
  reconcile(options: { readonly idempotencyKey: string }): Promise<Reconciled>
  /** In place, or its input once more as a run of its own. */
  retry(id: string, options?: RetryCall): Promise<RetryResult>
  /** What a person decided about an uncertain run. Idempotent by the decision's id. */
  resolve(id: string, decision: ResolveCall): Promise<ResolveResult>
}

const DEFAULT_TIMEOUT = '30s'

/**
 * A client of the HTTP API, typed by `createClient<typeof pawl>()` from a type-only import. Costs no request. Throws
 * `invalid_configuration` for a url that is none.
 */
export function createClient<P extends PawlTypes>(options: CreateClientOptions): HttpClient<P> {
  const over = toExchangeOptions(options)
  // the face is typed by the caller's definitions; on the wire names are texts
  const client = {
    spawn: (name: string, input?: unknown, spawnOptions?: ClientSpawnOptions) => spawn(over, name, input, spawnOptions),
    spawnMany: (runs: readonly AnySpawn[], { idempotencyKey }: { idempotencyKey?: string } = {}) =>
      spawnMany(over, runs, idempotencyKey),
    signal: (to: object, name: string, payload?: unknown, signalOptions?: SignalOptions) =>
      sendSignal(over, { to, name, payload }, signalOptions),
    emit: (name: string, payload?: unknown, options?: EmitOptions) => emitEvent(over, name, payload, options),
    result: (name: string, id: string, waiting?: Waiting) => readResult(over, name, id, waiting),
    run: (id: string, waiting?: Waiting) => readRun(over, id, waiting),
    list: (query: ListRunsOptions = {}) => read(over, '/v1/runs', 'Listing runs', toListQuery(query)),
    history: (id: string, page: { limit?: number; cursor?: string } = {}) =>
      read(over, `/v1/runs/${encodeURIComponent(id)}/history`, `Reading the history of run ${id}`, {
        ...page,
        limit: page.limit?.toString(),
      }),
    cancel: (id: string, body?: { reason?: string }) =>
      change(over, id, { verb: 'cancel', asked: 'Cancelling', body, repeatable: true }),
    reconcile: async ({ idempotencyKey }: { idempotencyKey: string }) => ({
      ...((await read(over, `/v1/receipts/${encodeURIComponent(idempotencyKey)}`, 'Reconciling', {})) as object),
      replayed: true,
    }),
    retry: (id: string, { idempotencyKey, ...body }: RetryCall = {}) =>
      change(over, id, { verb: 'retry', asked: 'Retrying', body, idempotencyKey, repeatable: idempotencyKey !== undefined }),
    resolve: (id: string, body: ResolveCall) => change(over, id, { verb: 'resolve', asked: 'Resolving', body, repeatable: true }),
    ...createOperationsClient(over),
  }
  return client as unknown as HttpClient<P>
}

interface Waiting {
  readonly wait?: Duration | undefined
}

interface AnySpawn extends ClientSpawnOptions {
  readonly definition: string
  readonly input?: unknown
}

function toExchangeOptions(options: CreateClientOptions): HttpExchangeOptions {
  const { url, key, tenant, timeout = DEFAULT_TIMEOUT, pause = hostPacing.pause } = options
  if (!URL.canParse(url)) throw notAllowed('invalid_configuration', { field: 'url', got: url, allowed: 'an absolute URL' })
  // called as a method of another object, a host's fetch would refuse its `this`
  const send = options.fetch ?? ((input: string, init: RequestInit) => fetch(input, init))
  return { url, key, tenant, timeoutMs: toMs(timeout, 'timeout', { minMs: 1 }), fetch: send, pause }
}

/** A run as the API takes it: durations with their unit, instants as text. */
function toBody({ delay, at, idempotencyKey, maxDuration, startWithin, progressWithin, ...rest }: AnySpawn): object {
  const toText = (time: Duration | undefined) => (typeof time === 'number' ? fromMs(Math.round(time)) : time)
  return {
    ...rest,
    delay: toText(delay),
    maxDuration: toText(maxDuration),
    startWithin: toText(startWithin),
    progressWithin: toText(progressWithin),
    at: at instanceof Date ? at.toISOString() : at,
  }
}

async function spawn(
  over: HttpExchangeOptions,
  name: string,
  input: unknown,
  options: ClientSpawnOptions = {},
): Promise<SpawnResult> {
  const { idempotencyKey, id } = options
  const { body, replayed } = await exchange(over, {
    method: 'POST',
    path: '/v1/runs',
    body: toBody({ ...options, definition: name, input }),
    idempotencyKey,
    repeatable: idempotencyKey !== undefined || id !== undefined,
    asked: `Spawning "${name}"${id === undefined ? '' : ` as ${id}`}`,
  })
  return { ...(body as Omit<SpawnResult, 'replayed'>), replayed }
}

type AnsweredItem = Omit<SpawnResult, 'replayed'> | { readonly error: Readonly<Record<string, unknown>> }

async function spawnMany(
  over: HttpExchangeOptions,
  runs: readonly AnySpawn[],
  idempotencyKey: string | undefined,
): Promise<readonly SpawnItem[]> {
  const { body, replayed } = await exchange(over, {
    method: 'POST',
    path: '/v1/runs/batch',
    body: { runs: runs.map(toBody) },
    idempotencyKey,
    repeatable: idempotencyKey !== undefined || runs.every(({ id }) => id !== undefined),
    asked: `Spawning ${runs.length} runs`,
  })
  const { items } = body as { readonly items: readonly AnsweredItem[] }
  return items.map((item): SpawnItem => {
    if ('error' in item) return { ok: false, error: toPawlProblem(item.error) as PawlError }
    return { ok: true, value: { ...item, replayed } }
  })
}

async function sendSignal(
  over: HttpExchangeOptions,
  body: { to: object; name: string; payload: unknown },
  options: SignalOptions = {},
) {
  const { idempotencyKey } = options
  const answer = await exchange(over, {
    method: 'POST',
    path: '/v1/signals',
    body,
    idempotencyKey,
    repeatable: idempotencyKey !== undefined,
    asked: `Sending the signal "${body.name}"`,
  })
  return { ...(answer.body as Omit<SignalResult, 'replayed'>), replayed: answer.replayed }
}

async function read(over: HttpExchangeOptions, path: string, asked: string, query: Readonly<Record<string, string | undefined>>) {
  const { body } = await exchange(over, { method: 'GET', path, query, repeatable: true, asked })
  return body
}

async function readRun(over: HttpExchangeOptions, id: string, { wait }: Waiting = {}): Promise<DetailedRun> {
  const waitMs = wait === undefined ? 0 : Math.min(toMs(wait, 'wait', { code: 'invalid_request' }), MAX_WAIT_MS)
  const { body } = await exchange(over, {
    method: 'GET',
    path: `/v1/runs/${encodeURIComponent(id)}`,
    query: { wait: waitMs > 0 ? `${waitMs}ms` : undefined },
    repeatable: true,
    asked: `Reading run ${id}`,
    extraMs: waitMs,
  })
  return body as DetailedRun
}

async function readResult(over: HttpExchangeOptions, name: string, id: string, waiting?: Waiting): Promise<RunResult<unknown>> {
  const run = await readRun(over, id, waiting)
  if (run.definition !== name)
    throw notAllowed('not_found', { field: `definition of run ${id}`, got: run.definition, allowed: name })
  const { status, result, error } = run
  if (status === 'completed') return { id, status, result }
  if (isTerminal(status)) return { id, status, error: error ?? { code: status, message: `The run was ${status}.` } }
  return { id, status }
}

function toListQuery({ status, since, until, limit, ...rest }: ListRunsOptions): Readonly<Record<string, string | undefined>> {
  const toText = (instant: Date | string | undefined): string | undefined =>
    instant instanceof Date ? instant.toISOString() : instant
  return {
    ...rest,
    status: typeof status === 'object' ? status.join(',') : status,
    since: toText(since),
    until: toText(until),
    limit: limit?.toString(),
  }
}

interface Change {
  readonly verb: string
  readonly asked: string
  readonly body?: object | undefined
  readonly idempotencyKey?: string | undefined
  readonly repeatable: boolean
}

async function change(over: HttpExchangeOptions, id: string, { verb, asked, ...rest }: Change): Promise<unknown> {
  const path = `/v1/runs/${encodeURIComponent(id)}/${verb}`
  const { body } = await exchange(over, { ...rest, method: 'POST', path, asked: `${asked} run ${id}` })
  return body
}
