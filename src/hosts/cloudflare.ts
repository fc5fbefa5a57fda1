import type { Context, Hono } from 'hono'
import type { Database } from '../core/database.ts'
import type { Env } from '../core/register.ts'
import { toHostBudget } from '../worker/budgets.ts'
import { type HostedPawl, type HostOptions, toBasePath } from './host-options.ts'
import { HostInvocation, type InvocationHost } from './invocation.ts'
import { IsolateKicks } from './isolate-kicks.ts'
import { serveApi } from './serve-api.ts'

export { BUDGETS, type BudgetName, type HostBudget } from '../worker/budgets.ts'
export type { AlarmPort, SelfTarget } from './host-options.ts'

/** What is used of Cloudflare's `ExecutionContext`. */
export interface InvocationContext {
  waitUntil(promise: Promise<unknown>): void
}

export interface CloudflareOptions<E> extends HostOptions<E> {
  /** Opens the database for one invocation; it is closed when the invocation has nothing left to do. */
  readonly database: (env: E) => Database
}

export interface CloudflareWorker<E> {
  /** Serves the API; what a write made due runs under `waitUntil`. */
  fetch(request: Request, env: E, context: InvocationContext): Promise<Response>
  /** One tick with the budget of a cron trigger. Rejects when the database fails, so that the platform shows it. */
  scheduled(controller: unknown, env: E, context: InvocationContext): Promise<void>
  /** The same API to mount in a Hono application of one's own: `app.route('/', worker.api)`. */
  readonly api: Hono
}

/**
 * A Worker: `export default cloudflare(pawl, { database: (env) => neonHttp(env.DATABASE_URL) })`. Each invocation opens its own database;
 * writes start a tick under `waitUntil`, together with those of other requests of the isolate. Default budget: `workers-free`, which
 * every plan has. A request costs what its call costs, and the tick after it two database requests or more.
 * @throws PawlError `invalid_configuration`.
 */
export function cloudflare<E = Env>(pawl: HostedPawl, options: CloudflareOptions<E>): CloudflareWorker<E> {
  const host: InvocationHost<E> = {
    pawl,
    options,
    basePath: toBasePath(options.basePath),
    budget: toHostBudget(options.budget ?? 'workers-free'),
    kicks: new IsolateKicks(),
  }
  const memory = {}
  const begin = (env: E, context: InvocationContext): Begun<E> => {
    const database = options.database(env)
    const waitUntil = (work: Promise<unknown>) => context.waitUntil(work)
    const cronSecret = options.cronSecret?.(env)
    const invocation = new HostInvocation({ host, env, database, memory, environment: undefined, cronSecret, waitUntil })
    return { invocation, end: () => waitUntil(invocation.settled().then(() => database.close())) }
  }
  const begun = new WeakMap<Context, Begun<E>>()
  const invocationOf = (http: Context): HostInvocation<E> => {
    const known = begun.get(http) ?? begin(http.env as E, http.executionCtx)
    begun.set(http, known)
    return known.invocation
  }
  const api = serveApi({
    basePath: host.basePath,
    resolve: (http) => invocationOf(http).toApiContext(),
    takeOver: (http, depth) => invocationOf(http).takeOver(depth),
    answered: (http) => begun.get(http)?.end(),
  })
  return {
    api,
    // Hono asks for more of the platform's context than is used here
    fetch: async (request, env, context) => api.fetch(request, env as object, context as never),
    scheduled: async (_controller, env, context) => {
      const { invocation, end } = begin(env, context)
      try {
        await invocation.tick('cron', host.budget.cron)
      } finally {
        end()
      }
    },
  }
}

interface Begun<E> {
  readonly invocation: HostInvocation<E>
  /** Frees the database once nothing of the invocation uses it any more. */
  readonly end: () => void
}
