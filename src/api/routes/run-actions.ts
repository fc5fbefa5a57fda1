import type { ResolveCall } from '../../core/resolution.ts'
import type { ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { readIdempotencyKey, refuseQuery } from '../query.ts'
import { CANCEL_FIELDS, cancelBody, RESOLVE_FIELDS, RETRY_FIELDS, resolveBody, retryBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'
import { callerOf, idOf, located } from './runs.ts'

/** What is done to one run. Each is idempotent and says what it did. */
export function addRunActionRoutes(routing: Routing): void {
  addRoute(routing, '/v1/runs/:id/cancel', { POST: { scopes: ['runs:write', 'ops'], handle: cancel } })
  addRoute(routing, '/v1/runs/:id/retry', { POST: { scopes: ['runs:write', 'ops'], handle: retry } })
  addRoute(routing, '/v1/runs/:id/resolve', { POST: { scopes: ['ops'], handle: resolve } })
}

async function cancel(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  const { reason } = await readBody(http, cancelBody)
  const answer = await located(api.calls.cancel(idOf(request), { ...callerOf(access), reason }), CANCEL_FIELDS)
  if (answer.did === 'cancelled' || answer.children) kick(api)
  return json(200, answer, forgetRun(answer.id))
}

async function retry(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  const idempotencyKey = readIdempotencyKey(http)
  const body = await readBody(http, retryBody)
  const options = body.asNewRun === true ? { ...body, idempotencyKey } : body
  const id = idOf(request)
  const answer = await located(api.calls.retry(id, options, callerOf(access)), RETRY_FIELDS)
  kick(api)
  if (answer.did === 'retried') return json(200, answer, forgetRun(id))
  return json(201, { ...answer, retriedFrom: id }, { location: `../${answer.id}` })
}

async function resolve(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  // what a decision needs, and what it must not have, is the call's to say
  const body = (await readBody(http, resolveBody)) as ResolveCall
  const answer = await located(api.calls.resolve(idOf(request), body, callerOf(access)), RESOLVE_FIELDS)
  if (answer.did === 'resolved') kick(api)
  return json(200, answer, forgetRun(answer.id))
}

/** Caches drop what they hold of the resource that the answer to an unsafe request names (RFC 9111 4.4). */
export function forgetRun(id: string) {
  return { location: `../${id}` }
}
