/** Runs, schedules and keys as they are kept and read: instants in epoch milliseconds. */
import type { RunError } from './outcome.ts'
import type { Status } from './status.ts'

export interface Scope {
  readonly tenant: string
}

/** A run as it is kept; instants in epoch milliseconds. */
export interface RunRecord {
  readonly id: string
  readonly tenant: string
  readonly definition: string
  readonly version: number
  readonly queue: string
  readonly status: Status
  readonly hold: string | null
  readonly holdDetail: unknown
  readonly step: string
  readonly seq: number
  readonly visit: number
  readonly attempt: number
  readonly maxAttempts: number
  readonly snoozes: number
  readonly losses: number
  readonly priority: number
  readonly input: unknown
  readonly state: unknown
  readonly result: unknown
  readonly error: RunError | null
  /** Why it is, or was, uncertain, and who resolved it how. Null in lists. */
  readonly uncertainty: unknown
  readonly awaits: readonly string[] | null
  readonly joinRemaining: number | null
  readonly timedOut: boolean
  readonly blockedOn: string | null
  readonly key: string | null
  readonly tags: readonly string[]
  readonly headers: Readonly<Record<string, string>>
  readonly origin: unknown
  readonly parentId: string | null
  readonly createdAt: number
  readonly updatedAt: number
  readonly scheduledFor: number | null
  /** When the engine next has to look: start, timeout, retry; null when nothing is due by itself. */
  readonly availableAt: number | null
  readonly finishedAt: number | null
  readonly cancelRequestedAt: number | null
  /** The error that it ends with for that request. */
  readonly cancellation: RunError | null
  readonly position: bigint
}

export interface ListRunsQuery extends Scope {
  readonly status: readonly Status[] | null
  readonly definition: string | null
  readonly queue: string | null
  readonly key: string | null
  readonly tag: string | null
  readonly parent: string | null
  /** Created at or after, and before, as epoch milliseconds. */
  readonly since: number | null
  readonly until: number | null
  readonly limit: number
  /** Opaque; from the reply before. */
  readonly cursor: string | null
}

export interface HistoryRecord {
  readonly seq: number
  readonly visit: number
  readonly attempt: number
  readonly step: string
  readonly outcome: string
  readonly startedAt: number
  readonly finishedAt: number
  readonly error: RunError | null
}

export interface Page<T> {
  readonly items: readonly T[]
  readonly nextCursor: string | null
}

export interface QueueRecord {
  readonly name: string
  readonly paused: boolean
  readonly ready: number
  readonly delayed: number
  readonly waiting: number
  readonly running: number
  readonly blocked: number
  /** Paused one by one, or held for another reason, and otherwise in line. */
  readonly held: number
  /** What a tick could claim now: nothing of the future, nothing that is paused, held or blocked. */
  readonly due: number
  /** Since when the oldest of these is due; null where none is. */
  readonly oldestDueAt: number | null
}

export interface StatsRecord {
  readonly now: number
  /** False: a count came to its bound (about 100,000), and means "at least". */
  readonly exact: boolean
  readonly byStatus: Readonly<Record<Status, number>>
  readonly queues: readonly QueueRecord[]
}

export interface HealthRecord {
  readonly now: number
  readonly schemaVersion: number
  readonly minBuild: number
  readonly lastTickAt: number | null
  readonly lastTickSource: string | null
  readonly oldestDueAt: number | null
  /** The oldest slot of a schedule that is due and has not been fired. */
  readonly oldestSlotAt: number | null
}

export interface ApiKeyRecord extends Scope {
  readonly id: string
  readonly name: string
  readonly scopes: readonly string[]
  readonly createdAt: number
  readonly expiresAt: number | null
  readonly revokedAt: number | null
}

export interface ScheduleRecord extends Scope {
  readonly name: string
  readonly definition: string
  readonly version: number | null
  readonly expression: string
  readonly timeZone: string
  readonly input: unknown
  readonly enabled: boolean
  readonly source: string
  readonly nextAt: number | null
  readonly lastAt: number | null
}
