import { type ServerType, serve } from '@hono/node-server'
import type { Database } from '../core/database.ts'
import { notAllowed } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import type { Env, Services } from '../core/register.ts'
import type { TickReport } from '../core/tick.ts'
import { nodePostgres } from '../db/drivers/node-postgres.ts'
import { pglite } from '../db/drivers/pglite.ts'
import { migrate } from '../db/migrate.ts'
import { type BudgetName, type HostBudget, toHostBudget } from '../worker/budgets.ts'
import { type Connection, type HostedPawl, toBasePath, toSecret } from './host-options.ts'
import { startNodeLoop } from './node-loop.ts'
import { announce, type Presence } from './node-presence.ts'
import { serveApi } from './serve-api.ts'
import { VERSION } from './version.ts'

export { BUDGETS, type BudgetName, type HostBudget } from '../worker/budgets.ts'

export interface NodeOptions {
  /**
   * A connection string, a folder for an embedded database, or a `Database` (which stays the caller's to close).
   * Default: an embedded database in the folder `.pawl/database`, brought to this build's schema at the start.
   */
  readonly database?: string | Database | undefined
  /** Brings the schema to this build's version first. Default: for embedded databases only. */
  readonly migrate?: boolean | undefined
  /** Default 0: a free one. */
  readonly port?: number | undefined
  /** Default `127.0.0.1`: this machine alone. */
  readonly host?: string | undefined
  /** Ticks by itself. Default true; without it work is done by `/v1/tick` alone. */
  readonly loop?: boolean | undefined
  readonly environment?: string | undefined
  /** Default: `process.env`. */
  readonly env?: Env | undefined
  readonly services?: Services | undefined
  /** Without it, on a loopback address, requests of this machine need no key; elsewhere stored keys are needed. */
  readonly rootKey?: string | undefined
  readonly cronSecret?: string | undefined
  /** Where the API is served. Default `/`. */
  readonly basePath?: string | undefined
  /** Default `node`. */
  readonly budget?: BudgetName | HostBudget | undefined
  /** How long a claim lasts without a heartbeat, in milliseconds. Default 30 s: how late a killed run is taken up again. */
  readonly leaseMs?: number | undefined
  /**
   * Folder in which this process leaves a sign of life, so that one that starts after it was killed takes up its runs at once and not when
   * their lease ends. Default `.pawl/hosts`; false: none.
   */
  readonly presence?: string | false | undefined
  /** Called after each pass of the loop. */
  readonly onPass?: ((report: TickReport) => void) | undefined
}

export interface NodeHost<P extends HostedPawl = HostedPawl> {
  /** Where the API is, base path included. */
  readonly url: string
  readonly port: number
  /** The typed calls, over this host's database: what they make due is begun at once. */
  readonly connection: ReturnType<P['connect']>
  /**
   * Stops claiming, lets the steps in hand finish, gives back what was not started, answers what was asked, and frees port and
   * database. Signals of the process are left to the caller. Idempotent.
   */
  close(): Promise<void>
}

/**
 * Serves the API and works, in this process: for development, and for people who have a server. Wakes by its own writes and when
 * something is due; idle, it asks the database every 15 min.
 * @throws PawlError `invalid_configuration`, and what `migrate` throws; the system's error when the port is taken.
 */
