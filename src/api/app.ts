import { Hono } from 'hono'
import { PawlError } from '../core/errors.ts'
import { AccessCache } from './access.ts'
import type { ResolveApiContext } from './api-context.ts'
import { problemResponse } from './problem.ts'
import { addApiKeyRoutes } from './routes/api-keys.ts'
import { addBulkRoutes } from './routes/bulk.ts'
import { addEventRoutes } from './routes/events.ts'
import { addExplainRoutes } from './routes/explain.ts'
import { addHookRoutes } from './routes/hooks.ts'
import { addOperationRoutes } from './routes/operations.ts'
import { addPauseRoutes } from './routes/pauses.ts'
import { addReceiptRoutes } from './routes/receipts.ts'
import { addRunActionRoutes } from './routes/run-actions.ts'
import { addRunRoutes } from './routes/runs.ts'
import { addSignalRoutes } from './routes/signals.ts'
import type { Routing } from './routing.ts'

/**
 * The HTTP API as a Hono app, to be served as it is or mounted at any path (`app.route('/pawl', api)`). `resolve` gives what one
 * request works with. What is remembered between requests (keys for 30 s, gauges for 60 s) belongs to this app: one app, one installation.
 */
export function createApi(resolve: ResolveApiContext): Hono {
  const app = new Hono()
  const routing: Routing = { app, resolve, cache: new AccessCache() }
  addBulkRoutes(routing)
  addRunRoutes(routing)
  addRunActionRoutes(routing)
  addPauseRoutes(routing)
  addExplainRoutes(routing)
  addSignalRoutes(routing)
  addEventRoutes(routing)
  addReceiptRoutes(routing)
  addOperationRoutes(routing)
  addApiKeyRoutes(routing)
  addHookRoutes(routing)
  // below our own prefixes alone: the rest of a larger application is not ours to refuse
  app.all('/v1/*', notFound)
  app.all('/hooks/*', notFound)
  app.notFound(notFound)
  return app
}

function notFound(): Response {
  return problemResponse(new PawlError('not_found', 'There is nothing at this address.'))
}
