import type { Explanation } from '../../core/explain.ts'
import type { ApiRequest } from '../api-context.ts'
import { refuseQuery } from '../query.ts'
import { nullableInstant, toInstantText } from '../representations.ts'
import { json } from '../respond.ts'
import { addRoute, type Routing } from '../routing.ts'
import { callerOf, idOf } from './runs.ts'

export function addExplainRoutes(routing: Routing): void {
  addRoute(routing, '/v1/runs/:id/explain', { GET: { scopes: ['runs:read', 'ops'], handle: explain } })
}

async function explain(request: ApiRequest): Promise<Response> {
  refuseQuery(request.http)
  return json(200, toExplanationView(await request.api.calls.explain(idOf(request), callerOf(request.access))))
}

function toExplanationView(explanation: Explanation) {
  const { reason, detail, since, until, ...which } = explanation
  const lastTickAt = 'lastTickAt' in which ? { lastTickAt: nullableInstant(which.lastTickAt) } : {}
  return {
    reason,
    detail,
    since: toInstantText(since),
    until: until === undefined ? undefined : toInstantText(until),
    ...which,
    ...lastTickAt,
  }
}
