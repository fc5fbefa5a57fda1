/** One exchange with the HTTP API: problem documents become PawlErrors, and a lost reply says that it is one. */
import { isConnectFailure } from '../core/connect-failures.ts'
import { ERROR_CODES, type ErrorCode, type ErrorItem, isPawlError, notAllowed, PawlError } from '../core/errors.ts'

/** Times a repeatable request is sent again after a 503. */
const MAX_REPEATS = 2
/** The longest `Retry-After` that is waited for, in milliseconds: a cold database needs two seconds, an outage is the caller's to judge. */
const MAX_REPEAT_AFTER_MS = 5_000

export interface HttpExchangeOptions {
  /** Where the API is mounted, without the `/v1`. */
  readonly url: string
  readonly key: string | undefined
  readonly tenant: string | undefined
  readonly timeoutMs: number
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>
  readonly pause: (ms: number) => Promise<void>
}

export interface HttpRequest {
  readonly method: 'GET' | 'POST'
  readonly path: string
  readonly query?: Readonly<Record<string, string | undefined>> | undefined
  readonly body?: unknown
  readonly idempotencyKey?: string | undefined
  /** Sent again after a 503 that says when: it bears an id or a key that makes it one request. */
  readonly repeatable: boolean
  /** What is asked, for messages: `Spawning "mail"`. */
  readonly asked: string
  /** Besides the client's timeout, in milliseconds: what the server was asked to wait. */
  readonly extraMs?: number | undefined
}

export interface HttpAnswer {
  readonly status: number
  readonly body: unknown
  readonly replayed: boolean
}

/**
 * Sends one request and reads its answer; a repeatable one again, twice at most, after a 503 that says when and after a connection that
 * broke. Throws PawlError for everything that is not a success: once a reply was lost, what leaves open whether it happened is
 * `unknown_outcome`, also when the last attempt surely never left.
 */
export async function exchange(options: HttpExchangeOptions, request: HttpRequest): Promise<HttpAnswer> {
  const url = toUrl(options.url, request)
  let isLost = false
  for (let repeats = 0; ; repeats += 1) {
    try {
      return await exchangeOnce(options, request, url)
    } catch (error) {
      if (!isPawlError(error)) throw error
      isLost ||= error.code === 'unknown_outcome'
      const { retryAfterMs } = error
      const again = error.status === 503 && request.repeatable && repeats < MAX_REPEATS
      if (!again || retryAfterMs === undefined || retryAfterMs > MAX_REPEAT_AFTER_MS) {
        throw isLost && leavesOpen(error) ? lost(request, error) : error
      }
      await options.pause(retryAfterMs)
    }
  }
}

function leavesOpen({ code, kind }: PawlError): boolean {
  return code !== 'unknown_outcome' && (kind === 'unreachable' || kind === 'contended')
}

async function exchangeOnce(options: HttpExchangeOptions, request: HttpRequest, url: string): Promise<HttpAnswer> {
  const response = await send(options, request, url)
  const text = await readText(response, request)
  if (!response.ok) throw toError(response, text, request)
  return { status: response.status, body: parseAnswer(text, request), replayed: isReplayed(response) }
}

function isReplayed(response: Response): boolean {
  return response.headers.get('idempotent-replayed') === 'true'
}

function toUrl(base: string, { path, query = {} }: HttpRequest): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.append(name, value)
  return `${base.replace(/\/+$/, '')}${path}${search.size > 0 ? `?${search}` : ''}`
}

async function send(options: HttpExchangeOptions, request: HttpRequest, url: string): Promise<Response> {
  const headers: Record<string, string> = { accept: 'application/json' }
  if (options.key !== undefined) headers.authorization = `Bearer ${options.key}`
  if (options.tenant !== undefined) headers['pawl-tenant'] = options.tenant
  if (request.body !== undefined) headers['content-type'] = 'application/json'
  if (request.idempotencyKey !== undefined) headers['idempotency-key'] = toHeaderText(request.idempotencyKey)
  const body = request.body === undefined ? null : JSON.stringify(request.body)
  const signal = AbortSignal.timeout(options.timeoutMs + (request.extraMs ?? 0))
  try {
    return await options.fetch(url, { method: request.method, headers, body, signal, redirect: 'error' })
  } catch (cause) {
    throw isConnectFailure(cause) ? unreachable(request, cause) : lost(request, cause)
  }
}

