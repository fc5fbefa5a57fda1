import { type Context, Hono } from 'hono'
import { AccessCache, authenticate, challenge, requireScope } from '../api/access.ts'
import type { ApiContext } from '../api/api-context.ts'
import { createApi } from '../api/app.ts'
import { problemResponse, toPawlError } from '../api/problem.ts'
import { PawlError } from '../core/errors.ts'
import { handedOnDepth } from './after-pass.ts'

export interface ServeApiParams {
  readonly basePath: string
  /** Gives what one request works with. Throws PawlErrors where it cannot. */
  readonly resolve: (http: Context) => ApiContext
  /** Begins a pass that another invocation hands on; the answer does not wait for it. */
  readonly takeOver: (http: Context, depth: number) => void
  /** The answer is made. Also called for requests that never asked for a context. */
  readonly answered?: ((http: Context) => void) | undefined
}

/** The HTTP API under its base path, as a host serves it. It may also be mounted in an application: `app.route('/', host.api)`. */
export function serveApi({ basePath, resolve, takeOver, answered }: ServeApiParams): Hono {
  const app = new Hono()
  const cache = new AccessCache()
  app.use('*', async (http, next) => {
    try {
      await next()
    } finally {
      answered?.(http)
    }
  })
  app.post('/v1/tick', async (http, next) => {
    const depth = handedOnDepth(http.req.raw.headers)
    if (depth === undefined) return next()
    try {
      requireScope(await authenticate(http, resolve(http), cache), ['tick'])
      takeOver(http, depth)
      return new Response(null, { status: 202, headers: { 'cache-control': 'no-store' } })
    } catch (thrown) {
      const error = toPawlError(thrown, 'Taking over a tick', true)
      return problemResponse(error, challenge(error))
    }
  })
  app.route('/', createApi(resolve))
  const served = basePath === '/' ? app : new Hono().route(basePath, app)
  served.notFound(() => problemResponse(new PawlError('not_found', 'There is nothing at this address.')))
  return served
}
