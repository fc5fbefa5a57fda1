import type { ConnectedPawl, ConnectOptions } from '../client/create-pawl.ts'
import { notAllowed } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import type { Services } from '../core/register.ts'
import type { Registry } from '../core/registry.ts'
import type { BudgetName, HostBudget } from '../worker/budgets.ts'

/** What `connect` gives, without the types of the definitions: hosts serve them all alike. */
export type Connection = Pick<ConnectedPawl<never>, 'registry' | 'database' | 'store' | 'calls' | 'createTicker'>

/** What a host needs of what `createPawl` made. */
export interface HostedPawl {
  readonly registry: Registry
  readonly schema: string
  readonly logger: Logger
  connect(options: ConnectOptions): Connection
}

/** What would wake this host at an instant: an alarm of a Durable Object, a delayed message, a schedule of the platform. */
export interface AlarmPort {
  /** Epoch milliseconds; a past one is now. An alarm that is set for earlier may stay. */
  setAt(ms: number): Promise<void> | void
}

/** How an invocation reaches its own deployment: its URL, or a service binding to itself. */
export type SelfTarget = string | { fetch(request: Request): Promise<Response> }

/** What is said once per deployment. Functions are asked in each invocation, with the host's `env`. */
export interface HostOptions<E> {
  /** Runs belong to the environment that spawned them, and only it runs them. */
  readonly environment?: ((env: E) => string | undefined) | undefined
  /** The key that may do everything. Without it, and without stored keys, the API answers 503 `not_configured`. */
  readonly rootKey?: ((env: E) => string | undefined) | undefined
  /** The key that may tick: the platform's cron bears it, and so does work that is handed on. */
  readonly cronSecret?: ((env: E) => string | undefined) | undefined
  /** Handed to every handler. */
  readonly services?: ((env: E) => Services) | undefined
  /** Where the API is served. Default `/`. */
  readonly basePath?: string | undefined
  /** What an invocation may spend: a preset, or numbers. */
  readonly budget?: BudgetName | HostBudget | undefined
  /** Told when work is next due, after each pass. Default: none; the platform's cron finds it. */
  readonly alarm?: ((env: E) => AlarmPort | undefined) | undefined
  /** Where work that a pass leaves over is handed on to, given `cronSecret` or `rootKey`. Default: nowhere; the next tick finds it. */
  readonly self?: ((env: E) => SelfTarget | undefined) | undefined
}

/** A secret as a header can bear it. Throws `invalid_configuration` for one that nobody could ever send. */
export function toSecret(secret: string | undefined, field: string): string | undefined {
  if (secret === undefined || /^[\x21-\x7e]+$/.test(secret)) return secret
  throw notAllowed('invalid_configuration', {
    field,
    got: `a text of ${secret.length}`,
    allowed: 'printable ASCII without spaces',
  })
}

/** A base path as Hono mounts it: with a slash in front, none behind. Throws `invalid_configuration`. */
export function toBasePath(basePath = '/'): string {
  if (/^(\/[\w.~-]+)*\/?$/.test(basePath)) return `/${basePath.replace(/^\/|\/$/g, '')}`
  throw notAllowed('invalid_configuration', { field: 'basePath', got: basePath, allowed: 'a path such as /pawl' })
}
