import type { ClaimedRun, CommittedOutcome } from '../core/store.ts'

/** A run that this invocation is working on. */
export interface InHand {
  readonly run: ClaimedRun
  readonly abort: AbortController
  /** Steps it has gone on through without being claimed anew. */
  readonly inlineSteps: number
  /** What its step ended with: about to be sent, or sent. Null while it goes on. */
  outcome: CommittedOutcome | null
  /** Its outcome is on the wire: what becomes of it the answer says, nothing else. */
  sent: boolean
  /** Index among the runs in hand. */
  place: number
}

/** True when its outcome is known and takes it out of this invocation, however it goes on. */
export function isLeaving({ outcome }: InHand): boolean {
  return outcome !== null && outcome.status !== 'running'
}

/**
 * What one invocation holds: the runs it works on, and the claims that they stand under. The runs are in an array, each knowing its
 * place: a map that thousands of entries pass through leaves its outgrown tables behind, and these hold on to runs long gone.
 */
export class Hand {
  readonly #runs: InHand[] = []
  readonly #openRuns = new Map<string, number>()
  #working = 0
  #lossy = 0
  #ended: string[] = []
  #solitary: string | null = null

  get size(): number {
    return this.#runs.length
  }

  /** What no outcome was sent of yet. */
  get unsent(): readonly ClaimedRun[] {
    return this.#runs.flatMap(({ run, sent }) => (sent ? [] : [run]))
  }

  /** How many have no outcome yet. */
  get working(): number {
    return this.#working
  }

  /** How many run a step, or will go on with the next one. */
  get running(): number {
    return this.#count((held) => !isLeaving(held))
  }

  /** How many are left once what waits to be sent has been committed. */
  get remaining(): number {
    return this.#count((held) => held.sent || !isLeaving(held))
  }

  #count(test: (held: InHand) => boolean): number {
    let count = 0
    for (const held of this.#runs) if (test(held)) count += 1
    return count
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
    const place = this.#runs.length
    const held: InHand = { run, abort: new AbortController(), inlineSteps, outcome: null, sent: false, place }
    this.#runs.push(held)
    this.#working += 1
    if (run.losses > 0) this.#lossy += 1
    return held
  }

  find(id: string): InHand | undefined {
    return this.#runs.find(({ run }) => run.id === id)
  }

  /** False once the run was lost, or is in hand again under another claim. */
  holds(held: InHand): boolean {
    return this.#runs[held.place] === held
  }

  conclude(held: InHand, outcome: CommittedOutcome): void {
    if (held.outcome === null) this.#working -= 1
    held.outcome = outcome
  }

  /** Another run takes its place. Idempotent. */
  drop(held: InHand): void {
    if (!this.holds(held)) return
    if (held.outcome === null) this.#working -= 1
    if (held.run.losses > 0) this.#lossy -= 1
    const last = this.#runs.pop()
    if (last === undefined || last === held) return
    last.place = held.place
    this.#runs[held.place] = last
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

  /** Claims under which nothing is left have not been told of. */
  get hasEnded(): boolean {
    return this.#ended.length > 0
  }

  /** Claims under which nothing is left, each once. */
  takeEnded(): readonly string[] {
    const ended = this.#ended
    this.#ended = []
    return ended
  }

  /** Tells every handler to stop. */
  abortAll(reason: unknown): void {
    for (const { abort } of this.#runs) abort.abort(reason)
  }
}
