/** What there is, and whether anybody ticks: from records of one snapshot each. Instants are epoch milliseconds. */
import { BUILD, SCHEMA_VERSION } from './build.ts'
import { PawlError } from './errors.ts'
import { TICK_IS_STALE_MS } from './explain.ts'
import type { QueueRecord, StatsRecord } from './records.ts'
import type { Registry } from './registry.ts'
import type { HealthRecord } from './store.ts'

export interface QueueStats extends QueueRecord {
  /** The most that run at once, where the code says. */
  readonly concurrency: number | undefined
  /** All that is yet to be run: ready, delayed, blocked and held. */
  readonly depth: number
}

export interface Stats extends Pick<StatsRecord, 'now' | 'exact' | 'byStatus'> {
  readonly total: number
  /** What a tick could claim now: nothing of the future, nothing that is paused, held or blocked. */
  readonly due: number
  /** By name; queues of the code that are empty are among them. */
  readonly queues: readonly QueueStats[]
}

export interface Health extends Pick<HealthRecord, 'now' | 'schemaVersion' | 'lastTickAt' | 'lastTickSource' | 'oldestDueAt'> {
  /** Something has been due for two minutes and no tick was noted in that time. */
  readonly tickIsStale: boolean
}

export function toStats(record: StatsRecord, declared: Registry['queues']): Stats {
  const { now, exact, byStatus } = record
  const known = new Set(record.queues.map(({ name }) => name))
  const empty = [...declared.keys()].filter((name) => !known.has(name)).map(toEmptyQueue)
  const queues = [...record.queues, ...empty]
    .sort((left, right) => (left.name < right.name ? -1 : 1))
    .map((queue) => toQueueStats(queue, declared.get(queue.name)?.concurrency))
  const total = Object.values(byStatus).reduce((sum, count) => sum + count, 0)
  return { now, exact, byStatus, total, due: queues.reduce((sum, queue) => sum + queue.due, 0), queues }
}

function toQueueStats(queue: QueueRecord, concurrency: number | undefined): QueueStats {
  const { ready, delayed, blocked, held } = queue
  return { ...queue, concurrency, depth: ready + delayed + blocked + held }
}

function toEmptyQueue(name: string): QueueRecord {
  return { name, paused: false, ready: 0, delayed: 0, waiting: 0, running: 0, blocked: 0, held: 0, due: 0, oldestDueAt: null }
}

/** Throws schema_outdated and schema_newer, where this build and the tables do not go together. */
export function toHealth(record: HealthRecord): Health {
  const { now, schemaVersion, minBuild, lastTickAt, lastTickSource, oldestDueAt } = record
  if (schemaVersion < SCHEMA_VERSION)
    throw new PawlError(
      'schema_outdated',
      `The schema has version ${schemaVersion}, this build needs ${SCHEMA_VERSION}: migrate.`,
    )
  if (minBuild > BUILD)
    throw new PawlError('schema_newer', `The schema needs build ${minBuild}, this is ${BUILD}: deploy a newer one.`)
  return { now, schemaVersion, lastTickAt, lastTickSource, oldestDueAt, tickIsStale: isTickStale(record) }
}

/** Where nothing is due, neither a run nor a schedule, no tick is missed. */
function isTickStale({ now, lastTickAt, oldestDueAt, oldestSlotAt }: HealthRecord): boolean {
  if (now - Math.min(oldestDueAt ?? now, oldestSlotAt ?? now) <= TICK_IS_STALE_MS) return false
  return lastTickAt === null || now - lastTickAt > TICK_IS_STALE_MS
}
