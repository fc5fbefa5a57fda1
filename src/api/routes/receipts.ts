import type { ApiRequest } from '../api-context.ts'
import { refuseQuery } from '../query.ts'
import { json } from '../respond.ts'
import { addRoute, type Routing } from '../routing.ts'
import { callerOf } from './runs.ts'

export function addReceiptRoutes(routing: Routing): void {
  addRoute(routing, '/v1/receipts/:key', { GET: { scopes: ['runs:read'], handle: read } })
}

/** What a request under that Idempotency-Key came to. */
async function read({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  const { replayed, ...found } = await api.calls.reconcile(http.req.param('key') ?? '', callerOf(access))
  return json(200, found)
}
