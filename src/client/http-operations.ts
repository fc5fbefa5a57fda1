import type { ExplainReason } from '../core/explain.ts'
import type { BulkAnswer, BulkCall, RunPauseAnswer } from '../core/operating.ts'
import type { Health, QueueStats, Stats } from '../core/statistics.ts'
import { exchange, type HttpExchangeOptions } from './http-exchange.ts'

/** How a queue or a definition stands after it was paused or resumed. */
export interface PauseView {
  readonly name: string
  readonly did: 'paused' | 'already_paused' | 'resumed' | 'not_paused'
  readonly paused: boolean
  readonly by?: string
  readonly since?: string
}

export type RunPauseView = Omit<RunPauseAnswer, 'hold'> & { readonly hold?: NonNullable<RunPauseAnswer['hold']> }

/** Why a run is not moving; the members beside these say which, by reason. Instants are RFC 3339. */
export interface ExplanationView {
  readonly reason: ExplainReason
  readonly detail: string
  readonly since: string
  readonly until?: string
  readonly [member: string]: unknown
}

/** A queue of the statistics. Instants are RFC 3339, ages are durations. */
export interface QueueView extends Omit<QueueStats, 'oldestDueAt' | 'concurrency'> {
  readonly concurrency?: number
  readonly oldestDueAt: string | null
  readonly oldestDueAge: string | null
}

export interface StatsView extends Omit<Stats, 'now' | 'queues'> {
  readonly now: string
  readonly queues: readonly QueueView[]
}

export interface HealthView extends Pick<Health, 'schemaVersion' | 'lastTickSource' | 'tickIsStale'> {
  readonly status: 'ok'
  /** Of the package that serves the API. */
  readonly version: string
  readonly now: string
  readonly lastTickAt: string | null
  readonly oldestDueAt: string | null
  readonly oldestDueAge: string | null
}

/** What operators do. Each is one request and idempotent; a key needs the scope `ops`, for runs `runs:write` does. */
export interface OperationsClient {
  /** Nothing of the queue is claimed until it is resumed; what runs ends its step. */
  pauseQueue(name: string): Promise<PauseView>
  resumeQueue(name: string): Promise<PauseView>
  pauseDefinition(name: string): Promise<PauseView>
  resumeDefinition(name: string): Promise<PauseView>
  /** Holds one run, which then takes signals but is not run. */
  pauseRun(id: string): Promise<RunPauseView>
  resumeRun(id: string): Promise<RunPauseView>
  /** Cancels or retries the runs that match, up to 100 in one call; again while there is `more`. Needs the scope `ops`. */
  changeMany(call: BulkCall): Promise<BulkAnswer>
  /** Why it is not moving. */
  explain(id: string): Promise<ExplanationView>
  /** How much there is and how much is due, by status and by queue, of one snapshot; read at most once a minute. Needs `runs:read` or `ops`. */
  stats(): Promise<StatsView>
  /** The queues as they are now. Needs `runs:read` or `ops`. */
  queues(): Promise<readonly QueueView[]>
  /** When the last tick was and from where, and how long work has been due; read at most once in ten seconds. Needs no key. */
  health(): Promise<HealthView>
}

export function createOperationsClient(over: HttpExchangeOptions): OperationsClient {
  const post = async <T>(path: string, asked: string): Promise<T> => {
    const { body } = await exchange(over, { method: 'POST', path, repeatable: true, asked })
    return body as T
  }
  const get = async <T>(path: string, asked: string): Promise<T> => {
    const { body } = await exchange(over, { method: 'GET', path, repeatable: true, asked })
    return body as T
  }
  const change = <T>(things: string, name: string, verb: 'pause' | 'resume') =>
    post<T>(`/v1/${things}/${encodeURIComponent(name)}/${verb}`, `To ${verb} ${name}`)
  return {
    pauseQueue: (name) => change('queues', name, 'pause'),
    resumeQueue: (name) => change('queues', name, 'resume'),
    pauseDefinition: (name) => change('definitions', name, 'pause'),
    resumeDefinition: (name) => change('definitions', name, 'resume'),
    pauseRun: (id) => change('runs', id, 'pause'),
    resumeRun: (id) => change('runs', id, 'resume'),
    changeMany: async ({ action, filter, cursor }) => {
      const { since, until } = filter
      const sent = { ...filter, since: toText(since), until: toText(until) }
      const body = { action, filter: sent, cursor }
      const answer = await exchange(over, {
        method: 'POST',
        path: '/v1/runs/bulk',
        body,
        repeatable: true,
        asked: `To ${action} many runs`,
      })
      return answer.body as BulkAnswer
    },
    explain: (id) => get<ExplanationView>(`/v1/runs/${encodeURIComponent(id)}/explain`, `Explaining run ${id}`),
    stats: () => get<StatsView>('/v1/stats', 'Reading statistics'),
    queues: async () => (await get<{ readonly items: readonly QueueView[] }>('/v1/queues', 'Listing queues')).items,
    health: () => get<HealthView>('/v1/healthz', 'Reading the health'),
  }
}

function toText(instant: Date | string | undefined): string | undefined {
  return instant instanceof Date ? instant.toISOString() : instant
}
