/** Others get this many times as long as the last turn took, before a run that must be alone has the next. */
const OTHERS_SHARE = 4
/** How long room is made in vain, in milliseconds: a slow step in hand must not hold up everybody else. */
export const ROOM_PATIENCE_MS = 5_000
/** The least time for the others, in milliseconds. */
const LEAST_PAUSE_MS = 200

/**
 * When runs that have lost their host before, and so must have no company, get their turn: at once when nothing else is there; otherwise
 * they take a fifth of the time. Neither does a flow that never ends keep them waiting, nor do many of them hold up the others.
 */
export class LonelyTurns {
  #waiting = false
  #othersWait = false
  #since: number | null = null
  #notBefore = 0

  /** What was seen in the claim window: a run that must be alone, and others. */
  noted(seen: { readonly lonely: boolean; readonly others: boolean }): void {
    this.#waiting = seen.lonely
    this.#othersWait = seen.others
  }

  /** May an idle invocation take one now? */
  may(nowMs: number): boolean {
    return !this.#othersWait || nowMs >= this.#notBefore
  }

  /** Should a busy one finish what it has, claiming nothing, to make room? */
  isDue(nowMs: number): boolean {
    if (!this.#waiting || nowMs < this.#notBefore) return false
    this.#since ??= nowMs
    if (nowMs - this.#since < ROOM_PATIENCE_MS) return true
    this.over(nowMs, this.#since)
    return false
  }

  /** Somebody else has taken it. */
  cameToNothing(): void {
    this.#since = null
    this.#waiting = false
  }

  /** A turn is over. Its time is counted from when room began to be made. */
  over(nowMs: number, beganAt: number): void {
    const took = nowMs - Math.min(this.#since ?? beganAt, beganAt)
    this.#since = null
    this.#waiting = false
    this.#notBefore = nowMs + Math.max(took * OTHERS_SHARE, LEAST_PAUSE_MS)
  }
}
