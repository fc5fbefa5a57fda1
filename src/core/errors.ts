/**
 * The one error type of pawl and the closed list of its codes. Codes are stable: clients match on them, never on text.
 */

export type ErrorKind = 'invalid' | 'not_found' | 'mismatch' | 'contended' | 'unreachable' | 'unknown'

export interface ErrorMeaning {
  /** What a caller can do: fix the request, give up, look at what differs, try later, wait for the database, find out. */
  readonly kind: ErrorKind
  /** HTTP status of the problem document. */
  readonly status: number
  /** One short sentence, the same for every occurrence (RFC 9457 `title`). */
  readonly title: string
}

export const ERROR_CODES = {
  // the request itself
  malformed: { kind: 'invalid', status: 400, title: 'The request is not well-formed.' },
  invalid_request: { kind: 'invalid', status: 422, title: 'The request has a field that is not allowed.' },
  invalid_input: { kind: 'invalid', status: 422, title: 'The input does not match its schema or cannot be stored.' },
  invalid_state: { kind: 'invalid', status: 422, title: 'The state does not match its schema or cannot be stored.' },
  invalid_result: { kind: 'invalid', status: 422, title: 'The result does not match its schema or cannot be stored.' },
  invalid_error: { kind: 'invalid', status: 422, title: 'The error does not match its schema or cannot be stored.' },
  invalid_signal: { kind: 'invalid', status: 422, title: 'The signal is not declared or its payload does not match.' },
  invalid_event: { kind: 'invalid', status: 422, title: 'The event is not declared or its payload does not match.' },
  invalid_outcome: { kind: 'invalid', status: 422, title: 'The step ended with an outcome that is not allowed.' },
  unknown_definition: { kind: 'invalid', status: 422, title: 'No definition has this name and version.' },
  unknown_queue: { kind: 'invalid', status: 422, title: 'No queue has this name.' },
  unknown_limit: { kind: 'invalid', status: 422, title: 'No limit has this name.' },
  payload_too_large: { kind: 'invalid', status: 413, title: 'The payload is too large.' },
  too_many_items: { kind: 'invalid', status: 413, title: 'The request has too many items.' },
  method_not_allowed: { kind: 'invalid', status: 405, title: 'The resource does not know this method.' },
  unsupported_media_type: { kind: 'invalid', status: 415, title: 'The body is not of a type that is understood.' },
  // who asks
  unauthorized: { kind: 'invalid', status: 401, title: 'The request bears no valid key.' },
  bad_signature: { kind: 'invalid', status: 401, title: 'The signature of the delivery is not valid.' },
  forbidden: { kind: 'invalid', status: 403, title: 'The key may not do this.' },
  // what is asked about
  not_found: { kind: 'not_found', status: 404, title: 'There is no such thing.' },
  no_target: { kind: 'not_found', status: 404, title: 'No live run can take the signal.' },
  gone: { kind: 'not_found', status: 410, title: 'It existed and is no more.' },
  // what is there differs from what was expected
  conflict: { kind: 'mismatch', status: 409, title: 'The run is not in a state that allows this.' },
  key_taken: { kind: 'mismatch', status: 409, title: 'Another run holds the key.' },
  not_retryable: { kind: 'mismatch', status: 409, title: 'The run cannot be retried.' },
  idempotency_mismatch: { kind: 'mismatch', status: 422, title: 'The idempotency key was used for another request.' },
  idempotency_in_progress: { kind: 'contended', status: 409, title: 'A request with this idempotency key is in progress.' },
  cancelled: { kind: 'mismatch', status: 409, title: 'The run was asked to end.' },
  lost_ownership: { kind: 'mismatch', status: 409, title: 'The run is no longer owned by this invocation.' },
  // the database
  database_unreachable: { kind: 'unreachable', status: 503, title: 'The database cannot be reached.' },
  database_busy: { kind: 'contended', status: 503, title: 'The database is too busy.' },
  unknown_outcome: { kind: 'unknown', status: 503, title: 'The reply was lost: the write may or may not have happened.' },
  schema_outdated: { kind: 'mismatch', status: 503, title: 'The database schema is older than this build needs.' },
  schema_newer: { kind: 'mismatch', status: 503, title: 'The database schema is newer than this build understands.' },
  schema_foreign: { kind: 'mismatch', status: 503, title: 'The database schema was not made by pawl.' },
  environment_mismatch: { kind: 'mismatch', status: 503, title: 'The database belongs to another environment.' },
  wrong_database: { kind: 'mismatch', status: 503, title: 'The database is not the one that was expected.' },
  // this installation
  not_configured: { kind: 'invalid', status: 503, title: 'The installation is not configured.' },
  invalid_configuration: { kind: 'invalid', status: 500, title: 'A definition or a setting is not allowed.' },
  not_connected: { kind: 'invalid', status: 500, title: 'No database was given for this invocation.' },
  too_many_requests: { kind: 'contended', status: 429, title: 'Too many requests.' },
  internal: { kind: 'unknown', status: 500, title: 'Something went wrong inside pawl.' },
} as const satisfies Record<string, ErrorMeaning>

