import type { Registry } from '../core/registry.ts'
import type { EngineStore } from '../core/store.ts'
import type { Budget } from '../core/tick.ts'
import type { HandlerSurroundings } from './context.ts'

/** What an invocation works with. */
export interface InvocationParams {
  readonly store: EngineStore
  readonly registry: Registry
  readonly surroundings: HandlerSurroundings
  readonly budget: Budget
  /** Database requests that count against the budget so far. */
  readonly requests: () => number
  readonly random: () => number
  readonly nowMs: () => number
  readonly leaseMs: number
  /** Time a handler has to stop once its run was cancelled, in milliseconds. Default 1 s. */
  readonly cancelGraceMs?: number | undefined
  readonly queues: readonly string[] | null
  readonly newClaimId: () => string
}
