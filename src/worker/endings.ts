import { PawlError } from '../core/errors.ts'
import type { InvocationParams } from './invocation-params.ts'
import type { Tally } from './report.ts'

/** Time a handler has to stop once it was told to, in milliseconds: enough to give back what it holds, too short to hold up others. */
export const CANCEL_GRACE_MS = 1_000

/** What the handler of a cancelled run is told. */
export function cancelled(id: string): PawlError {
  return new PawlError('cancelled', `Run ${id} was cancelled.`)
}

/** Requests of one pass over what is to be ended, and what an invocation keeps back for its last flush. */
const ENDING_REQUESTS = 3
const RESERVE_REQUESTS = 4

/**
 * Ends what is to end though nobody asks, beside everything else that a pass of the invocation does and one round at a time. A failure is
 * left to a later look.
 */
export class Endings {
  readonly #params: InvocationParams
  readonly #tally: Tally
  readonly #over: (moved: boolean) => void
  #underWay = false

  /** `over`: called after each round, with whether anything has moved. */
  constructor(params: InvocationParams, tally: Tally, over: (moved: boolean) => void) {
    this.#params = params
    this.#tally = tally
    this.#over = over
  }

  get isUnderWay(): boolean {
    return this.#underWay
  }

  start(): void {
    const { store, budget, requests, surroundings } = this.#params
    if (this.#underWay || requests() + ENDING_REQUESTS + RESERVE_REQUESTS >= budget.requests) return
    this.#underWay = true
    store.endDue().then(
      ({ ended, moved }) => this.#end(ended, moved),
      (error: unknown) => {
        surroundings.logger.warn('pawl: ending what is overdue failed and is left to a later tick', { error: String(error) })
        this.#end(0, false)
      },
    )
  }

  #end(ended: number, moved: boolean): void {
    this.#underWay = false
    this.#tally.cancelled += ended
    this.#over(moved)
  }
}