const PRINTABLE_ASCII = /^[\x20-\x7e]+$/

/** A quoted string of a structured field. */
function toHeaderText(key: string): string {
  if (PRINTABLE_ASCII.test(key)) return `"${key.replace(/["\\]/g, '\\$&')}"`
  throw notAllowed('invalid_request', { field: 'idempotencyKey', got: key, allowed: 'printable ASCII, as a header may hold' })
}

async function readText(response: Response, request: HttpRequest): Promise<string> {
  try {
    return await response.text()
  } catch (cause) {
    throw lost(request, cause)
  }
}

/** A repeatable request is sent again that long after its connection broke, in milliseconds. */
const AFTER_BROKEN_MS = 500

/** Nothing tells whether the request arrived, so a write may or may not have happened. One that timed out is not sent again: its time is over. */
function lost(request: HttpRequest, cause: unknown): PawlError {
  const { method, asked, repeatable } = request
  if (method === 'GET') return unreachable(request, cause)
  const remedy = repeatable
    ? 'Ask again with the same id or idempotency key: what was written is answered.'
    : 'Look before asking again; an id or an idempotency key makes it safe.'
  const detail = `${asked}: no reply (${reasonOf(cause)}), so it may or may not have happened. ${remedy}`
  const isTimeout = cause instanceof Error && cause.name === 'TimeoutError'
  return new PawlError('unknown_outcome', detail, { retryAfterMs: isTimeout ? undefined : AFTER_BROKEN_MS, cause })
}

/** It surely did not happen. */
function unreachable({ asked }: HttpRequest, cause: unknown): PawlError {
  return new PawlError('database_unreachable', `${asked}: the API cannot be reached (${reasonOf(cause)}).`, { cause })
}

/** What `fetch` says of a connection that failed is "fetch failed"; why, and to which address, is in its cause. */
function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  return cause.cause instanceof Error && cause.cause.message !== '' ? cause.cause.message : cause.message
}

/** Every answer of the API is an object: anything else, also nothing or a bare `null`, comes from somebody else and is no success. */
function parseAnswer(text: string, request: HttpRequest): object {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) return value
  } catch {}
  throw new PawlError('internal', `${request.asked}: the answer is not one of the API. Is the url that of the API?`)
}

/** Statuses by which a gateway says that it lost the server, not that the server refused. */
const LOST_BEHIND = new Set([502, 504])

function toError(response: Response, text: string, request: HttpRequest): PawlError {
  const problem = readProblem(text)
  if (problem !== undefined) return toPawlProblem(problem, retryAfterMsOf(response))
  const said = `${response.status} ${text.replace(/\s+/g, ' ').slice(0, 200)}`
  if (LOST_BEHIND.has(response.status)) return lost(request, new Error(said))
  const code = response.status === 404 ? 'not_found' : response.status === 401 ? 'unauthorized' : 'internal'
  return new PawlError(code, `${request.asked}: the answer is not one of the API (${said}).`, {
    retryAfterMs: retryAfterMsOf(response),
  })
}

type ProblemMembers = Readonly<Record<string, unknown>>

function readProblem(text: string): ProblemMembers | undefined {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== 'object' || value === null || !('code' in value)) return undefined
    return value as ProblemMembers
  } catch {
    return undefined
  }
}

/** The error that a problem document tells of. A code of a newer server is `internal`, and its text says which it was. */
export function toPawlProblem(problem: ProblemMembers, retryAfterMs?: number): PawlError {
  const text = (member: string): string | undefined => {
    const value = problem[member]
    return typeof value === 'string' ? value : undefined
  }
  const code = text('code') ?? 'internal'
  const isKnown = Object.hasOwn(ERROR_CODES, code)
  const detail = text('detail') ?? text('title') ?? code
  return new PawlError(isKnown ? (code as ErrorCode) : 'internal', isKnown ? detail : `${code}: ${detail}`, {
    errors: Array.isArray(problem.errors) ? (problem.errors as readonly ErrorItem[]) : undefined,
    field: text('field'),
    got: text('got'),
    allowed: text('allowed'),
    retryAfterMs,
  })
}

function retryAfterMsOf(response: Response): number | undefined {
  const seconds = response.headers.get('retry-after')
  return seconds !== null && /^\d{1,6}$/.test(seconds) ? Number(seconds) * 1_000 : undefined
}
