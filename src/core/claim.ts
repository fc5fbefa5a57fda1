/** What a claim asks for and what it brings. */
import type { ClaimedRun } from './store.ts'

export interface ClaimRequest {
  readonly claimId: string
  /** What may be claimed: definitions of this build whose timeout fits the time left. */
  readonly definitions: readonly { readonly name: string; readonly version: number }[]
  readonly queues: readonly string[] | null
  readonly limit: number
  readonly maxBytes: number
  readonly leaseMs: number
  readonly laneCursor: number
  /** Nothing else is in flight: a run that has lost its host may be taken, alone. */
  readonly alone: boolean
  /** Claims of this invocation that are marked as alone and no longer will be, once this one takes something. */
  readonly besides: readonly string[]
  /** Ask also what is left and what upkeep is due. */
  readonly peek: boolean
  /**
   * Ask the gates of runs that have some (default true). `'open'`: only whether they are wide open, which costs less, until some are seen that are
   * not. False: runs with gates are left where they are. Runs that are left are counted as set aside: the next claim asks more.
   */
  readonly gated?: boolean | 'open' | undefined
  /** Look after runs that wait for tokens of a rate. Default: as `gated`. */
  readonly rated?: boolean | undefined
}

export interface Peek {
  readonly now: number
  readonly more: boolean
  /** In the window: a run that has lost its host before, and is claimed alone; and others. */
  readonly lonely: boolean
  readonly others: boolean
  readonly nextAt: number | null
  readonly scheduleDue: boolean
  /** Something is to be ended though nobody asks: see `endDue`. */
  readonly endingDue: boolean
  readonly upkeepDue: boolean
  /** Something that was committed has not been told yet to those it concerns. */
  readonly relayDue: boolean
}

export interface ClaimReply {
  readonly runs: readonly ClaimedRun[]
  /** Runs that left the window, or will with the next claim, because a gate denies them: what is behind them comes next. */
  readonly setAside: number
  /** Runs that stay where they are because others hold the counter of a gate just now: there were as many more to take. */
  readonly passedOver: number
  /** The lane to go on behind; 0: there are no more than one claim opens. */
  readonly laneCursor: number
  readonly promoted: number
  readonly rescued: number
  readonly peek: Peek | null
}
