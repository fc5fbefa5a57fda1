/**
 * What an application and the HTTP API ask of pawl, untyped by definition: the port between `client/`, which implements it, and
 * `api/`, which serves it. Every call is one database request unless it says otherwise.
 */
import type { PawlError } from './errors.ts'
import type { OperatingCalls } from './operating.ts'
import type { ResolveCall, ResolveResult } from './resolution.ts'
import type { Status } from './status.ts'
import type { CancelAnswer, RunRecord } from './store.ts'

export interface SpawnCall {
  readonly definition: string
  readonly version?: number | undefined
  readonly input?: unknown
  /** A UUID of the caller's choice: spawning it again answers the run that is there. */
  readonly id?: string | undefined
  readonly key?: string | undefined
  /** What this does to a run that has the key, or that it is not unique beside, and has not started. */
  readonly onConflict?: 'keep' | 'reschedule' | undefined
  readonly queue?: string | undefined
  readonly priority?: number | undefined
  readonly delay?: number | string | undefined
  readonly at?: string | Date | undefined
  readonly maxAttempts?: number | undefined
  readonly tags?: readonly string[] | undefined
  readonly headers?: Readonly<Record<string, string>> | undefined
  /** Deadlines in place of the definition's: see `DeadlineOptions`. */
  readonly maxDuration?: number | string | undefined
  readonly startWithin?: number | string | undefined
  readonly progressWithin?: number | string | undefined
  /** Why: set by schedules and webhooks. */
  readonly origin?: unknown
  readonly idempotencyKey?: string | undefined
}

export interface SpawnResult {
  readonly id: string
  readonly status: Status
  /** False: another run holds the key (or has the id), or is the same by what its definition says of uniqueness, and this is that run. */
  readonly created: boolean
  /** That run had not started and was given the start of this call. */
  readonly rescheduled?: true
  /** That run had not started and has taken the input in: in place of its own, or at the end of its list. */
  readonly gathered?: true
  /** True: this answer was first given to an earlier request with the same idempotency key. */
  readonly replayed: boolean
}

export type SpawnItem = { readonly ok: true; readonly value: SpawnResult } | { readonly ok: false; readonly error: PawlError }

export interface SignalCall {
  readonly to: { readonly id: string } | { readonly key: string; readonly definition?: string | undefined }
  readonly name: string
  readonly payload?: unknown
  readonly idempotencyKey?: string | undefined
}

export interface SignalResult {
  readonly id: string
  readonly runId: string
  readonly replayed: boolean
}

export interface RetryCall {
  /** The same input once more, from the start, as a run of its own; the old one stays as it is. */
  readonly asNewRun?: boolean | undefined
  /** More than the run had. Default: as many. */
  readonly maxAttempts?: number | undefined
  /** For a new run: the same request under the same key makes one. */
  readonly idempotencyKey?: string | undefined
}

export interface RetryResult {
  /** Of the run that starts now. */
  readonly id: string
  readonly did: 'retried' | 'spawned'
  readonly status: Status
}

export interface EmitCall {
  readonly name: string
  readonly payload?: unknown
  /** How long it is there for runs that wait for it later. Default 7 days. */
  readonly retention?: number | string | undefined
  readonly idempotencyKey?: string | undefined
}

export interface EmitResult {
  readonly name: string
  /** False: an event of this name was there and has not expired; it is as it was, and these are its times. */
  readonly created: boolean
  /** RFC 3339 with milliseconds. */
  readonly emittedAt: string
  readonly expiresAt: string
  /** True: this answer was first given to an earlier request with the same idempotency key. */
  readonly replayed: boolean
}

/** What a spawn or a signal was answered, as it was answered. */
export type Reconciled = ({ readonly kind: 'run' } & SpawnResult) | ({ readonly kind: 'signal' } & SignalResult)

export interface Caller {
  /** Default `default`. */
  readonly tenant?: string | undefined
  /** Who acts, for the record. */
  readonly by?: string | undefined
}

export interface Calls extends OperatingCalls {
  /** Throws invalid_input, invalid_request, unknown_definition, payload_too_large, idempotency_mismatch, conflict, unknown_outcome, database_unreachable. */
  spawn(call: SpawnCall, caller?: Caller): Promise<SpawnResult>
  /** One batch; an answer per item, in order. Items that are refused leave the others alone. */
  spawnMany(calls: readonly SpawnCall[], caller?: Caller): Promise<readonly SpawnItem[]>
  /** Throws no_target, invalid_signal, conflict (several runs bear the key), idempotency_mismatch. */
  signal(call: SignalCall, caller?: Caller): Promise<SignalResult>
  /** Throws invalid_event, invalid_request, payload_too_large, idempotency_mismatch. */
  emit(call: EmitCall, caller?: Caller): Promise<EmitResult>
  /**
   * Ends the run if nobody works on it, else asks it to stop: its handler's signal fires at the next heartbeat or flush. Children follow with
   * the next ticks. Idempotent; a run that has ended stays as it is. `reason`: at most 1,000 characters. Throws not_found, invalid_request.
   */
  cancel(id: string, caller?: Caller & { readonly reason?: string | undefined }): Promise<CancelAnswer>
  /**
   * Starts the failed step of an ended run anew. In place, unless `asNewRun`: state and committed steps stay. Throws not_found, key_taken;
   * not_retryable: it has not failed, or `maxAttempts` is not more than it had. As a new run one request to look at it and one to spawn.
   */
  retry(id: string, options?: RetryCall, caller?: Caller): Promise<RetryResult>
  /**
   * Carries out what a person decided about an uncertain run. Idempotent by the decision's id. One request, and one to look at the run
   * unless it is replayed. Throws not_found, invalid_request, invalid_result, invalid_error, payload_too_large; conflict: the run is not
   * uncertain, another decision bears the id, or a replay was asked for although cancellation was requested.
   */
  resolve(id: string, call: ResolveCall, caller?: Caller): Promise<ResolveResult>
  /**
   * What a spawn or a signal under that idempotency key has come to, whose reply was lost: one request, which waits for one that is being
   * written at that moment. Items of a batch over HTTP have the key of the batch, a colon and their number from 0. Throws not_found when
   * nothing was decided under it (or more than 7 days ago): sent again under the same key it happens once.
   */
  reconcile(idempotencyKey: string, caller?: Caller): Promise<Reconciled>
  /** Throws not_found. */
  getRun(id: string, caller?: Caller): Promise<RunRecord>
  /** The run as it is when it leaves the moving statuses, or when `waitMs` (at most 25 s) is over; asks again with growing pauses, and no more once `signal` is aborted. */
  waitForRun(id: string, waitMs: number, caller?: Caller, signal?: AbortSignal): Promise<RunRecord>
}
