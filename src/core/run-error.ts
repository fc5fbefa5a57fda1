/** What is stored of an error, and why a run ended. */
import { MAX_ERROR_MESSAGE_LENGTH, MAX_ERROR_STACK_LENGTH } from './bounds.ts'
import { describe, isPawlError } from './errors.ts'
import { cleanText } from './json.ts'

/** The error of a run as it is stored and shown. `data` is what `fail(data)` was given, checked by the definition's `error` schema. */
export interface RunError {
  readonly code: string
  readonly message: string
  readonly name?: string | undefined
  readonly stack?: string | undefined
  readonly data?: unknown
  /** Why it was the end: set on the error of an ended run. */
  readonly cause?: TerminalCause | undefined
  /** Of a cancelled run: who asked (`run:` and an id: its parent was cancelled), the reason given, or which deadline was over. */
  readonly by?: string | undefined
  readonly reason?: string | undefined
  readonly deadline?: 'maxDuration' | 'startWithin' | 'progressWithin' | undefined
}

/**
 * Why a run ended without a result: no attempt was left, the handler said so, it snoozed too often, its result or error could not be
 * stored, it took too long where that is the end, its host was killed too often, somebody confirmed that it failed, it was cancelled, or
 * it was discarded.
 */
export type TerminalCause =
  | 'exhausted'
  | 'declined'
  | 'snooze_limit'
  | 'unstorable'
  | 'timeout'
  | 'lost'
  | 'confirmed'
  | 'cancelled'
  | 'discarded'

/** A message within its bound, of characters that Postgres stores. */
export function shorten(text: string): string {
  return cleanText(text.slice(0, MAX_ERROR_MESSAGE_LENGTH))
}

/**
 * The storable account of whatever a handler threw. Never throws; texts are cut to their bounds and cleaned of what
 * Postgres refuses, so that storing a failure cannot fail. `code` defaults to `thrown`, a PawlError keeps its own.
 */
export function toRunError(thrown: unknown, code?: string): RunError {
  try {
    if (!(thrown instanceof Error)) {
      return { code: code ?? 'thrown', message: shorten(typeof thrown === 'string' ? thrown : describe(thrown)) }
    }
    return {
      code: code ?? (isPawlError(thrown) ? thrown.code : 'thrown'),
      name: shorten(String(thrown.name)).slice(0, 200),
      message: shorten(String(thrown.message)),
      stack: typeof thrown.stack === 'string' ? cleanText(thrown.stack.slice(0, MAX_ERROR_STACK_LENGTH)) : undefined,
    }
  } catch {
    return { code: code ?? 'thrown', message: 'something was thrown that cannot be read' }
  }
}

/** Throw it (or wrap what you caught) to end the run as failed now, whatever attempts are left. */
export class NonRetryableError extends Error {
  override readonly name: string = 'NonRetryableError'
}

/** `throw nonRetryable(error)`: the run fails now with that error's message, name and stack. */
export function nonRetryable(error: unknown): NonRetryableError {
  if (error instanceof NonRetryableError) return error
  const message = error instanceof Error ? error.message : typeof error === 'string' ? error : describe(error)
  return new NonRetryableError(message, { cause: error })
}

export function isNonRetryable(error: unknown): boolean {
  try {
    return error instanceof Error && error.name === 'NonRetryableError'
  } catch {
    return false
  }
}
