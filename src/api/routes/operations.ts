import type { Context } from 'hono'
import { PawlError } from '../../core/errors.ts'
import { toHealth, toStats } from '../../core/statistics.ts'
import type { HealthRecord, Scope, StatsRecord } from '../../core/store.ts'
import { nowOf } from '../access.ts'
import type { Access, ApiContext, ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { refuseQuery } from '../query.ts'
import { toHealthView, toQueueView, toStatsView, toTickView } from '../representations.ts'
import { emptyBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, type Routing } from '../routing.ts'
import { TimedCache } from '../timed-cache.ts'

/** Gauges of the database are read once in this time, in milliseconds: a monitor must not keep it awake. */
const STATS_TTL_MS = 60_000
/** The same for health, which anybody may ask. */
const HEALTH_TTL_MS = 10_000
const MAX_TENANTS_CACHED = 200

export function addOperationRoutes(routing: Routing): void {
  const stats = new TimedCache<StatsRecord>({ ttlMs: STATS_TTL_MS, maxEntries: MAX_TENANTS_CACHED })
  const health = new TimedCache<HealthRecord>({ ttlMs: HEALTH_TTL_MS, maxEntries: 1 })
  addRoute(routing, '/v1/tick', {
    GET: { scopes: ['tick'], handle: tick },
    POST: { scopes: ['tick'], handle: tick },
  })
  addRoute(routing, '/v1/stats', { GET: { scopes: ['runs:read', 'ops'], handle: (request) => readStats(request, stats) } })
  addRoute(routing, '/v1/queues', { GET: { scopes: ['runs:read', 'ops'], handle: listQueues } })
  addRoute(routing, '/v1/healthz', { GET: { open: (http, api) => readHealth(http, api, health) } })
  addRoute(routing, '/healthz', { GET: { open: (http, api) => readHealth(http, api, health) } })
}

/** GET as well, since platforms call their cron targets so; never for HEAD, which must do nothing. */
async function tick({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  if (http.req.raw.method === 'HEAD') throw new PawlError('method_not_allowed', 'HEAD does not tick.', { allowed: 'GET, POST' })
  if (http.req.raw.method === 'POST') await readBody(http, emptyBody)
  if (api.tick === undefined) throw new PawlError('not_configured', 'This host does not tick over HTTP.', { field: 'tick' })
  return json(200, toTickView(await api.tick(access.kind === 'cron' ? 'cron' : 'api')))
}

/** A root caller that names no tenant sees all of them. */
export function scopeOf({ kind, tenant, tenantIsNamed }: Access): Scope | null {
  return kind === 'root' && !tenantIsNamed ? null : { tenant }
}

async function readStats({ http, api, access }: ApiRequest, cache: TimedCache<StatsRecord>): Promise<Response> {
  refuseQuery(http)
  const scope = scopeOf(access)
  const load = () => api.store.stats(scope)
  // in development nobody pays for a database that stays awake
  const stats = await (api.access.open ? load() : cache.get(JSON.stringify(scope), nowOf(api), load))
  return json(200, toStatsView(toStats(stats, api.registry.queues)))
}

async function listQueues({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  const { queues, now } = toStats(await api.store.stats(scopeOf(access)), api.registry.queues)
  return json(200, { items: queues.map((queue) => toQueueView(queue, now)), nextCursor: null })
}

async function readHealth(http: Context, api: ApiContext, cache: TimedCache<HealthRecord>): Promise<Response> {
  refuseQuery(http)
  const load = () => api.store.health()
  const health = await (api.access.open ? load() : cache.get('', nowOf(api), load))
  return json(200, toHealthView(toHealth(health), api.build.version))
}
