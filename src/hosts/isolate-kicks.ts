import type { TickReport } from '../core/tick.ts'

/** How often a leader looks whether others have asked, and those whether it has looked, in milliseconds. */
const LOOK_EVERY_MS = 20
/** A leader that has not looked for this long is gone with its invocation, in milliseconds: the host ends them without a word. */
const GONE_AFTER_MS = 500
/** The share of its time in which a leader takes on more: later its pass claims nothing that takes long. */
const LEADING_SHARE = 0.5

/** A ticker of the invocation that leads. */
export interface KickTicker {
  kick(source: string): Promise<TickReport>
}

/**
 * Kicks of one isolate, whose invocations run beside each other: one leads and ticks, the others ask it to look again, so that a
 * thousand spawns do not start a thousand ticks. What belongs to an invocation must not be touched from another, its promises included:
 * they meet in plain numbers only.
 *
 * Invariant: a kick ends when a claim was sent after it was asked for, by whomever.
 */
export class IsolateKicks {
  #asked = 0
  /** The highest number a claim was sent after. */
  #seen = 0
  #leader: { lookedAt: number } | undefined
  readonly #nowMs: () => number

  constructor(nowMs: () => number = Date.now) {
    this.#nowMs = nowMs
  }

  /** A number for a write that was just committed. */
  ask(): number {
    this.#asked += 1
    return this.#asked
  }

  hasSeen(asked: number): boolean {
    return this.#seen >= asked
  }

  /**
   * Waits until the asked-for look was had, leading where nobody does. Answers the report of the pass when this invocation led.
   * `asked` may rise while it waits.
   */
  async kick(asked: () => number, ticker: KickTicker, wallMs: number): Promise<TickReport | undefined> {
    for (;;) {
      if (this.hasSeen(asked())) return undefined
      if (!this.#isLed()) return this.#lead(ticker, wallMs)
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
    }
  }

  #isLed(): boolean {
    return this.#leader !== undefined && this.#nowMs() - this.#leader.lookedAt < GONE_AFTER_MS
  }

  async #lead(ticker: KickTicker, wallMs: number): Promise<TickReport> {
    const me = { lookedAt: this.#nowMs() }
    const until = me.lookedAt + wallMs * LEADING_SHARE
    this.#leader = me
    const look = (): void => {
      me.lookedAt = this.#nowMs()
      if (me.lookedAt > until) this.#resign(me)
      if (this.#leader !== me || this.#asked === this.#seen) return
      this.#seen = this.#asked
      // the same promise as the pass that is running: awaited below
      ticker.kick('kick').catch(() => undefined)
    }
    const timer = setInterval(look, LOOK_EVERY_MS)
    try {
      for (;;) {
        this.#seen = this.#asked
        const report = await ticker.kick('kick')
        if (this.#leader !== me || this.#asked === this.#seen || this.#nowMs() > until) return report
      }
    } finally {
      clearInterval(timer)
      this.#resign(me)
    }
  }

  #resign(me: { lookedAt: number }): void {
    if (this.#leader === me) this.#leader = undefined
  }
}
