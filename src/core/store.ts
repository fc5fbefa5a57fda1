/**
 * The port between what the engine means and where it is kept. Implemented once, in `db/`, over any driver. Instants are epoch
 * milliseconds, payloads are JSON text: parsing and naming for people is the caller's.
 */

import type { Admission, Holding, OnConflict, UniqueEntry } from './admission.ts'
import type { CallerTransactionStore, ReceiptStore } from './caller-transaction.ts'
import type { ClaimReply, ClaimRequest } from './claim.ts'
import type { Gates } from './gate.ts'
import type { LimitPolicy } from './limit.ts'
import type { StepMessage } from './messages.ts'
import type { OperatingStore } from './operating.ts'
import type { CommitStatement, RunError } from './outcome.ts'
import type {
  ApiKeyRecord,
  HealthRecord,
  HistoryRecord,
  ListRunsQuery,
  Page,
  RunRecord,
  ScheduleRecord,
  Scope,
  StatsRecord,
} from './records.ts'
import type { NewResolution, ResolveAnswer, RetryAnswer } from './resolution.ts'
import type { Status } from './status.ts'
import type { RunTarget } from './topics.ts'

export type * from './admission.ts'
export type * from './claim.ts'
export type * from './records.ts'

/** A run to be spawned, everything resolved: defaults filled in, input validated and serialised. */
export interface NewRun {
  readonly id: string
  /** The caller chose the id: a run that already has it is answered, not refused. */
  readonly idIsCallers: boolean
  readonly tenant: string
  readonly queue: string
  readonly definition: string
  readonly version: number
  readonly step: string
  readonly priority: number
  readonly delayMs: number | null
  readonly runAt: number | null
  readonly maxAttempts: number
  readonly retentionSeconds: number
  readonly failedRetentionSeconds: number
  readonly input: string | null
  readonly state: string | null
  readonly payloadBytes: number
  readonly key: string | null
  /** Gates that must admit it: made by `toGate`. */
  readonly gates: readonly string[] | null
  /** Units that each gate is charged, parallel to them; null: one each. */
  readonly gateUnits: readonly number[] | null
  readonly policy: RunPolicy | null
  readonly onConflict: OnConflict
  /** When the first of its deadlines has to be looked at, in milliseconds from when it is due. */
  readonly deadlineMs: number | null
  readonly tags: readonly string[] | null
  readonly headers: string | null
  readonly origin: string | null
  readonly receipt: Receipt | null
}

/** What was agreed for one run and only few runs have; kept with it, so that no code is needed to hold to it. */
export interface RunPolicy {
  /**
   * Its life in all, the wait before its first start, and the time without progress, in milliseconds, from when it is first due: it is
   * cancelled when one is over.
   */
  readonly maxTotalMs?: number
  readonly maxWaitMs?: number
  readonly maxIdleMs?: number
  /** From when they count in place of that, as epoch milliseconds: it was started again by hand. */
  readonly sinceMs?: number
  /** Attempts abandoned by their host that are replayed; one more makes the run uncertain. Absent: the engine's own cap, and it fails. */
  readonly maxReplays?: number
  /** How long its key is held. Absent: while it lives. */
  readonly key?: Holding
  /** The entry in `uniques` that it holds beside its key. */
  readonly unique?: UniqueEntry
  /** The join whose children are cancelled as far as they have not ended when the step that it led to is through. */
  readonly cancelsStragglersOf?: number
  /** A child that goes on when its parent is cancelled. */
  readonly outlivesParent?: true
}

/** An idempotency key and the fingerprint of the request it came with. */
export interface Receipt {
  readonly key: string
  readonly fingerprint: string
}

export interface NewSignal {
  readonly tenant: string
  readonly to: { readonly id: string } | { readonly key: string; readonly definition: string | null }
  readonly name: string
  readonly payload: string | null
  readonly receipt: Receipt | null
}

export type Delivery =
  | {
      readonly kind: 'delivered'
      readonly signalId: string
      readonly runId: string
      readonly replayed: boolean
      readonly woke: boolean
    }
  | { readonly kind: 'no_target' }
  | { readonly kind: 'ambiguous'; readonly count: number }
  | { readonly kind: 'mismatch' }

export interface NewEvent {
  readonly tenant: string
  readonly name: string
  /** JSON text. */
  readonly payload: string
  readonly retentionMs: number
  readonly receipt: Receipt | null
}

export type Emission =
  | {
      readonly kind: 'emitted'
      /** False: an event of this name was there, and is. */
      readonly created: boolean
      readonly emittedAt: number
      readonly expiresAt: number
      readonly replayed: boolean
      readonly woke: boolean
    }
  | { readonly kind: 'mismatch' }

export interface InboxEntry {
  readonly id: string
  readonly name: string
  readonly payload: unknown
  readonly receivedAt: number
}

