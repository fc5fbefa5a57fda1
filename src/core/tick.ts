/** One bounded engine pass: what it may spend and what it reports. */

export interface Budget {
  /** Wall time until it must have returned, in milliseconds. */
  readonly wallMs: number
  /** Database requests it may send; on hosts with invocations (subrequests on Workers) those of the whole invocation. */
  readonly requests: number
  /** Steps that may run side by side. */
  readonly concurrency: number
  /** Runs taken by one claim. */
  readonly batch: number
  /** Flush-and-claim requests in flight at once; more than one needs a driver with that many connections. */
  readonly lanes: number
  /** Stay for work that becomes due within this, where no alarm would wake us. 0: return. */
  readonly lingerMs: number
}

export interface TickReport {
  readonly claimed: number
  readonly completed: number
  readonly failed: number
  readonly waiting: number
  readonly retried: number
  readonly discarded: number
  readonly cancelled: number
  readonly uncertain: number
  /** Put on hold, because what is stored of them does not fit the code. */
  readonly held: number
  readonly released: number
  readonly stale: number
  readonly rescued: number
  readonly promoted: number
  readonly fired: number
  readonly pruned: number
  readonly requests: number
  readonly elapsedMs: number
  /** When work is next due, epoch milliseconds; null: nothing is. */
  readonly nextDueAt: number | null
  /** Work that is due now was left over. */
  readonly more: boolean
}
