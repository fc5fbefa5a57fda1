import { explainDatabaseError } from '../core/database-errors.ts'
import { ERROR_CODES, type ErrorItem, isPawlError, PawlError } from '../core/errors.ts'
import { cleanText, toPointer } from '../core/json.ts'

/** When to ask again where an error does not say, in seconds. */
const DEFAULT_RETRY_AFTER_SECONDS = 2

/** A problem document (RFC 9457). `code` is what to match on; `errors` says where in the body, `field`, `got`, `allowed` what. */
export interface Problem {
  readonly type: string
  readonly title: string
  readonly status: number
  readonly detail: string
  readonly code: string
  readonly errors?: readonly ErrorItem[]
  readonly field?: string
  readonly got?: string
  readonly allowed?: string
}

/** Whatever was thrown as an error of ours: one that we do not know is `internal` and says nothing of its insides. */
export function toPawlError(thrown: unknown, asked: string, writes: boolean): PawlError {
  const error = explainDatabaseError(thrown, { asked, writes })
  if (isPawlError(error)) return error
  return new PawlError('internal', 'Something went wrong inside pawl. The log of the host has the error.', { cause: error })
}

export function toProblem(error: PawlError): Problem {
  const { code, status, detail, errors, field, got, allowed } = error
  return {
    type: `urn:pawl:problem:${code}`,
    title: ERROR_CODES[code].title,
    status,
    detail: cleanText(detail),
    code,
    ...(errors !== undefined && errors.length > 0 ? { errors } : {}),
    ...(field === undefined ? {} : { field: cleanText(field) }),
    ...(got === undefined ? {} : { got: cleanText(got) }),
    ...(allowed === undefined ? {} : { allowed: cleanText(allowed) }),
  }
}

export function problemResponse(error: PawlError, extra: Readonly<Record<string, string>> = {}): Response {
  const headers = new Headers({ 'content-type': 'application/problem+json', 'cache-control': 'no-store', ...extra })
  if ((error.status === 503 || error.status === 429) && !headers.has('retry-after')) {
    const { retryAfterMs } = error
    headers.set('retry-after', String(retryAfterMs === undefined ? DEFAULT_RETRY_AFTER_SECONDS : Math.ceil(retryAfterMs / 1_000)))
  }
  return new Response(JSON.stringify(toProblem(error)), { status: error.status, headers })
}

const FIELD = /^([A-Za-z]+)(?:\.(.+)|\[(\d+)\])?$/s

/** `tags[0]` → `/tags/0`: a field as core names it, as a pointer into the body. */
function pointerOf(field: string): string {
  const [, member, name, index] = FIELD.exec(field) ?? []
  return toPointer([member, name ?? index].filter((part) => part !== undefined))
}

/**
 * The same error with pointers into the request body: those of an input are relative to it, and a refused field has none yet.
 * `members`: fields of the body; an error about anything else is left as it is. `prefix`: where the body lies in a larger one.
 */
export function locate(error: PawlError, members: readonly string[], prefix = ''): PawlError {
  const { field, errors, code } = error
  const base = field === undefined ? undefined : pointerOf(field)
  const member = base?.split('/')[1]
  if (base === undefined || member === undefined || !members.includes(member)) return error
  const located = errors?.map(({ pointer, detail }) => ({ pointer: `${prefix}${base}${pointer}`, detail })) ?? [
    { pointer: `${prefix}${base}`, detail: error.allowed === undefined ? error.detail : `must be ${error.allowed}` },
  ]
  const { got, allowed, retryAfterMs, cause } = error
  return new PawlError(code, error.detail, { errors: located, field, got, allowed, retryAfterMs, cause })
}
