/**
 * What an application and the HTTP API ask of pawl, untyped by definition: the port between `client/`, which implements it, and
 * `api/`, which serves it. Every call is one database request unless it says otherwise.
 */
import type { PawlError } from './errors.ts'
import type { OperatingCalls } from './operating.ts'
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
  /** Idempotent. Throws not_found. */
  cancel(id: string, caller?: Caller): Promise<CancelAnswer>
  /** In place: keeps state, starts the failed step anew. Throws not_found, not_retryable, key_taken. */
  retry(id: string, caller?: Caller): Promise<{ readonly id: string; readonly status: Status }>
  /** Throws not_found. */
  getRun(id: string, caller?: Caller): Promise<RunRecord>
  /** The run as it is when it leaves the moving statuses, or when `waitMs` (at most 25 s) is over; asks again with growing pauses, and no more once `signal` is aborted. */
  waitForRun(id: string, waitMs: number, caller?: Caller, signal?: AbortSignal): Promise<RunRecord>
}
