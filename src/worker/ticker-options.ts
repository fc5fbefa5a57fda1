import type { Registry } from '../core/registry.ts'
import type { EngineStore, ScheduleStore } from '../core/store.ts'
import type { Budget } from '../core/tick.ts'
import type { HandlerSurroundings } from './context.ts'

/** What a ticker works on, with what budget. */
export interface TickerOptions {
  readonly store: EngineStore & ScheduleStore
  readonly registry: Registry
  readonly surroundings: HandlerSurroundings
  readonly budget: Budget
  /** Requests sent by the store's driver since it was connected. */
  readonly requests: () => number
  /**
   * The budget's requests are those of one invocation of the host, connected for it alone: all that were sent since count, whoever sent them.
   * Default false: each pass may send so many.
   */
  readonly sharesInvocation?: boolean | undefined
  /** How long a claim lasts without a heartbeat, in milliseconds. Default 30 s: how late a killed run is taken up again. */
  readonly leaseMs?: number | undefined
  /** How long a handler may go on once its run was cancelled before it is left behind, in milliseconds. Default 1 s. */
  readonly cancelGraceMs?: number | undefined
  /** Only runs of these queues. Default: all. */
  readonly queues?: readonly string[] | undefined
  /** In [0, 1). For tests. */
  readonly random?: (() => number) | undefined
  /** Wall clock of the host, for budgets only: what is due is the database's to say. */
  readonly nowMs?: (() => number) | undefined
  /** Makes the id of each claim, a UUID that nobody has. Default: random. A host whose ids have a part of its own can find its claims. */
  readonly newClaimId?: (() => string) | undefined
  /** What this isolate has already declared to the database: shared by its tickers, so that each deploy declares once. */
  readonly declared?: { done: boolean } | undefined
}
