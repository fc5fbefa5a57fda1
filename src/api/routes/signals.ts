import type { ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { readIdempotencyKey, refuseQuery } from '../query.ts'
import { SIGNAL_FIELDS, signalBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'
import { callerOf, located } from './runs.ts'

export function addSignalRoutes(routing: Routing): void {
  addRoute(routing, '/v1/signals', { POST: { scopes: ['signals:write'], handle: send } })
}

async function send({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  const idempotencyKey = readIdempotencyKey(http)
  const body = await readBody(http, signalBody)
  const { id, runId, replayed } = await located(api.calls.signal({ ...body, idempotencyKey }, callerOf(access)), SIGNAL_FIELDS)
  if (!replayed) kick(api)
  return json(202, { id, runId }, { 'idempotent-replayed': replayed ? 'true' : undefined })
}
