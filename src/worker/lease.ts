import type { AnyDefinition } from '../core/definition.ts'
import { type Duration, toMs } from '../core/duration.ts'
import type { Logger } from '../core/logger.ts'
import type { ClaimedRun, EngineStore } from '../core/store.ts'

/** Beats per lease: two may be missed before it lapses. */
const BEATS_PER_LEASE = 3
/** At least once in an hour, in milliseconds: a timer of weeks would not fit, and go off at once. */
const MAX_BEAT_MS = 3_600_000

/** What leases are kept for. */
export interface Holder {
  readonly inHand: readonly ClaimedRun[]
  lose(runIds: readonly string[]): void
  cancel(runIds: readonly string[]): void
}

/**
 * Extends the leases of everything in hand, all in one request, as long as something is. What turns out to be lost is dropped, what was
 * asked to stop is told. Answers how to end it.
 */
export function keepLeases(params: {
  readonly holder: Holder
  readonly store: EngineStore
  readonly leaseMs: number
  readonly logger: Logger
}): () => void {
  const { holder, store, leaseMs, logger } = params
  let timer: ReturnType<typeof setTimeout> | undefined
  let over = false
  const beat = async (): Promise<void> => {
    const runs = holder.inHand
    if (runs.length > 0) {
      try {
        const reply = await store.keep(runs, leaseMs)
        const lost = new Set(reply.lostClaims)
        const ids = new Set([...reply.lostRuns, ...runs.filter((run) => lost.has(run.claimId)).map((run) => run.id)])
        // a run that was flushed while the beat was on its way is not lost, it is done: only what is still in hand counts
        if (ids.size > 0)
          holder.lose(
            [...ids].filter((id) =>
              runs.some((run) => run.id === id && holder.inHand.some((now) => now.id === id && now.seq === run.seq)),
            ),
          )
        holder.cancel(reply.cancelRequested)
      } catch (error) {
        logger.warn('pawl: a lease could not be extended', { error: String(error) })
      }
    }
    schedule()
  }
  const schedule = (): void => {
    if (!over) timer = setTimeout(() => void beat(), Math.min(leaseMs / BEATS_PER_LEASE, MAX_BEAT_MS))
  }
  schedule()
  return () => {
    over = true
    clearTimeout(timer)
  }
}

/** What a handler asked its heartbeat for: at least a millisecond, the definition's own lease unless told. */
export function toLeaseMs(extendBy: Duration | undefined, definition: AnyDefinition): number {
  return extendBy === undefined ? definition.leaseMs : toMs(extendBy, 'heartbeat', { minMs: 1, code: 'invalid_request' })
}
