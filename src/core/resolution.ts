/** What people decide about a run: how an uncertain one is resolved, and what came of a retry. */
import type { Status } from './status.ts'

export type Decision = 'success' | 'failure' | 'replay'

/** The error of a confirmed failure: a text, or what a run's error has. `data` is checked by the definition's `error` schema. */
export type ConfirmedError = string | { readonly message: string; readonly code?: string | undefined; readonly data?: unknown }

interface Attributed {
  /** Names this decision, 1 to 512 characters: the same decision under the same id is carried out once. */
  readonly id: string
  /** Who decides. Default: who calls; one of them must be known. */
  readonly by?: string | undefined
  /** Why, for the record: any JSON up to 64 KiB. */
  readonly details?: unknown
}

/**
 * `success`: the effect happened, and the run ends as completed with `result`, which is checked by the definition's `output`. `failure`: it
 * did not and must not be tried again; the run ends as failed, with the cause `confirmed`. `replay`: the step runs again, with the same
 * idempotency key.
 */
export type ResolveCall = Attributed &
  (
    | { readonly decision: 'success'; readonly result?: unknown }
    | { readonly decision: 'failure'; readonly error: ConfirmedError }
    | { readonly decision: 'replay' }
  )

export interface ResolveResult {
  readonly id: string
  /** `already_applied`: this very decision was carried out before, and nothing was changed now. */
  readonly did: 'resolved' | 'already_applied'
  readonly decision: Decision
  readonly status: Status
}

/** A decision as it is stored. */
export interface Resolution {
  readonly id: string
  readonly decision: Decision
  readonly by: string
  /** The key that was used, where it is not who decided. */
  readonly via?: string | undefined
  readonly details?: unknown
  /** Of the whole command. */
  readonly fingerprint: string
}

/** A resolution to be carried out. Result and error are JSON text. */
export interface NewResolution {
  readonly resolution: Resolution
  readonly result: string | null
  readonly error: string | null
}

export type ResolveAnswer =
  | { readonly kind: 'resolved' | 'already_applied'; readonly status: Status }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'other_decision' }
  | { readonly kind: 'cancel_requested' }
  | { readonly kind: 'not_uncertain'; readonly status: Status }

export type RetryAnswer =
  | { readonly kind: 'retried'; readonly id: string }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'not_retryable'; readonly status: Status }
  | { readonly kind: 'key_taken'; readonly holder: string }
  | { readonly kind: 'too_few_attempts'; readonly maxAttempts: number }
