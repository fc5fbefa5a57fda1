import { randomUuid } from '../core/ids.ts'
import { retentionOf } from '../core/retention.ts'
import type { TickReport } from '../core/tick.ts'
import { Invocation } from './invocation.ts'
import type { InvocationParams } from './invocation-params.ts'
import { keepLeases } from './lease.ts'
import { toReport } from './report.ts'
import { declareTriggers, fireDueSchedules } from './schedules.ts'
import type { TickerOptions } from './ticker-options.ts'

const DEFAULT_LEASE_MS = 30_000
/** How often the shared upkeep is due, in milliseconds, whoever does it. */
const UPKEEP_EVERY_MS = 60_000
/** A timer that fires early would look in vain. */
const LINGER_SLACK_MS = 2

/**
 * One pass of a ticker: its invocation, then its duties (schedules, shared upkeep), then its lingering.
 *
 * Invariant: whoever pokes, at whatever moment before the pass is over, is waited for. What is claimed then must not outlive the pass,
 * which keeps its leases, nor the invocation of the host, which waits for the pass.
 */
export class Pass {
  readonly #options: TickerOptions
  readonly #source: string
  readonly #params: InvocationParams
  readonly #invocation: Invocation
  readonly #startedAt: number
  readonly #requestsBefore: number
  #pokes = 0
  #seen = 0
  #over = false

  constructor(options: TickerOptions, source: string) {
    this.#options = options
    this.#source = source
    this.#requestsBefore = options.requests()
    const counted = options.sharesInvocation ? 0 : this.#requestsBefore
    this.#params = invocationParams({ ...options, requests: () => options.requests() - counted })
    this.#invocation = new Invocation(this.#params)
    this.#startedAt = this.#params.nowMs()
  }

  /** Has it look again; false when it is over, and what was written meanwhile is for another pass. */
  poke(): boolean {
    if (this.#over) return false
    this.#pokes += 1
    this.#invocation.poke()
    return true
  }

  stop(): void {
    this.#invocation.stop()
  }

  async run(): Promise<TickReport> {
    const { store, surroundings, leaseMs } = this.#params
    await this.#declare()
    const endLeases = keepLeases({ holder: this.#invocation, store, leaseMs, logger: surroundings.logger })
    try {
      await this.#settle()
      await this.#duties()
      await this.#linger()
      while (this.#pokes !== this.#seen) await this.#settle()
    } finally {
      this.#over = true
      endLeases()
    }
    return this.#report()
  }

  async #declare(): Promise<void> {
    const { store, registry, declared } = this.#options
    if (!declared || declared.done) return
    await declareTriggers(store, registry, this.#params.nowMs())
    declared.done = true
  }

  async #settle(): Promise<void> {
    do {
      this.#seen = this.#pokes
      await this.#invocation.run()
    } while (this.#pokes !== this.#seen)
  }

  /** Schedules that are due spawn their runs, then this pass runs them; shared upkeep when it is due. */
  async #duties(): Promise<void> {
    const { store, registry, surroundings } = this.#options
    const invocation = this.#invocation
    if (invocation.peek?.scheduleDue) {
      invocation.tally.fired += await fireDueSchedules(store, registry, surroundings.logger)
      invocation.poke()
      await invocation.run()
    }
    if (invocation.peek?.upkeepDue) await this.#doUpkeep()
  }

  async #doUpkeep(): Promise<void> {
    const { store, registry, surroundings } = this.#options
    const queues = [undefined, ...[...registry.queues.values()].map(({ retention }) => retention)]
    const kept = registry.definitions.flatMap(({ declaredRetention }) =>
      queues.flatMap((queue) => {
        const { completed, failed } = retentionOf(declaredRetention, queue)
        return [completed, failed]
      }),
    )
    const minRetentionSeconds = Math.min(...kept.map((ms) => Math.ceil(ms / 1_000)))
    try {
      const done = await store.upkeep({ source: this.#source, nextInMs: UPKEEP_EVERY_MS, minRetentionSeconds })
      this.#invocation.tally.pruned += done.pruned
      if (!done.woke) return
      this.#invocation.poke()
      await this.#invocation.run()
    } catch (error) {
      surroundings.logger.warn('pawl: upkeep failed and is left to a later tick', { error: String(error) })
    }
  }

  /** Where no alarm would wake us: stay for what is due soon, as long as the budget lasts. */
  async #linger(): Promise<void> {
    const { budget, nowMs } = this.#params
    const invocation = this.#invocation
    for (let until = this.#startedAt + budget.lingerMs; ; ) {
      const { peek } = invocation
      if (!peek || peek.nextAt === null || peek.more || invocation.stopping) return
      const waitMs = Math.max(peek.nextAt - peek.now, 0) + LINGER_SLACK_MS
      if (nowMs() + waitMs > until || waitMs > invocation.remainingMs()) return
      await invocation.sleep(waitMs)
      invocation.poke()
      await invocation.run()
      await this.#duties()
      until = Math.min(until, this.#startedAt + budget.wallMs)
    }
  }

  #report(): TickReport {
    const { peek, tally } = this.#invocation
    return toReport(tally, {
      requests: this.#options.requests() - this.#requestsBefore,
      elapsedMs: this.#params.nowMs() - this.#startedAt,
      nextDueAt: peek?.nextAt ?? null,
      // what was given back is due; and so may be what the last outcomes led to, where the budget ended the pass before another look
      more: (peek?.more ?? true) || tally.released > 0,
    })
  }
}

function invocationParams(options: TickerOptions): InvocationParams {
  const {
    store,
    registry,
    surroundings,
    budget,
    requests,
    leaseMs = DEFAULT_LEASE_MS,
    cancelGraceMs,
    queues,
    random = Math.random,
    nowMs = Date.now,
    newClaimId = randomUuid,
  } = options
  return {
    store,
    registry,
    surroundings,
    budget,
    requests,
    leaseMs,
    cancelGraceMs,
    queues: queues ?? null,
    random,
    nowMs,
    newClaimId,
  }
}
