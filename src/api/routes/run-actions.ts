import type { ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { refuseQuery } from '../query.ts'
import { emptyBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'
import { callerOf, idOf } from './runs.ts'

/** What is done to one run. Each is idempotent and says what it did. */
export function addRunActionRoutes(routing: Routing): void {
  addRoute(routing, '/v1/runs/:id/cancel', { POST: { scopes: ['runs:write', 'ops'], handle: cancel } })
  addRoute(routing, '/v1/runs/:id/retry', { POST: { scopes: ['runs:write', 'ops'], handle: retry } })
}

async function cancel(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  await readBody(http, emptyBody)
  const answer = await api.calls.cancel(idOf(request), callerOf(access))
  if (answer.did === 'cancelled') kick(api)
  return json(200, answer, forgetRun(answer.id))
}

async function retry(request: ApiRequest): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  await readBody(http, emptyBody)
  const { id, status } = await api.calls.retry(idOf(request), callerOf(access))
  kick(api)
  return json(200, { id, did: 'retried', status }, forgetRun(id))
}

/** Caches drop what they hold of the resource that the answer to an unsafe request names (RFC 9111 4.4). */
export function forgetRun(id: string) {
  return { location: `../${id}` }
}
