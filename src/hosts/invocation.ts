import type { ApiContext } from '../api/api-context.ts'
import type { RunningTicker } from '../client/create-pawl.ts'
import type { Database } from '../core/database.ts'
import type { Env } from '../core/register.ts'
import type { Budget, TickReport } from '../core/tick.ts'
import type { HostBudget } from '../worker/budgets.ts'
import { afterPass } from './after-pass.ts'
import { type Connection, type HostedPawl, type HostOptions, toSecret } from './host-options.ts'
import type { IsolateKicks } from './isolate-kicks.ts'
import { VERSION } from './version.ts'

/** What all invocations of one instance have in common. */
export interface InvocationHost<E> {
  readonly pawl: HostedPawl
  readonly options: HostOptions<E>
  readonly basePath: string
  readonly budget: HostBudget
  readonly kicks: IsolateKicks
}

export interface InvocationParams<E> {
  readonly host: InvocationHost<E>
  readonly env: E
  readonly database: Database
  /** Stands for the database over all invocations, where each has an object of its own. */
  readonly memory: object
  /** Where runs belong when the options do not say. */
  readonly environment: string | undefined
  readonly cronSecret: string | undefined
  readonly waitUntil: (work: Promise<unknown>) => void
}

/** One invocation: the API it serves, and what it does after its response. */
export class HostInvocation<E> {
  readonly #params: InvocationParams<E>
  readonly #connection: Connection
  readonly #background: Promise<void>[] = []
  #asked = 0
  #kicking = false

  constructor(params: InvocationParams<E>) {
    const { host, env, database, memory, environment } = params
    const { options, pawl } = host
    this.#params = params
    this.#connection = pawl.connect({
      database,
      environment: options.environment?.(env) ?? environment,
      env: env as Env,
      services: options.services?.(env),
      onCommit: () => this.#kick(),
      memory,
    })
  }

  toApiContext(): ApiContext {
    const { host, env, cronSecret } = this.#params
    const { calls, store, registry } = this.#connection
    return {
      calls,
      store,
      registry,
      access: { rootKey: toSecret(host.options.rootKey?.(env), 'rootKey'), cronSecret: toSecret(cronSecret, 'cronSecret') },
      env,
      tick: (source) => this.tick(source, host.budget.tick),
      build: { version: VERSION },
      logger: host.pawl.logger,
    }
  }

  /** One pass; what it leaves over is handed on after the answer. */
  async tick(source: string, budget: Budget): Promise<TickReport> {
    const report = await this.#createTicker(budget).tick(source)
    this.#inBackground(this.#afterPass(report, 0))
    return report
  }

  /** A pass of its own, beside those of the instance: the backlog is there to be spread. */
  takeOver(depth: number): void {
    const { kick } = this.#params.host.budget
    this.#inBackground(
      this.#createTicker(kick)
        .tick('hand-on')
        .then((report) => this.#afterPass(report, depth)),
    )
  }

  /** Resolves once nothing of this invocation is going on any more: what goes on may start more. */
  async settled(): Promise<void> {
    for (let waited = -1; waited !== this.#background.length; ) {
      waited = this.#background.length
      await Promise.all(this.#background)
    }
  }

  /** Starts a tick for what was just committed, or has one that runs in this instance look again. */
  #kick(): void {
    const { kicks } = this.#params.host
    this.#asked = kicks.ask()
    if (this.#kicking) return
    this.#kicking = true
    this.#inBackground(
      this.#untilSeen().finally(() => {
        this.#kicking = false
      }),
    )
  }

  async #untilSeen(): Promise<void> {
    const { kicks, budget } = this.#params.host
    const ticker = this.#createTicker(budget.kick)
    while (!kicks.hasSeen(this.#asked)) {
      const report = await kicks.kick(() => this.#asked, ticker, budget.kick.wallMs)
      if (report) await this.#afterPass(report, 0)
    }
  }

  #createTicker(budget: Budget): RunningTicker {
    return this.#connection.createTicker({ budget, sharesInvocation: true })
  }

  #afterPass(report: TickReport, depth: number): Promise<void> {
    const { host, env, cronSecret } = this.#params
    const { options, basePath, pawl } = host
    return afterPass({
      report,
      depth,
      alarm: options.alarm?.(env),
      self: options.self?.(env),
      secret: cronSecret ?? options.rootKey?.(env),
      basePath,
      nowMs: Date.now,
      logger: pawl.logger,
    })
  }

  /** Nobody waits for what runs in the background: its failure is the log's, and the next tick's to make good. */
  #inBackground(work: Promise<void>): void {
    const logged = work.catch((error: unknown) => {
      this.#params.host.pawl.logger.error('pawl: a tick in the background failed', { error: String(error) })
    })
    this.#background.push(logged)
    this.#params.waitUntil(logged)
  }
}