export async function node<P extends HostedPawl>(pawl: P, options: NodeOptions = {}): Promise<NodeHost<P>> {
  const { environment, services, loop = true, env = process.env as Env, leaseMs, onPass } = options
  toSecret(options.rootKey, 'rootKey')
  toSecret(options.cronSecret, 'cronSecret')
  const budget = toHostBudget(options.budget ?? 'node')
  const basePath = toBasePath(options.basePath)
  const { database, owned, embedded } = openDatabase(options.database ?? DEFAULT_FOLDER)
  let present: Presence | undefined
  try {
    if (options.migrate ?? embedded) await migrate(database, { schema: pawl.schema })
    let wake = () => {}
    const connection = pawl.connect({ database, environment, env, services, onCommit: () => wake() })
    const { presence = DEFAULT_PRESENCE } = options
    present = presence === false ? undefined : await announce(presence, pawl.logger)
    const newClaimId = present?.newClaimId
    await takeOver(present, connection, pawl.logger)
    const { server, port } = await listen(pawl, { options, connection, budget, basePath, env, newClaimId })
    const loopParams = { connection, budget: budget.kick, logger: pawl.logger, leaseMs, newClaimId, onPass }
    const looping = loop ? startNodeLoop(loopParams) : undefined
    if (looping) wake = () => looping.wake()
    let closing: Promise<void> | undefined
    const close = async () => {
      const answered = stopServing(server)
      await looping?.stop()
      cutAfterLastAnswers(server)
      await answered
      await present?.leave()
      if (owned) await database.close()
    }
    const url = new URL(basePath, `http://${urlHost(options.host ?? LOOPBACK)}:${port}`).href.replace(/\/$/, '')
    // `connection` is what `pawl.connect` gave: its type knows the definitions
    return { url, port, connection: connection as ReturnType<P['connect']>, close: () => (closing ??= close()) }
  } catch (error) {
    await present?.leave()
    if (owned) await database.close()
    throw error
  }
}

const LOOPBACK = '127.0.0.1'
const DEFAULT_FOLDER = '.pawl/database'
const DEFAULT_PRESENCE = '.pawl/hosts'
/** How long requests may still take once the work is done, in milliseconds: those that wait for a run are cut then. */
const LAST_ANSWERS_MS = 1_000

/** Without it leases end by themselves, so a failure is no reason not to start. */
async function takeOver(present: Presence | undefined, { store }: Connection, logger: Logger): Promise<void> {
  try {
    await present?.takeOver((range) => store.endLeases(range))
  } catch (error) {
    logger.warn('pawl: what a process before left behind is left to its lease', { error: String(error) })
  }
}

function openDatabase(target: string | Database): { database: Database; owned: boolean; embedded: boolean } {
  if (typeof target !== 'string') return { database: target, owned: false, embedded: target.driver === 'pglite' }
  if (/^postgres(ql)?:\/\//.test(target)) {
    return { database: nodePostgres({ connectionString: target }), owned: true, embedded: false }
  }
  if (!target.includes('://')) return { database: pglite(target), owned: true, embedded: true }
  const got = target.slice(0, target.indexOf('://') + 3)
  throw notAllowed('invalid_configuration', { field: 'database', got, allowed: 'postgres://… or a folder' })
}

interface ListenParams {
  readonly options: NodeOptions
  readonly connection: Connection
  readonly budget: HostBudget
  readonly basePath: string
  readonly env: unknown
  readonly newClaimId: (() => string) | undefined
}

function listen(pawl: HostedPawl, params: ListenParams): Promise<{ server: ServerType; port: number }> {
  const { connection, budget, basePath, env, newClaimId } = params
  const { port = 0, host = LOOPBACK, rootKey, cronSecret, leaseMs } = params.options
  const { calls, store, registry } = connection
  const context = {
    calls,
    store,
    registry,
    access: { rootKey, cronSecret, open: rootKey === undefined && isLoopback(host) },
    env,
    tick: (source: string) => connection.createTicker({ budget: budget.tick, leaseMs, newClaimId }).tick(source),
    build: { version: VERSION },
    logger: pawl.logger,
  }
  const takeOver = () => {
    const pass = connection.createTicker({ budget: budget.kick, leaseMs, newClaimId }).tick('hand-on')
    pass.catch((error: unknown) => pawl.logger.error('pawl: a tick failed', { error: String(error) }))
  }
  const app = serveApi({ basePath, resolve: () => context, takeOver })
  return new Promise((resolve, reject) => {
    const server = serve({ fetch: app.fetch, port, hostname: host }, (address) => resolve({ server, port: address.port }))
    server.once('error', reject)
  })
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)
}

function urlHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return LOOPBACK
  return host.includes(':') ? `[${host}]` : host
}

/** Accepts nothing more. Resolves when all is answered. */
function stopServing(server: ServerType): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
    if ('closeIdleConnections' in server) server.closeIdleConnections()
  })
}

function cutAfterLastAnswers(server: ServerType): void {
  if (!('closeAllConnections' in server)) return
  server.closeIdleConnections()
  setTimeout(() => server.closeAllConnections(), LAST_ANSWERS_MS).unref()
}
