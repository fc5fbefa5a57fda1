import type { Caller, SpawnCall, SpawnItem, SpawnResult } from '../../core/calls.ts'
import { isPawlError, PawlError } from '../../core/errors.ts'
import { isTerminal } from '../../core/status.ts'
import type { RunRecord } from '../../core/store.ts'
import { nowOf } from '../access.ts'
import type { Access, ApiRequest } from '../api-context.ts'
import { matchBody, readBody } from '../body.ts'
import { locate, type Problem, toProblem } from '../problem.ts'
import { readIdempotencyKey, readListQuery, readPage, readWait, refuseQuery } from '../query.ts'
import { retryAfterOf, toHistoryView, toListedRun, toRunView } from '../representations.ts'
import { batchBody, MAX_ITEMS, SPAWN_FIELDS, type SpawnBody, spawnBody } from '../requests.ts'
import { json, jsonWithTag } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'

/** What hosts let a request stay open, in milliseconds. */
const MAX_WAIT_MS = 25_000
/** A year: for ever, as caches count. */
const IMMUTABLE = 'private, max-age=31536000, immutable'

export function addRunRoutes(routing: Routing): void {
  addRoute(routing, '/v1/runs', {
    GET: { scopes: ['runs:read'], handle: list },
    POST: { scopes: ['runs:write'], handle: spawn },
  })
  addRoute(routing, '/v1/runs/batch', { POST: { scopes: ['runs:write'], handle: spawnBatch } })
  addRoute(routing, '/v1/runs/:id', { GET: { scopes: ['runs:read'], handle: read } })
  addRoute(routing, '/v1/runs/:id/history', { GET: { scopes: ['runs:read'], handle: history } })
}

export function callerOf({ tenant, by }: Access): Caller {
  return { tenant, by }
}

/** The id in the path. One that is none is answered like one that is unknown. */
export function idOf({ http }: ApiRequest): string {
  return http.req.param('id') ?? ''
}

async function spawn(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  const idempotencyKey = readIdempotencyKey(http)
  const body = await readBody(http, spawnBody)
  const result = await located(api.calls.spawn(toCall(request, body, idempotencyKey), callerOf(access)), SPAWN_FIELDS)
  if (isNews(result)) kick(api)
  return json(result.created ? 201 : 200, toSpawned(result), {
    location: `runs/${result.id}`,
    'idempotent-replayed': result.replayed ? 'true' : undefined,
  })
}

/** The caller's trace goes on in the run, with what its vendors noted of it, unless the body names another. */
function toCall({ http }: ApiRequest, body: SpawnBody, idempotencyKey: string | undefined): SpawnCall {
  const traceparent = http.req.header('traceparent')
  if (traceparent === undefined || !TRACEPARENT.test(traceparent)) return { ...body, idempotencyKey }
  const tracestate = http.req.header('tracestate')
  const trace = tracestate === undefined || !TRACESTATE.test(tracestate) ? { traceparent } : { traceparent, tracestate }
  const isOwn = Object.keys(body.headers ?? {}).some((name) => name.toLowerCase() === 'traceparent')
  return { ...body, headers: isOwn ? body.headers : { ...trace, ...body.headers }, idempotencyKey }
}

const TRACESTATE = /^[\x20-\x7e]{1,512}$/
/** W3C Trace Context, version 00. */
const TRACEPARENT = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/

/** What was done to the run that is there is said only where something was. */
function toSpawned({ id, status, created, rescheduled, gathered }: SpawnResult) {
  return { id, status, created, ...(rescheduled && { rescheduled }), ...(gathered && { gathered }) }
}

/** Something may be due that was not before. */
function isNews({ created, replayed, rescheduled, gathered }: SpawnResult): boolean {
  return !replayed && (created || rescheduled === true || gathered === true)
}

type ItemView = ReturnType<typeof toSpawned> | { readonly error: Problem }

