import type { Context, Hono } from 'hono'
import { PawlError } from '../core/errors.ts'
import { silentLogger } from '../core/logger.ts'
import { type AccessCache, authenticate, challenge, requireScope } from './access.ts'
import type { ApiContext, ApiRequest, ResolveApiContext } from './api-context.ts'
import type { ApiScope } from './api-key.ts'
import { problemResponse, toPawlError } from './problem.ts'

type Method = 'GET' | 'POST' | 'DELETE'

export interface Operation {
  /** One of them is needed. */
  readonly scopes: readonly ApiScope[]
  readonly handle: (request: ApiRequest) => Promise<Response>
}

/** For requests that prove themselves otherwise, or that anybody may send. */
export interface OpenOperation {
  readonly open: (http: Context, api: ApiContext) => Promise<Response>
}

export interface Routing {
  readonly app: Hono
  readonly resolve: ResolveApiContext
  readonly cache: AccessCache
}

/** Serves a path: the given methods, HEAD where there is GET, OPTIONS, and 405 with `Allow` for the rest. */
export function addRoute(
  routing: Routing,
  path: string,
  operations: { readonly [M in Method]?: Operation | OpenOperation | undefined },
): void {
  const methods = Object.keys(operations) as Method[]
  const allow = [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS'].join(', ')
  for (const method of methods) {
    const operation = operations[method]
    if (operation) routing.app.on(method, path, (http) => serve(routing, http, operation))
  }
  routing.app.all(path, (http) => {
    if (http.req.method === 'OPTIONS') return new Response(null, { status: 204, headers: { allow } })
    const error = new PawlError('method_not_allowed', `${http.req.method} is not known here; ${allow} are.`, { allowed: allow })
    return problemResponse(error, { allow })
  })
}

async function serve({ resolve, cache }: Routing, http: Context, operation: Operation | OpenOperation): Promise<Response> {
  let api: ApiContext | undefined
  try {
    api = await resolve(http)
    if ('open' in operation) return await operation.open(http, api)
    const access = await authenticate(http, api, cache)
    requireScope(access, operation.scopes)
    return await operation.handle({ http, api, access })
  } catch (thrown) {
    return toResponse(http, api, thrown)
  }
}

function toResponse(http: Context, api: ApiContext | undefined, thrown: unknown): Response {
  const { method, path } = http.req
  const error = toPawlError(thrown, `${method} ${path}`, method !== 'GET' && method !== 'HEAD')
  const logger = api?.logger ?? silentLogger
  if (error.status >= 500)
    logger.error('request failed', { method, path, code: error.code, detail: error.detail, cause: error.cause })
  return problemResponse(error, challenge(error))
}

/** Tells the host that something may have to run now. What the host makes of it must not spoil the answer: it is committed. */
export function kick({ kick: wake, logger = silentLogger }: ApiContext): void {
  try {
    wake?.()
  } catch (error) {
    logger.warn('kick failed', { error })
  }
}
