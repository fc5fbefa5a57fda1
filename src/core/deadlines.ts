/** How long a run may take in all, until its first start, and from one committed step to the next. */
import { type Duration, toMs } from './duration.ts'
import type { ErrorCode } from './errors.ts'
import type { RunPolicy } from './store.ts'

/**
 * Deadlines of a run, from when it is first due (a delay, or `at`, comes before); one that is over cancels it, with the error code
 * `deadline_exceeded`, whether or not anybody works on its queue. They are looked at by every tick, and while a step runs at each heartbeat.
 */
export interface DeadlineOptions {
  /** The longest it may take in all, waits and retries included. */
  readonly maxDuration?: Duration | undefined
  /** The longest it may stand before its first start. */
  readonly startWithin?: Duration | undefined
  /**
   * The longest one step may take with all its attempts, pauses and snoozes: completing a step is progress, a heartbeat or a failed attempt
   * is none. While the run waits for signals or children the clock stands still.
   */
  readonly progressWithin?: Duration | undefined
}

export type Deadlines = Pick<RunPolicy, 'maxTotalMs' | 'maxWaitMs' | 'maxIdleMs'>

/** Validates them. `prefix` goes before the names of the fields. Undefined when there are none. */
export function toDeadlines(options: DeadlineOptions, prefix: string, code: ErrorCode): Deadlines | undefined {
  const { maxDuration, startWithin, progressWithin } = options
  if (maxDuration === undefined && startWithin === undefined && progressWithin === undefined) return undefined
  const read = (value: Duration, name: string): number => Math.ceil(toMs(value, `${prefix}${name}`, { minMs: 1, code }))
  return {
    ...(maxDuration !== undefined && { maxTotalMs: read(maxDuration, 'maxDuration') }),
    ...(startWithin !== undefined && { maxWaitMs: read(startWithin, 'startWithin') }),
    ...(progressWithin !== undefined && { maxIdleMs: read(progressWithin, 'progressWithin') }),
  }
}

/** How long after it is due the first of them has to be looked at, in milliseconds; null: there is none. */
export function firstDeadlineMs({ maxTotalMs, maxWaitMs, maxIdleMs }: Deadlines): number | null {
  const least = Math.min(maxTotalMs ?? Infinity, maxWaitMs ?? Infinity, maxIdleMs ?? Infinity)
  return least === Infinity ? null : least
}