export interface JoinedChild {
  readonly id: string
  readonly definition: string
  readonly key: string | null
  readonly index: number
  readonly status: Status
  readonly result: unknown
  readonly error: RunError | null
}

/** A run in hand: claimed by this invocation under (id, claimId, seq). */
export interface ClaimedRun {
  readonly id: string
  readonly claimId: string
  readonly seq: number
  readonly visit: number
  readonly step: string
  readonly tenant: string
  readonly queue: string
  readonly definition: string
  readonly version: number
  readonly failures: number
  readonly losses: number
  /** Losses while nothing else was in the invocation's hands. */
  readonly lonelyLosses: number
  readonly snoozes: number
  readonly maxAttempts: number
  readonly payloadBytes: number
  readonly key: string | null
  readonly tags: readonly string[]
  readonly headers: Readonly<Record<string, string>>
  readonly parentId: string | null
  readonly gates: readonly string[]
  readonly gateUnits: readonly number[] | null
  /** Gates whose slots it kept since its last transition. */
  readonly heldGates: readonly string[]
  readonly policy: RunPolicy
  /** Somebody waits for its end. */
  readonly awaited: boolean
  readonly awaits: readonly string[]
  readonly timedOut: boolean
  readonly cancelRequested: boolean
  readonly input: unknown
  readonly state: unknown
  readonly inbox: readonly InboxEntry[]
  /** True: the inbox is longer than what came with the claim. */
  readonly inboxMore: boolean
  readonly joinSeq: number | null
  readonly children: readonly JoinedChild[]
  readonly childrenMore: boolean
}

export type OutcomeKind =
  | 'next'
  | 'continue'
  | 'wait'
  | 'join'
  | 'done'
  | 'fail'
  | 'retry'
  | 'snooze'
  | 'discard'
  | 'cancel'
  | 'release'
  | 'uncertain'
  | 'hold'

/** One outcome to commit, everything serialised. */
export interface CommittedOutcome {
  readonly run: ClaimedRun
  readonly kind: OutcomeKind
  /** The status the run gets. */
  readonly status: Status
  /** The step it goes to; null: stays. */
  readonly step: string | null
  readonly state: string | null
  readonly payloadBytes: number | null
  readonly result: string | null
  readonly error: string | null
  readonly delayMs: number | null
  /** An instant in place of the delay, as epoch milliseconds: the database compares it with its own clock. */
  readonly until: number | null
  readonly awaits: readonly string[] | null
  readonly join: CommittedJoin | null
  readonly elapsedMs: number
  readonly attempt: number
  /** A wait: what the step was shown of the names it waits for again stays in the inbox. */
  readonly keeps: boolean
  /** Of its gates, when it leaves the invocation: kept meanwhile, or changed for others. Absent: given back, and asked for again. */
  readonly slots?: 'keep' | Gates | undefined
  /** The step asked to let others have a turn first. */
  readonly yields: boolean
  /** Events and signals for others, committed with it or not at all. */
  readonly messages: readonly StepMessage[]
  /** The user's own statements, committed with it or not at all. */
  readonly commit: readonly CommitStatement[]
  /** JSON of what is known of an uncertain attempt; what of the run does not fit the code, so that it is held. */
  readonly uncertainty: string | null
  readonly mismatch: string | null
}

export interface CommittedJoin {
  readonly children: readonly NewRun[]
  /** How many must end well; null: all must have ended, however. */
  readonly need: number | null
  /** The first that ends otherwise than well wakes the parent. */
  readonly failFast: boolean
  /** Children that have not ended are cancelled when the step that follows is through. */
  readonly cancelsStragglers: boolean
}

/** What became of an outcome. `stale`: the run is no longer ours and nothing was changed. */
export type FlushedOutcome = { readonly kind: 'applied'; readonly status: Status } | { readonly kind: 'stale' }

export interface FlushRequest {
  readonly outcomes: readonly CommittedOutcome[]
  /** Claims that have nothing left in hand after this flush. */
  readonly endedClaims: readonly string[]
}

export interface FlushReply {
  /** Parallel to the outcomes. */
  readonly outcomes: readonly FlushedOutcome[]
  readonly claim: ClaimReply | null
}

export interface KeepReply {
  /** Claims that lapsed before they were extended: their runs are lost to this invocation. */
  readonly lostClaims: readonly string[]
  readonly lostRuns: readonly string[]
  readonly cancelRequested: readonly string[]
}

/**
 * What a cancellation did. `requested`: somebody works on the run, which ends at its next flush, or it is uncertain and keeps both facts.
 * `children`: some follow, with the next ticks.
 */
export type CancelAnswer = {
  readonly id: string
  readonly did: 'cancelled' | 'requested' | 'already_cancelled' | 'already_ended' | 'already_requested'
  readonly status: Status
  readonly children?: 'cancelling' | undefined
}

