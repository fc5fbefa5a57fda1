import type { RunningTicker } from '../client/create-pawl.ts'
import type { Logger } from '../core/logger.ts'
import type { Budget, TickReport } from '../core/tick.ts'
import type { Connection } from './host-options.ts'

/** With nothing due the database is asked this often, in milliseconds: SQL can be written past us. */
const IDLE_MS = 900_000
/** A pass that was busy for this long is told to claim no more, and the next begins beside it: schedules and upkeep come between passes. */
const ROTATE_MS = 10_000
/** Least pause after a pass that found nothing to do though something is said to be due: others hold it, or the clocks disagree. */
const FRUITLESS_MS = 50
const MAX_FRUITLESS_MS = 2_000
/** Pause after a failed pass, doubled each time. */
const FAILED_MS = 500
const MAX_FAILED_MS = 30_000

export interface NodeLoopParams {
  readonly connection: Connection
  readonly budget: Budget
  readonly logger: Logger
  readonly leaseMs?: number | undefined
  readonly newClaimId?: (() => string) | undefined
  /** How long a pass may be busy before the next begins beside it, in milliseconds. Default 10 s. */
  readonly rotateMs?: number | undefined
  /** Called when a pass is over. */
  readonly onPass?: ((report: TickReport) => void) | undefined
}

export interface NodeLoop {
  /** Something may be due now. Cheap: writes that come together are seen by one pass. */
  wake(): void
  /** Claims nothing more, finishes what is in hand, gives back what was not started. Idempotent. */
  stop(): Promise<void>
}

/** Ticks for as long as there is work, and sleeps until more is due, at most 15 min. */
export function startNodeLoop(params: NodeLoopParams): NodeLoop {
  const loop = new Loop(params)
  loop.begin()
  return loop
}

/**
 * Modes: *ticking* (a pass is on; a wake makes it look again), *sleeping* (until something is due or a wake), *stopped*. Passes that
 * were rotated out drain beside the current one.
 */
class Loop implements NodeLoop {
  readonly #params: NodeLoopParams
  readonly #draining = new Set<Promise<void>>()
  #ticker: RunningTicker | undefined
  #woken = false
  #stopped = false
  #endSleep: () => void = () => {}
  #ended: Promise<void> = Promise.resolve()
  #fruitless = 0
  #failures = 0

  constructor(params: NodeLoopParams) {
    this.#params = params
  }

  begin(): void {
    this.#ended = this.#run()
  }

  wake(): void {
    this.#woken = true
    this.#endSleep()
    // the promise of the running pass, which the loop awaits
    this.#ticker?.kick('kick').catch(() => undefined)
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#endSleep()
    await Promise.all([this.#ticker?.stop(), this.#ended])
    await Promise.all(this.#draining)
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      this.#woken = false
      const pauseMs = await this.#pass()
      if (pauseMs > 0 && !this.#stopped && !this.#woken) await this.#sleep(pauseMs)
    }
  }

  /** One pass. Answers how long to sleep then, in milliseconds. */
  async #pass(): Promise<number> {
    const { connection, budget, leaseMs, newClaimId, logger, onPass } = this.#params
    const ticker = connection.createTicker({ budget, leaseMs, newClaimId })
    this.#ticker = ticker
    const pass = ticker.kick('loop')
    try {
      const report = await this.#orRotate(pass)
      if (report === undefined) {
        this.#drain(ticker, pass)
        return 0
      }
      this.#failures = 0
      onPass?.(report)
      return this.#pauseAfter(report)
    } catch (error) {
      this.#failures += 1
      logger.error('pawl: a tick failed', { error: String(error), failures: this.#failures })
      // an outage is not over because somebody wrote
      this.#woken = false
      return Math.min(MAX_FAILED_MS, FAILED_MS * 2 ** (this.#failures - 1))
    } finally {
      this.#ticker = undefined
    }
  }

  /** The report, or undefined when the pass is still busy and it is time for another. */
  async #orRotate(pass: Promise<TickReport>): Promise<TickReport | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined
    const rotate = new Promise<undefined>((resolve) => {
      timer = setTimeout(resolve, this.#params.rotateMs ?? ROTATE_MS, undefined)
    })
    try {
      return await Promise.race([pass, rotate])
    } finally {
      clearTimeout(timer)
    }
  }

  /** What it gives back, and what its last outcomes made due, is for the loop to see: hence the wake. */
  #drain(ticker: RunningTicker, pass: Promise<TickReport>): void {
    const { logger, onPass } = this.#params
    const told = pass.then(onPass, (error: unknown) => logger.error('pawl: a tick failed', { error: String(error) }))
    const drained = Promise.all([ticker.stop(), told]).then(() => {
      this.#draining.delete(drained)
      if (!this.#stopped) this.wake()
    })
    this.#draining.add(drained)
  }

  #pauseAfter(report: TickReport): number {
    const worked = report.claimed + report.promoted + report.rescued + report.cancelled + report.fired > 0
    const dueInMs = report.more ? 0 : report.nextDueAt === null ? IDLE_MS : report.nextDueAt - Date.now()
    if (worked && report.more) return 0
    this.#fruitless = worked || dueInMs > 0 ? 0 : this.#fruitless + 1
    const least = this.#fruitless === 0 ? 0 : Math.min(MAX_FRUITLESS_MS, FRUITLESS_MS * 2 ** (this.#fruitless - 1))
    return Math.min(IDLE_MS, Math.max(least, dueInMs, 1))
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#endSleep = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }
}