/** An answer per item, in order: what a single spawn answers, or `{error}` with its problem. */
async function spawnBatch(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  const idempotencyKey = readIdempotencyKey(http)
  const { runs } = await readBody(http, batchBody)
  if (runs.length > MAX_ITEMS) {
    throw new PawlError('too_many_items', `runs: got ${runs.length}, allowed are ${MAX_ITEMS}.`, {
      field: 'runs',
      got: String(runs.length),
      allowed: `at most ${MAX_ITEMS}`,
    })
  }
  const items = runs.map((item, index) => toItemCall(request, item, index, idempotencyKey))
  const calls = items.flatMap((item) => (item.ok ? [item.call] : []))
  const answers = await api.calls.spawnMany(calls, callerOf(access))
  let next = 0
  const results = items.map((item) => (item.ok ? (answers[next++] as SpawnItem) : item))
  if (results.some((item) => item.ok && isNews(item.value))) kick(api)
  const replayed = results.every((item) => item.ok && item.value.replayed)
  const views = results.map(
    (item, index): ItemView => (item.ok ? toSpawned(item.value) : { error: toItemProblem(item.error, index) }),
  )
  return json(200, { items: views }, { 'idempotent-replayed': replayed ? 'true' : undefined })
}

type ItemCall = { readonly ok: true; readonly call: SpawnCall } | { readonly ok: false; readonly error: PawlError }

/** Under one idempotency key, each item has its own: the key and its place. */
function toItemCall(request: ApiRequest, item: unknown, index: number, idempotencyKey: string | undefined): ItemCall {
  try {
    const itemKey = idempotencyKey === undefined ? undefined : `${idempotencyKey}:${index}`
    return { ok: true, call: toCall(request, matchBody(spawnBody, item), itemKey) }
  } catch (error) {
    if (!isPawlError(error)) throw error
    return { ok: false, error }
  }
}

function toItemProblem(error: PawlError, index: number): Problem {
  const place = `/runs/${index}`
  const { errors, field } = error
  if (field !== 'body') return toProblem(locate(error, SPAWN_FIELDS, place))
  const located = errors?.map(({ pointer, detail }) => ({ pointer: `${place}${pointer}`, detail }))
  return toProblem(new PawlError(error.code, error.detail, { field, errors: located }))
}

/** Waits for a call; what it refuses is located in the body. */
export async function located<T>(call: Promise<T>, members: readonly string[]): Promise<T> {
  try {
    return await call
  } catch (error) {
    throw isPawlError(error) ? locate(error, members) : error
  }
}

async function list({ http, api, access }: ApiRequest): Promise<Response> {
  const { items, nextCursor } = await api.store.listRuns(readListQuery(http, access.tenant))
  return json(200, { items: items.map(toListedRun), nextCursor })
}

async function read(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  const wait = readWait(http)
  const ms = Math.min(wait.ms, api.maxWaitMs ?? MAX_WAIT_MS, MAX_WAIT_MS)
  const id = idOf(request)
  const caller = callerOf(access)
  // a caller that has gone is not waited for
  const run = await (ms > 0 ? api.calls.waitForRun(id, ms, caller, http.req.raw.signal) : api.calls.getRun(id, caller))
  const applied = wait.preferred === undefined ? undefined : `wait=${Math.floor(ms / 1_000)}`
  return jsonWithTag(http, toRunView(run), { ...freshnessOf(run, nowOf(api)), 'preference-applied': applied })
}

/** A run that has ended may be kept for ever; any other must be asked about again, and not before something is due. */
function freshnessOf(run: RunRecord, now: number) {
  const retryAfter = retryAfterOf(run, now)
  return {
    'cache-control': isTerminal(run.status) ? IMMUTABLE : 'private, no-cache',
    'retry-after': retryAfter === undefined ? undefined : String(retryAfter),
    vary: 'Authorization, Pawl-Tenant, Prefer',
  }
}

async function history(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  const page = await api.store.history(idOf(request), { tenant: access.tenant }, readPage(http))
  if (page === null) throw notFound(idOf(request))
  return json(200, { items: page.items.map(toHistoryView), nextCursor: page.nextCursor })
}

function notFound(id: string): PawlError {
  return new PawlError('not_found', `No run has the id ${JSON.stringify(id.slice(0, 60))}.`, { field: 'id' })
}
