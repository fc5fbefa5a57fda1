import { isConnectFailure } from '../core/connect-failures.ts'
import { DatabaseError } from '../core/database.ts'

/** Where a failure struck: before anything of the request left, or after it may have. */
export type Phase = 'connecting' | 'sent'

/**
 * The server goes away or cannot be reached: class 08, shutdown, crash, a session that was ended. After sending, a COMMIT
 * may have been executed before the message was written, so that such an answer settles nothing.
 */
const GOING_AWAY = /^(08...|57P01|57P02|57P05)$/

/** The server refuses a session for the time being (starting up, no free connection): the request was never looked at. */
const NOT_ACCEPTING = /^(57P03|53300)$/

const SQLSTATE = /^[0-9A-Z]{5}$/

interface ErrorFields {
  readonly code?: unknown
  readonly severity?: unknown
  readonly constraint?: unknown
  readonly detail?: unknown
  readonly message?: unknown
  readonly cause?: unknown
  readonly sourceError?: unknown
  readonly errors?: unknown
  readonly error?: unknown
}

/** Any failure of a driver as a `DatabaseError`. One that is already mapped passes through. */
export function toDatabaseError(thrown: unknown, phase: Phase): DatabaseError {
  if (thrown instanceof DatabaseError) return thrown
  const cause = causeOf(thrown)
  const fields = fieldsOf(thrown)
  const sqlstate = sqlstateOf(thrown)
  if (sqlstate === undefined) {
    const fate = phase === 'connecting' || isConnectFailure(thrown) ? 'not_sent' : 'lost'
    return new DatabaseError(describe(cause), { fate, cause })
  }
  return new DatabaseError(describe(thrown), {
    fate: fateOf(sqlstate, phase),
    sqlstate,
    constraint: textOf(fields.constraint),
    detail: textOf(fields.detail),
    cause,
  })
}

/** The SQLSTATE of an answer of the server; a driver's own codes (`ECONNRESET`) are none. */
export function sqlstateOf(thrown: unknown): string | undefined {
  const { code, severity } = fieldsOf(thrown)
  // The severity tells `EPIPE`, which has the shape of an SQLSTATE, from an answer of the server.
  return typeof code === 'string' && SQLSTATE.test(code) && typeof severity === 'string' ? code : undefined
}

function fateOf(sqlstate: string, phase: Phase): DatabaseError['fate'] {
  if (NOT_ACCEPTING.test(sqlstate)) return 'not_sent'
  if (GOING_AWAY.test(sqlstate)) return phase === 'connecting' ? 'not_sent' : 'lost'
  return 'refused'
}

/** A WebSocket reports an event that holds the error, and the socket with it. */
function causeOf(thrown: unknown): unknown {
  if (thrown instanceof Error) return thrown
  const { error } = fieldsOf(thrown)
  return error instanceof Error ? error : thrown
}

function describe(thrown: unknown): string {
  const { message, errors } = fieldsOf(thrown)
  if (typeof message === 'string' && message !== '') return message
  // An AggregateError of several addresses has no message of its own.
  if (Array.isArray(errors) && errors.length > 0) return describe(errors[0])
  return 'The connection to the database failed.'
}

function fieldsOf(thrown: unknown): ErrorFields {
  return typeof thrown === 'object' && thrown !== null ? thrown : {}
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined
}

/** Deadlock and serialization failure: the whole batch was rolled back and may be sent again. */
const RETRYABLE = new Set(['40P01', '40001'])

const MAX_SENDS = 5

/** Longest random pause before the third and later sends, so that the same transactions do not meet again. */
const RETRY_JITTER_MS = 20

/** Calls `send`, again after a deadlock or serialization failure, 5 times in all; other failures are thrown at once. */
export async function sendWithRetries<T>(send: () => Promise<T>): Promise<T> {
  for (let sends = 1; ; sends++) {
    try {
      return await send()
    } catch (error) {
      const retryable = error instanceof DatabaseError && error.fate === 'refused' && RETRYABLE.has(error.sqlstate ?? '')
      if (!retryable || sends >= MAX_SENDS) throw error
      if (sends > 1) await new Promise((resolve) => setTimeout(resolve, Math.random() * RETRY_JITTER_MS))
    }
  }
}
