import { isTerminal } from '../core/status.ts'
import type { CommittedOutcome } from '../core/store.ts'
import type { InvocationParams } from './invocation-params.ts'

/** Requests kept back for the last flush and what it may have to send again. */
const RESERVE_REQUESTS = 4

/** What was committed with it is for others to know: messages, or an end that is waited for. */
export function tellsOthers({ messages, run, status }: CommittedOutcome): boolean {
  return messages.length > 0 || (run.awaited && isTerminal(status))
}

/**
 * Tells what commits have left to be told, beside everything else that a pass does and one relay at a time. Once it has failed, it is left to a
 * later pass.
 */
export class Relay {
  readonly #params: InvocationParams
  readonly #over: (told: number) => void
  #state: 'idle' | 'under way' | 'failed' = 'idle'
  /** Something was committed while it was under way: it may have looked before. */
  #again = false

  /** `over`: called after each relay, with how many messages it told. */
  constructor(params: InvocationParams, over: (told: number) => void) {
    this.#params = params
    this.#over = over
  }

  get isUnderWay(): boolean {
    return this.#state === 'under way'
  }

  start(): void {
    const { store, budget, requests, surroundings } = this.#params
    this.#again = this.isUnderWay
    const left = budget.requests - requests() - RESERVE_REQUESTS
    if (this.#state !== 'idle' || left < 2) return
    this.#state = 'under way'
    store.relay(left).then(
      ({ told }) => this.#end('idle', told),
      (error) => {
        surroundings.logger.warn('pawl: what runs have to tell others is left to a later tick', { error: String(error) })
        this.#end('failed', 0)
      },
    )
  }

  #end(state: 'idle' | 'failed', told: number): void {
    this.#state = state
    if (this.#again) this.start()
    this.#over(told)
  }
}
