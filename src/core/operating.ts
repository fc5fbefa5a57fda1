/** What people and monitors ask of a running installation: the ports between `client/`, `api/` and `db/` for it. */
import type { Caller } from './calls.ts'
import type { ExplainRecord, Explanation } from './explain.ts'
import type { Health, Stats } from './statistics.ts'
import type { Status } from './status.ts'
import type { ListRunsQuery, Scope } from './store.ts'

/** Where a pause applies: to all runs of a queue, to all of a definition whatever their version, or to one run. */
export type LanePauseKind = 'queue' | 'definition'

/** What pausing or resuming a queue or a definition came to. `paused`: it is, whoever paused it; `by` and `since` tell of that pause. */
export interface PauseAnswer {
  readonly did: 'paused' | 'already_paused' | 'resumed' | 'not_paused'
  readonly paused: boolean
  readonly by: string | null
  /** Epoch milliseconds. */
  readonly since: number | null
}

/**
 * What pausing or resuming a run came to. A run that is `running` when it is paused ends its step first. `already_held`: it stands still for
 * another reason, which `hold` names.
 */
export interface RunPauseAnswer {
  readonly id: string
  readonly did: 'paused' | 'already_paused' | 'already_held' | 'resumed' | 'not_paused' | 'already_ended'
  readonly status: Status
  readonly hold: { readonly reason: string; readonly by?: string; readonly since?: string } | null
}

export interface PauseRequest {
  readonly kind: LanePauseKind
  readonly name: string
  /** Null: of all tenants. */
  readonly tenant: string | null
  readonly by: string | null
  /** The code knows the name: it may be paused before its first run. */
  readonly declared: boolean
}

export type BulkAction = 'cancel' | 'retry'

/** Which runs: all that match every member. As in lists. */
export interface BulkFilter {
  readonly status?: Status | readonly Status[] | undefined
  readonly definition?: string | undefined
  readonly queue?: string | undefined
  readonly key?: string | undefined
  readonly tag?: string | undefined
  readonly parent?: string | undefined
  /** Created at or after, and before. */
  readonly since?: Date | string | undefined
  readonly until?: Date | string | undefined
}

export interface BulkCall {
  readonly action: BulkAction
  /** At least one member. */
  readonly filter: BulkFilter
  /** `nextCursor` of the call before, to go on behind what it looked at. */
  readonly cursor?: string | undefined
}

export interface BulkAnswer {
  /** How many were changed by this call, at most 100: cancelled, or asked to stop; retried. */
  readonly affected: number
  /** There is more to look at: call again. */
  readonly more: boolean
  readonly nextCursor: string | null
}

export interface BulkRequest {
  readonly action: BulkAction
  /** Its `limit` is not looked at. */
  readonly query: ListRunsQuery
  readonly by: string | null
}

/** One batch each. */
export interface OperatingStore {
  /** Lists and changes, bounded: two requests, and one more for each page in which nothing could be changed, five at most. */
  changeMany(request: BulkRequest): Promise<BulkAnswer>
  /** Null: nobody knows the name. */
  pause(request: PauseRequest): Promise<PauseAnswer | null>
  resume(request: PauseRequest): Promise<PauseAnswer | null>
  /** Null: no such run of this tenant. */
  pauseRun(id: string, scope: Scope & { readonly by: string | null }): Promise<RunPauseAnswer | null>
  resumeRun(id: string, scope: Scope): Promise<RunPauseAnswer | null>
  /** Null: no such run of this tenant. */
  explain(id: string, scope: Scope): Promise<ExplainRecord | null>
}

/** What an operator calls. One request each. A caller without a tenant speaks for all of them where queues and definitions are concerned. */
export interface OperatingCalls {
  /** Nothing of it is claimed until it is resumed; what runs ends its step. Idempotent. Throws not_found for a name that nobody knows. */
  pauseQueue(name: string, caller?: Caller): Promise<PauseAnswer>
  resumeQueue(name: string, caller?: Caller): Promise<PauseAnswer>
  /** The same for a definition, whatever the version. */
  pauseDefinition(name: string, caller?: Caller): Promise<PauseAnswer>
  resumeDefinition(name: string, caller?: Caller): Promise<PauseAnswer>
  /** Holds one run: it takes signals and its timers go on, but it is not run. Idempotent. Throws not_found. */
  pauseRun(id: string, caller?: Caller): Promise<RunPauseAnswer>
  /** Puts it back where it was, whatever held it. Idempotent. Throws not_found. */
  resumeRun(id: string, caller?: Caller): Promise<RunPauseAnswer>
  /**
   * Cancels, or retries in place, the runs that match, the newest first, up to 100 in one call; those that cannot be are passed over. Call it
   * again while there is `more`. Throws invalid_request for a filter without a member.
   */
  changeMany(call: BulkCall, caller?: Caller): Promise<BulkAnswer>
  /** Why it is not moving: one exact reason, who or what is in the way, since when, and when it ends by itself. Throws not_found. */
  explain(id: string, caller?: Caller): Promise<Explanation>
  /** How much there is and how much is due, by status and by queue, of one snapshot. A caller without a tenant is told of all of them. Not cached: each call is a request that counts. */
  stats(caller?: Caller): Promise<Stats>
  /** When the last tick was and from where, and how long work has been due. Throws schema_outdated, schema_newer. */
  health(): Promise<Health>
}
