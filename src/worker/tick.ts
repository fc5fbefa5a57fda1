import type { TickReport } from '../core/tick.ts'
import { Pass } from './pass.ts'
import { createTally, toReport } from './report.ts'
import type { TickerOptions } from './ticker-options.ts'

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

export function createTicker(options: TickerOptions): Ticker {
  let running: { readonly pass: Pass; readonly report: Promise<TickReport> } | undefined
  let stopped = false
  const start = (source: string): Promise<TickReport> => {
    const pass = new Pass(options, source)
    const report = pass.run().finally(() => {
      if (running?.pass === pass) running = undefined
    })
    running = { pass, report }
    return report
  }
  return {
    tick: (source) => start(source),
    kick: (source) => {
      if (stopped) return Promise.resolve(toReport(createTally(), IDLE))
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
