import * as z from 'zod'
import { STATUSES } from '../../core/status.ts'
import type { ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { refuseQuery } from '../query.ts'
import { instant } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'
import { callerOf, located } from './runs.ts'

const status = z.enum(STATUSES)

const bulkBody = z.strictObject({
  action: z.enum(['cancel', 'retry']),
  filter: z.strictObject({
    status: z.union([status, z.array(status).min(1)]).optional(),
    definition: z.string().optional(),
    queue: z.string().optional(),
    key: z.string().optional(),
    tag: z.string().optional(),
    parent: z.string().optional(),
    since: instant.optional(),
    until: instant.optional(),
  }),
  /** Where an earlier call left off. */
  cursor: z.string().max(200).optional(),
})

const BULK_FIELDS: readonly string[] = Object.keys(bulkBody.shape)

export function addBulkRoutes(routing: Routing): void {
  addRoute(routing, '/v1/runs/bulk', { POST: { scopes: ['ops'], handle: changeMany } })
}

async function changeMany({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  const body = await readBody(http, bulkBody)
  const answer = await located(api.calls.changeMany(body, callerOf(access)), BULK_FIELDS)
  if (answer.affected > 0) kick(api)
  return json(200, answer)
}
