import type { Context } from 'hono'
import type { Calls } from '../core/calls.ts'
import type { Logger } from '../core/logger.ts'
import type { Registry } from '../core/registry.ts'
import type { ReadingStore } from '../core/store.ts'
import type { TickReport } from '../core/tick.ts'

/** Who may call. Without a root key, without stored keys and not open, everything but webhooks answers 503 `not_configured`. */
export interface ApiAccess {
  /** May do everything, for the tenant that the header `Pawl-Tenant` names (default `default`). */
  readonly rootKey?: string | undefined
  /** May tick, nothing else. */
  readonly cronSecret?: string | undefined
  /** Requests from this machine to a loopback address need no key: for the development host alone. */
  readonly open?: boolean | undefined
}

/** What the API serves from: given by the host for each request, since on some hosts the database and `env` come with it. */
export interface ApiContext {
  readonly calls: Calls
  readonly store: ReadingStore
  readonly registry: Registry
  /** One bounded pass of the engine. Absent: `/v1/tick` answers 503 `not_configured`. */
  readonly tick?: ((source: string) => Promise<TickReport>) | undefined
  readonly access: ApiAccess
  /** Of the host, handed to the secrets of webhooks. */
  readonly env: unknown
  /** Epoch milliseconds. Default `Date.now`. */
  readonly now?: (() => number) | undefined
  /** Called once something that may have to run now was committed: hosts start a tick after the response, or set their alarm. */
  readonly kick?: (() => void) | undefined
  /** Longest time a request may wait for a run, in milliseconds: what the invocation can spare. At most, and by default, 25 s. */
  readonly maxWaitMs?: number | undefined
  readonly build: { readonly version: string }
  readonly logger?: Logger | undefined
}

/** Gives the context of one request. Throws PawlError `not_configured` and the like where it cannot. */
export type ResolveApiContext = (context: Context) => ApiContext | Promise<ApiContext>

/** Who calls, once that is known. */
export interface Access {
  readonly kind: 'root' | 'key' | 'cron'
  readonly tenant: string
  /** The tenant was named, by the key or in the header. A root caller who names none sees all tenants where that makes sense. */
  readonly tenantIsNamed: boolean
  readonly scopes: readonly string[]
  /** For the record. */
  readonly by: string
}

/** A request that was let in. */
export interface ApiRequest {
  readonly http: Context
  readonly api: ApiContext
  readonly access: Access
}
