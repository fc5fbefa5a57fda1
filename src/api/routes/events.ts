import type { ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { readIdempotencyKey, refuseQuery } from '../query.ts'
import { EVENT_FIELDS, eventBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'
import { callerOf, located } from './runs.ts'

export function addEventRoutes(routing: Routing): void {
  addRoute(routing, '/v1/events', { POST: { scopes: ['signals:write'], handle: emit } })
}

async function emit({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  const idempotencyKey = readIdempotencyKey(http)
  const body = await readBody(http, eventBody)
  const { replayed, ...event } = await located(api.calls.emit({ ...body, idempotencyKey }, callerOf(access)), EVENT_FIELDS)
  if (event.created && !replayed) kick(api)
  return json(event.created ? 201 : 200, event, { 'idempotent-replayed': replayed ? 'true' : undefined })
}