export type ErrorCode = keyof typeof ERROR_CODES

/** One thing wrong with a value: where (RFC 6901 JSON pointer, `''` is the whole value) and what. */
export interface ErrorItem {
  readonly pointer: string
  readonly detail: string
}

export interface PawlErrorOptions {
  readonly errors?: readonly ErrorItem[] | undefined
  /** The setting, argument or member that was refused. */
  readonly field?: string | undefined
  /** What it was, shortened. */
  readonly got?: string | undefined
  /** What it may be. */
  readonly allowed?: string | undefined
  /** When asking again makes sense, in milliseconds from now. */
  readonly retryAfterMs?: number | undefined
  readonly cause?: unknown
}

/** What every public function of pawl throws. Match on `code`. */
export class PawlError extends Error {
  override readonly name = 'PawlError'
  readonly code: ErrorCode
  readonly kind: ErrorKind
  readonly status: number
  /** This occurrence, in a sentence. The same text as `message`. */
  readonly detail: string
  readonly errors: readonly ErrorItem[] | undefined
  readonly field: string | undefined
  readonly got: string | undefined
  readonly allowed: string | undefined
  readonly retryAfterMs: number | undefined

  constructor(code: ErrorCode, detail: string, options: PawlErrorOptions = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.kind = ERROR_CODES[code].kind
    this.status = ERROR_CODES[code].status
    this.detail = detail
    this.errors = options.errors
    this.field = options.field
    this.got = options.got
    this.allowed = options.allowed
    this.retryAfterMs = options.retryAfterMs
  }
}

/** True for a PawlError, also one made by another copy of this library; with `code`, only for that code. */
export function isPawlError(error: unknown, code?: ErrorCode): error is PawlError {
  try {
    if (!(error instanceof Error) || error.name !== 'PawlError' || !('code' in error)) return false
    return code === undefined || error.code === code
  } catch {
    // whatever was thrown cannot even be looked at
    return false
  }
}

/** An error that names the field, what was got (shortened) and what is allowed. */
export function notAllowed(code: ErrorCode, params: { field: string; got: unknown; allowed: string }): PawlError {
  const got = describe(params.got)
  const detail = `${params.field}: got ${got}, allowed is ${params.allowed}.`
  return new PawlError(code, detail, { field: params.field, got, allowed: params.allowed })
}

/** A short printable account of any value, for error messages. Never throws, never longer than 80 characters or so. */
export function describe(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)
  if (typeof value === 'bigint') return `${value}n`.slice(0, 60)
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'symbol') return 'a symbol'
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (typeof value === 'object' && value !== null) return 'an object'
  return String(value)
}