export interface CancelScope extends Scope {
  /** Who asks, for the record. */
  readonly by: string | null
  readonly reason?: string | null | undefined
}

/** Admission: one batch each. */
export interface AdmissionStore {
  /** Spawns many in one batch; answers per run, in order. Resending the same after a lost reply changes nothing. */
  spawn(runs: readonly NewRun[]): Promise<readonly Admission[]>
  signal(signal: NewSignal): Promise<Delivery>
  /** Broadcasts an event; the first of its name wins until it expires. Waiters that were not told at once are told by further batches. */
  emit(event: NewEvent): Promise<Emission>
  cancel(id: string, scope: CancelScope): Promise<CancelAnswer | null>
  retry(id: string, scope: Scope & { readonly maxAttempts?: number | null }): Promise<RetryAnswer>
  resolve(id: string, scope: Scope, resolution: NewResolution): Promise<ResolveAnswer>
}

export interface UpkeepDone {
  readonly pruned: number
  readonly more: boolean
  readonly woke: boolean
}

/** What a tick needs: one batch each. */
export interface EngineStore {
  claim(request: ClaimRequest): Promise<ClaimReply>
  /** Commits outcomes and takes the next runs in the same batch. When the claim that rides along fails, the flush is sent again alone. */
  flush(request: FlushRequest, claim: ClaimRequest | null): Promise<FlushReply>
  keep(runs: readonly ClaimedRun[], leaseMs: number): Promise<KeepReply>
  /** Ends runs whose deadline is over, and children of cancelled parents: bounded, two requests (three where gates are handed on), waits for nobody. `moved`: anything has changed. */
  endDue(): Promise<{ readonly ended: number; readonly moved: boolean }>
  /** Ends the leases of claims whose ids lie in that range: who made them is known to be gone. */
  endLeases(range: { readonly from: string; readonly to: string }): Promise<void>
  /** Signals of those names behind that one; a page, empty when there are no more. */
  loadInbox(runId: string, names: readonly string[], afterId: string): Promise<readonly InboxEntry[]>
  /** Children of that join behind that index; a page, empty when there are no more. */
  loadChildren(runId: string, joinSeq: number, afterIndex: number): Promise<readonly JoinedChild[]>
  /** Runs of that tenant by id, or live ones by key: their ids, in the order asked; null: there is none. */
  findRuns(tenant: string, targets: readonly RunTarget[]): Promise<readonly (string | null)[]>
  /** Tells what commits have left to be told: events and signals of steps, ends of awaited runs. At most so many requests; true: there is more. */
  relay(maxRequests: number): Promise<{ readonly told: number; readonly more: boolean }>
  /** Bounded upkeep: retention, gates, expired receipts. `more`: there is more. `woke`: runs that were blocked on a gate may be due now. */
  upkeep(request: {
    readonly source: string
    readonly nextInMs: number
    readonly minRetentionSeconds: number
  }): Promise<UpkeepDone>
  /** Writes the policies of limits and queue caps that the code declares. */
  declareLimits(limits: readonly { readonly name: string; readonly policy: LimitPolicy }[]): Promise<void>
}

export interface ScheduleStore {
  /** Makes the schedules declared in code what the code says; `nextAt` is kept when expression and zone are as they were. */
  declareSchedules(
    schedules: readonly (Omit<ScheduleRecord, 'lastAt' | 'enabled' | 'source'> & { readonly nextAt: number | null })[],
  ): Promise<void>
  dueSchedules(limit: number): Promise<{ readonly now: number; readonly schedules: readonly ScheduleRecord[] }>
  /** Fires one slot: spawns under the slot's receipt and moves `next_at` on, in one batch; a slot that another tick fired does nothing. */
  fire(schedule: ScheduleRecord, run: NewRun, nextAt: number | null): Promise<Admission>
}

/** Reading, and the small administrative tables. One request each. */
export interface ReadingStore {
  getRun(id: string, scope: Scope): Promise<RunRecord | null>
  listRuns(query: ListRunsQuery): Promise<Page<RunRecord>>
  history(
    id: string,
    scope: Scope,
    page: { readonly limit: number; readonly cursor: string | null },
  ): Promise<Page<HistoryRecord> | null>
  stats(scope: Scope | null): Promise<StatsRecord>
  health(): Promise<HealthRecord>
  findApiKey(hash: string): Promise<ApiKeyRecord | null>
  createApiKey(key: Omit<ApiKeyRecord, 'createdAt' | 'revokedAt'> & { readonly hash: string }): Promise<ApiKeyRecord>
  listApiKeys(scope: Scope | null): Promise<readonly ApiKeyRecord[]>
  revokeApiKey(id: string, scope: Scope | null): Promise<boolean>
}

export type Store = AdmissionStore &
  CallerTransactionStore &
  ReceiptStore &
  EngineStore &
  ScheduleStore &
  ReadingStore &
  OperatingStore
