import type { ClaimedRun } from '../core/store.ts'

/** A run that this invocation is working on. */
export interface InHand {
  readonly run: ClaimedRun
  readonly abort: AbortController
  /** Steps it has gone on through without being claimed anew. */
  readonly inlineSteps: number
}

/** What one invocation holds: the runs it works on, and the claims that they stand under. */
export class Hand {
  readonly #runs = new Map<string, InHand>()
  readonly #openRuns = new Map<string, number>()
  #lossy = 0
  #ended: string[] = []
  #solitary: string | null = null

  get size(): number {
    return this.#runs.size
  }

  get runs(): readonly ClaimedRun[] {
    return [...this.#runs.values()].map(({ run }) => run)
  }

  /** A run that has lost its host before is in hand: nothing is taken beside it. */
  get isSolo(): boolean {
    return this.#lossy > 0
  }

  /** The claim that was taken with nothing else in hand and has had no company since. */
  get solitaryClaims(): readonly string[] {
    return this.#solitary !== null && this.#openRuns.has(this.#solitary) ? [this.#solitary] : []
  }

  /** Notes a claim and how many runs it took. */
  open(claim: { readonly claimId: string; readonly alone: boolean }, count: number): void {
    this.#openRuns.set(claim.claimId, count)
    this.#solitary = claim.alone && count === 1 ? claim.claimId : null
  }

  take(run: ClaimedRun, inlineSteps: number): InHand {
    const held: InHand = { run, abort: new AbortController(), inlineSteps }
    this.#runs.set(run.id, held)
    if (run.losses > 0) this.#lossy += 1
    return held
  }

  get(id: string): InHand | undefined {
    return this.#runs.get(id)
  }

  /** False once the run was lost, or is in hand again under another claim. */
  holds(held: InHand): boolean {
    return this.#runs.get(held.run.id) === held
  }

  drop(id: string): void {
    const held = this.#runs.get(id)
    if (held && held.run.losses > 0) this.#lossy -= 1
    this.#runs.delete(id)
  }

  /** One run less under its claim; a claim ends with the flush that settles the last of them. */
  settle(run: ClaimedRun): void {
    const left = (this.#openRuns.get(run.claimId) ?? 0) - 1
    if (left > 0) {
      this.#openRuns.set(run.claimId, left)
      return
    }
    if (this.#openRuns.delete(run.claimId)) this.#ended.push(run.claimId)
  }

  /** Claims under which nothing is left, each once. */
  takeEnded(): readonly string[] {
    const ended = this.#ended
    this.#ended = []
    return ended
  }

  /** Tells every handler to stop. */
  abortAll(reason: unknown): void {
    for (const { abort } of this.#runs.values()) abort.abort(reason)
  }
}
