import type { Registry } from '../core/registry.ts'
import type { EngineStore, ScheduleStore } from '../core/store.ts'
import type { Budget, TickReport } from '../core/tick.ts'
import type { HandlerSurroundings } from './context.ts'
import { Invocation } from './invocation.ts'
import { keepLeases } from './lease.ts'
import { toReport } from './report.ts'
import { declareTriggers, fireDueSchedules } from './schedules.ts'

export interface TickerOptions {
  readonly store: EngineStore & ScheduleStore
  readonly registry: Registry
  readonly surroundings: HandlerSurroundings
  readonly budget: Budget
  /** Requests sent by the store's driver since it was made. */
  readonly requests: () => number
  /** How long a claim lasts without a heartbeat, in milliseconds. Default 30 s: how late a killed run is taken up again. */
  readonly leaseMs?: number | undefined
  /** Only runs of these queues. Default: all. */
  readonly queues?: readonly string[] | undefined
  /** In [0, 1). For tests. */
  readonly random?: (() => number) | undefined
  /** Wall clock of the host, for budgets only: what is due is the database's to say. */
  readonly nowMs?: (() => number) | undefined
  /** What this isolate has already declared to the database: shared by its tickers, so that each deploy declares once. */
  readonly declared?: { done: boolean } | undefined
}

export interface Ticker {
  /**
   * One bounded pass: claims, runs and commits until nothing is due or the budget is spent; upkeep rides along when it is due. An empty
   * one costs one request. Overlapping ones are safe. Rejects with the database's error when it fails for good.
   */
  tick(source: string): Promise<TickReport>
  /**
   * Starts a tick unless one is running here, in which case that one looks again: a thousand writes in a second do not start a thousand
   * ticks. Resolves when the pass that sees the work is over.
   */
  kick(source: string): Promise<TickReport>
  /** Claims nothing more, finishes what is in hand, gives back what was not started. Idempotent. */
  stop(): Promise<void>
}

const DEFAULT_LEASE_MS = 30_000
/** How often the shared upkeep is due, in milliseconds, whoever does it. */
const UPKEEP_EVERY_MS = 60_000
/** A timer that fires early would look in vain. */
const LINGER_SLACK_MS = 2

export function createTicker(options: TickerOptions): Ticker {
  let running: { readonly pass: Pass; readonly report: Promise<TickReport> } | undefined
  let stopped = false
  const start = (source: string): Promise<TickReport> => {
    const pass = createPass(options, source)
    const report = pass.run().finally(() => {
      if (running?.pass === pass) running = undefined
    })
    running = { pass, report }
    return report
  }
  return {
    tick: (source) => start(source),
    kick: (source) => {
      if (stopped) return Promise.resolve(toReport(new Invocation(invocationParams(options)).tally, IDLE))
      return running?.pass.poke() ? running.report : start(source)
    },
    stop: async () => {
      stopped = true
      running?.pass.stop()
      await running?.report.catch(() => undefined)
    },
  }
}

const IDLE = { requests: 0, elapsedMs: 0, nextDueAt: null, more: false } as const

function invocationParams(options: TickerOptions) {
  const {
    store,
    registry,
    surroundings,
    budget,
    requests,
    leaseMs = DEFAULT_LEASE_MS,
    queues,
    random = Math.random,
    nowMs = Date.now,
  } = options
  return { store, registry, surroundings, budget, requests, leaseMs, queues: queues ?? null, random, nowMs }
}

interface Pass {
  run(): Promise<TickReport>
  /** Has it look again; false when it is over, and what was written meanwhile is for another pass. */
  poke(): boolean
  stop(): void
}

function createPass(options: TickerOptions, source: string): Pass {
  const params = invocationParams(options)
  const { store, registry, surroundings, nowMs, leaseMs, budget, requests } = params
  const startedAt = nowMs()
  const requestsBefore = requests()
  const invocation = new Invocation(params)
  let pokes = 0
  let seen = 0
  let over = false
  /** Whoever pokes at whatever moment is waited for: what is claimed then must not outlive the pass and its leases. */
  const settle = async (): Promise<void> => {
    do {
      seen = pokes
      await invocation.run()
    } while (pokes !== seen)
  }
  const run = async (): Promise<TickReport> => {
    if (options.declared && !options.declared.done) {
      await declareTriggers(store, registry, nowMs())
      options.declared.done = true
    }
    const endLeases = keepLeases({ invocation, store, leaseMs, logger: surroundings.logger })
    try {
      await settle()
      await duties(invocation)
      await linger(invocation)
      while (pokes !== seen) await settle()
    } finally {
      over = true
      endLeases()
    }
    const { peek, tally } = invocation
    return toReport(tally, {
      requests: requests() - requestsBefore,
      elapsedMs: nowMs() - startedAt,
      nextDueAt: peek?.nextAt ?? null,
      more: peek?.more ?? true,
    })
  }
  /** Schedules that are due spawn their runs, then this pass runs them; shared upkeep when it is due. */
  const duties = async (pass: Invocation): Promise<void> => {
    if (pass.peek?.scheduleDue) {
      pass.tally.fired += await fireDueSchedules(store, registry, surroundings.logger)
      pass.poke()
      await pass.run()
    }
    if (pass.peek?.upkeepDue) await doUpkeep(pass, params, source)
  }
  /** Where no alarm would wake us: stay for what is due soon, as long as the budget lasts. */
  const linger = async (pass: Invocation): Promise<void> => {
    for (let until = startedAt + budget.lingerMs; ; ) {
      const { peek } = pass
      if (!peek || peek.nextAt === null || peek.more || pass.stopping) return
      const waitMs = Math.max(peek.nextAt - peek.now, 0) + LINGER_SLACK_MS
      if (nowMs() + waitMs > until || waitMs > pass.remainingMs()) return
      await pass.sleep(waitMs)
      pass.poke()
      await pass.run()
      await duties(pass)
      until = Math.min(until, startedAt + budget.wallMs)
    }
  }
  const poke = (): boolean => {
    if (over) return false
    pokes += 1
    invocation.poke()
    return true
  }
  return { run, poke, stop: () => invocation.stop() }
}

async function doUpkeep(pass: Invocation, params: ReturnType<typeof invocationParams>, source: string): Promise<void> {
  const { store, registry, surroundings } = params
  const seconds = registry.definitions
    .flatMap(({ retentionMs }) => [retentionMs.completed, retentionMs.failed])
    .map((ms) => Math.ceil(ms / 1000))
  try {
    const done = await store.upkeep({ source, nextInMs: UPKEEP_EVERY_MS, minRetentionSeconds: Math.min(...seconds) })
    pass.tally.pruned += done.pruned
  } catch (error) {
    surroundings.logger.warn('pawl: upkeep failed and is left to a later tick', { error: String(error) })
  }
}
