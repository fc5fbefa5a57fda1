import type { Context, Hono } from 'hono'
import type { Database } from '../core/database.ts'
import type { Env } from '../core/register.ts'
import { toHostBudget } from '../worker/budgets.ts'
import { type HostedPawl, type HostOptions, type SelfTarget, toBasePath } from './host-options.ts'
import { HostInvocation, type InvocationHost } from './invocation.ts'
import { IsolateKicks } from './isolate-kicks.ts'
import { serveApi } from './serve-api.ts'

export { BUDGETS, type BudgetName, type HostBudget } from '../worker/budgets.ts'
export type { AlarmPort, SelfTarget } from './host-options.ts'

type WaitUntil = (work: Promise<unknown>) => void

export interface VercelOptions<E> extends HostOptions<E> {
  /** Opens the database, once per instance: pools live as long as the instance does. */
  readonly database: (env: E) => Database
  /** Default: `process.env`. */
  readonly env?: E | undefined
  /**
   * Keeps the function alive after its response: `waitUntil` of `@vercel/functions`. Default: what the platform offers to that package.
   * Where there is neither, the response waits for the work, because a function that is frozen half way would do it twice.
   */
  readonly waitUntil?: WaitUntil | undefined
  /** Default: `VERCEL_ENV`, so that a preview deployment on a copy of the database leaves production's runs alone. */
  readonly environment?: ((env: E) => string | undefined) | undefined
  /** Default: `CRON_SECRET`, which Vercel's cron sends. */
  readonly cronSecret?: ((env: E) => string | undefined) | undefined
  /** Default: the address of this deployment. */
  readonly self?: ((env: E) => SelfTarget | undefined) | undefined
}

type Handler = (request: Request) => Promise<Response>

/** Route handlers: `export const { GET, POST, PUT, DELETE } = vercel(pawl, …)`. All of them are one function. */
export interface VercelHandlers {
  readonly GET: Handler
  readonly POST: Handler
  readonly PUT: Handler
  readonly PATCH: Handler
  readonly DELETE: Handler
  readonly HEAD: Handler
  readonly OPTIONS: Handler
  readonly fetch: Handler
  /** The same API to mount in a Hono application of one's own: `app.route('/', handlers.api)`. */
  readonly api: Hono
}

/**
 * Route handlers for Vercel functions. A write starts a tick after its response, which stays for work that becomes due within the
 * budget's `lingerMs`; the cron of `vercel.json` calls `/v1/tick`. Default budget: `vercel-hobby`; `vercel-pro` needs `maxDuration: 800`.
 * @throws PawlError `invalid_configuration`.
 */
export function vercel<E = Env>(pawl: HostedPawl, options: VercelOptions<E>): VercelHandlers {
  const env = options.env ?? (processEnv() as E)
  const host: InvocationHost<E> = {
    pawl,
    options: { ...options, self: options.self ?? (() => deploymentUrl(env)) },
    basePath: toBasePath(options.basePath),
    budget: toHostBudget(options.budget ?? 'vercel-hobby'),
    kicks: new IsolateKicks(),
  }
  let database: Database | undefined
  const begin = (waitUntil: WaitUntil): HostInvocation<E> => {
    database ??= options.database(env)
    const environment = textOf(env, 'VERCEL_ENV')
    const cronSecret = options.cronSecret ? options.cronSecret(env) : textOf(env, 'CRON_SECRET')
    return new HostInvocation({ host, env, database, memory: database, environment, cronSecret, waitUntil })
  }
  const begun = new WeakMap<Context, HostInvocation<E>>()
  const invocationOf = (http: Context): HostInvocation<E> => {
    const known = begun.get(http) ?? begin(waitUntilOf(http) ?? options.waitUntil ?? platformWaitUntil() ?? ignore)
    begun.set(http, known)
    return known
  }
  const api = serveApi({
    basePath: host.basePath,
    resolve: (http) => invocationOf(http).toApiContext(),
    takeOver: (http, depth) => invocationOf(http).takeOver(depth),
  })
  const handle: Handler = async (request) => {
    const waitUntil = options.waitUntil ?? platformWaitUntil()
    if (waitUntil) return api.fetch(request, env as object, { waitUntil } as never)
    const pending: Promise<unknown>[] = []
    const response = await api.fetch(
      request,
      env as object,
      { waitUntil: (work: Promise<unknown>) => pending.push(work) } as never,
    )
    for (const work of pending) await work
    return response
  }
  return {
    GET: handle,
    POST: handle,
    PUT: handle,
    PATCH: handle,
    DELETE: handle,
    HEAD: handle,
    OPTIONS: handle,
    fetch: handle,
    api,
  }
}

/** Mounted in an application on a server that stays: the process outlives the response anyway. */
function ignore(): void {}

function waitUntilOf(http: Context): WaitUntil | undefined {
  try {
    const { executionCtx } = http
    return (work) => executionCtx.waitUntil(work)
  } catch {
    // Hono throws where the host gave none
    return undefined
  }
}

/** Where Vercel keeps the context of the current request, which `@vercel/functions` reads. */
const REQUEST_CONTEXT = Symbol.for('@vercel/request-context')

interface RequestContextHolder {
  readonly get?: () => { readonly waitUntil?: WaitUntil } | undefined
}

function platformWaitUntil(): WaitUntil | undefined {
  // the platform's own, untyped
  const holder = (globalThis as unknown as Record<symbol, RequestContextHolder | undefined>)[REQUEST_CONTEXT]
  const waitUntil = holder?.get?.()?.waitUntil
  return waitUntil && ((work) => waitUntil(work))
}

function processEnv(): unknown {
  return (globalThis as { readonly process?: { readonly env?: unknown } }).process?.env ?? {}
}

function textOf(env: unknown, name: string): string | undefined {
  const value = (env as Readonly<Record<string, unknown>> | null)?.[name]
  return typeof value === 'string' && value !== '' ? value : undefined
}

function deploymentUrl(env: unknown): string | undefined {
  const host = textOf(env, 'VERCEL_URL')
  return host === undefined ? undefined : `https://${host}`
}
