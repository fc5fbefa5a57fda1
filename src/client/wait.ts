import type { RunRecord } from '../core/store.ts'

/** The most that one call waits, in milliseconds: what hosts let a request stay open. */
export const MAX_WAIT_MS = 25_000
/** First pause between two looks, in milliseconds; each is half as long again, up to the last. */
const FIRST_PAUSE_MS = 50
const PAUSE_GROWTH = 1.5
const LONGEST_PAUSE_MS = 1_000

/** How waiting is done: a host's timer, or a test's. */
export interface Pacing {
  readonly nowMs: () => number
  readonly pause: (ms: number) => Promise<void>
}

export const hostPacing: Pacing = {
  nowMs: () => Date.now(),
  pause: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
}

/**
 * Looks until the run stands still (it has ended, or waits for a decision) or the time is over, and gives it as it was last seen. At most
 * about 30 looks in the full 25 s, and none once `signal` says that nobody waits any more.
 */
export async function waitUntilStill(
  look: () => Promise<RunRecord>,
  waitMs: number,
  pacing: Pacing,
  signal?: AbortSignal,
): Promise<RunRecord> {
  const until = pacing.nowMs() + Math.min(Math.max(waitMs, 0), MAX_WAIT_MS)
  let run = await look()
  for (let pauseMs = FIRST_PAUSE_MS; isMoving(run); pauseMs = Math.min(pauseMs * PAUSE_GROWTH, LONGEST_PAUSE_MS)) {
    const leftMs = until - pacing.nowMs()
    if (leftMs <= 0) break
    await pacing.pause(Math.min(pauseMs, leftMs))
    if (signal?.aborted) break
    run = await look()
  }
  return run
}

function isMoving({ status }: RunRecord): boolean {
  return status === 'pending' || status === 'running' || status === 'waiting'
}
