import type { ClaimReply, CommittedOutcome, FlushedOutcome } from '../core/store.ts'
import type { TickReport } from '../core/tick.ts'

type Counts = { -readonly [K in Exclude<keyof TickReport, 'requests' | 'elapsedMs' | 'nextDueAt' | 'more'>]: number }

export interface Tally extends Counts {
  /** Counts one flushed outcome. */
  count(outcome: CommittedOutcome, answer: FlushedOutcome): void
  /** Counts what a claim brought. */
  countClaim(reply: ClaimReply): void
}

export function createTally(): Tally {
  return {
    claimed: 0,
    completed: 0,
    failed: 0,
    waiting: 0,
    retried: 0,
    discarded: 0,
    cancelled: 0,
    uncertain: 0,
    held: 0,
    released: 0,
    stale: 0,
    rescued: 0,
    promoted: 0,
    fired: 0,
    pruned: 0,
    countClaim(reply) {
      this.claimed += reply.runs.length
      this.promoted += reply.promoted
      this.rescued += reply.rescued
    },
    count(outcome, answer) {
      if (answer.kind === 'stale') this.stale += 1
      else if (outcome.kind === 'release') this.released += 1
      else if (answer.status === 'uncertain') this.uncertain += 1
      else if (outcome.kind === 'hold') this.held += 1
      else if (outcome.kind === 'retry') this.retried += 1
      else if (answer.status === 'completed') this.completed += 1
      else if (answer.status === 'failed') this.failed += 1
      else if (answer.status === 'waiting') this.waiting += 1
      else if (answer.status === 'discarded') this.discarded += 1
      else if (answer.status === 'cancelled') this.cancelled += 1
    },
  }
}

/** What was counted, as it is reported. */
export function toReport(tally: Tally, rest: Pick<TickReport, 'requests' | 'elapsedMs' | 'nextDueAt' | 'more'>): TickReport {
  const { count: _, ...counts } = tally
  return { ...counts, ...rest }
}
