/** What the API shows: instants as RFC 3339 with milliseconds, durations as text with a unit, absent things left out. */
import { fromMs } from '../core/duration.ts'
import type { RunError } from '../core/outcome.ts'
import type { Health, QueueStats, Stats } from '../core/statistics.ts'
import { isTerminal } from '../core/status.ts'
import type { ApiKeyRecord, HistoryRecord, RunRecord } from '../core/store.ts'
import type { TickReport } from '../core/tick.ts'
import { awaitedRunOf, eventOf, isTopic } from '../core/topics.ts'

export function toInstantText(ms: number): string {
  return new Date(ms).toISOString()
}

function optionalInstant(ms: number | null): string | undefined {
  return ms === null ? undefined : toInstantText(ms)
}

export function nullableInstant(ms: number | null): string | null {
  return ms === null ? null : toInstantText(ms)
}

export type RunView = ReturnType<typeof toRunView>

/** A run as it is. Members that are undefined are not sent. */
export function toRunView(run: RunRecord) {
  const hasState = run.state !== null && run.state !== undefined
  return {
    ...toListedRun(run),
    input: run.input,
    state: hasState ? run.state : undefined,
    result: run.status === 'completed' ? run.result : undefined,
    headers: run.headers,
    uncertainty: run.uncertainty === null ? undefined : toUncertaintyView(run.uncertainty),
  }
}

/** Fingerprints tell one command from another and say nothing to people. */
function toUncertaintyView(uncertainty: unknown): object {
  const { resolution, earlier, ...facts } = asMembers(uncertainty) as Readonly<Record<string, unknown>>
  const { fingerprint: _, ...decided } = asMembers(resolution) as Readonly<Record<string, unknown>>
  return {
    ...facts,
    resolution: resolution === undefined ? undefined : decided,
    earlier: Array.isArray(earlier) ? earlier.map(toUncertaintyView) : undefined,
  }
}

/** A run in a list: without input, state, result and headers, so that a page always fits. */
export function toListedRun(run: RunRecord) {
  return {
    id: run.id,
    definition: run.definition,
    version: run.version,
    queue: run.queue,
    priority: run.priority,
    status: run.status,
    hold: run.hold === null ? undefined : { reason: run.hold, ...asMembers(run.holdDetail) },
    step: run.step,
    visit: run.visit,
    attempt: run.attempt,
    maxAttempts: run.maxAttempts,
    losses: run.losses,
    snoozes: run.snoozes,
    error: toErrorView(run.error),
    waitingFor: waitingForOf(run),
    blockedOn: run.blockedOn === null ? undefined : gateName(run.blockedOn),
    timedOut: run.timedOut || undefined,
    key: run.key ?? undefined,
    tags: run.tags,
    origin: run.origin ?? undefined,
    parentId: run.parentId ?? undefined,
    createdAt: toInstantText(run.createdAt),
    updatedAt: toInstantText(run.updatedAt),
    scheduledFor: optionalInstant(run.scheduledFor),
    availableAt: nullableInstant(run.availableAt),
    cancelRequestedAt: optionalInstant(run.cancelRequestedAt),
    cancellation: toCancellationView(run.cancellation),
    finishedAt: optionalInstant(run.finishedAt),
  }
}

function asMembers(value: unknown): object {
  return typeof value === 'object' && value !== null ? value : {}
}

function toErrorView(error: RunError | null): RunError | undefined {
  return error ?? undefined
}

/** Who asked it to end and why, or which deadline was over; nothing when nobody said. */
function toCancellationView(cancellation: RunError | null) {
  if (cancellation === null) return undefined
  const { by, reason, deadline } = cancellation
  return (by ?? reason ?? deadline) ? { by, reason, deadline } : undefined
}

/** The parts of a gate are separated by what no name can hold. */
function gateName(gate: string): string {
  return gate.split('\u001f').join(' / ')
}

/** What a parked run waits for, and until when: signals, events and the ends of runs, or children that have not ended. */
function waitingForOf(run: RunRecord) {
  if (run.status !== 'waiting') return undefined
  const until = optionalInstant(run.availableAt)
  if (run.joinRemaining !== null) return { kind: 'children', remaining: run.joinRemaining, until }
  const awaits = run.awaits ?? []
  const events = awaits.flatMap((name) => eventOf(name) ?? [])
  const runs = awaits.flatMap((name) => awaitedRunOf(name) ?? [])
  return {
    kind: 'signals',
    names: awaits.filter((name) => !isTopic(name)),
    events: events.length > 0 ? events : undefined,
    runs: runs.length > 0 ? runs : undefined,
    until,
  }
}

export function toHistoryView(entry: HistoryRecord) {
  return {
    seq: entry.seq,
    visit: entry.visit,
    attempt: entry.attempt,
    step: entry.step,
    outcome: entry.outcome,
    startedAt: toInstantText(entry.startedAt),
    finishedAt: toInstantText(entry.finishedAt),
    error: toErrorView(entry.error),
  }
}

export function toQueueView(queue: QueueStats, now: number) {
  const { name, paused, concurrency, depth, due, ready, delayed, blocked, held, running, waiting, oldestDueAt } = queue
  return {
    name,
    paused,
    concurrency,
    depth,
    due,
    ready,
    delayed,
    blocked,
    held,
    running,
    waiting,
    oldestDueAt: nullableInstant(oldestDueAt),
    oldestDueAge: oldestDueAt === null ? null : lateness(oldestDueAt, now),
  }
}

function lateness(dueAt: number, now: number): string {
  return fromMs(Math.max(0, Math.round(now - dueAt)))
}

export function toStatsView({ now, exact, total, due, byStatus, queues }: Stats) {
  return { now: toInstantText(now), exact, total, due, byStatus, queues: queues.map((queue) => toQueueView(queue, now)) }
}

export function toHealthView(health: Health, version: string) {
  const { now, schemaVersion, lastTickAt, lastTickSource, tickIsStale, oldestDueAt } = health
  return {
    status: 'ok',
    version,
    schemaVersion,
    now: toInstantText(now),
    lastTickAt: nullableInstant(lastTickAt),
    lastTickSource,
    tickIsStale,
    oldestDueAt: nullableInstant(oldestDueAt),
    oldestDueAge: oldestDueAt === null ? null : lateness(oldestDueAt, now),
  }
}

export function toTickView(report: TickReport) {
  const { elapsedMs, nextDueAt, ...counts } = report
  return { ...counts, elapsed: fromMs(Math.round(elapsedMs)), nextDueAt: nullableInstant(nextDueAt) }
}

export function toApiKeyView(key: ApiKeyRecord) {
  return {
    id: key.id,
    name: key.name,
    tenant: key.tenant,
    scopes: key.scopes,
    createdAt: toInstantText(key.createdAt),
    expiresAt: optionalInstant(key.expiresAt),
    revokedAt: optionalInstant(key.revokedAt),
  }
}

/** No poller should ask more often than this, in seconds. */
const SOON_SECONDS = 1
/** A run that somebody else has to move may be moved at any time: look at least this often. */
const MAX_WAITING_SECONDS = 60
const MAX_DELAYED_SECONDS = 3_600

/** When to look again, in seconds: when the engine has to, at the earliest. Undefined once the run has ended. */
export function retryAfterOf(run: RunRecord, now: number): number | undefined {
  if (isTerminal(run.status)) return undefined
  if (run.status === 'running') return SOON_SECONDS
  const longest = run.status === 'pending' ? MAX_DELAYED_SECONDS : MAX_WAITING_SECONDS
  if (run.availableAt === null) return longest
  return Math.min(longest, Math.max(SOON_SECONDS, Math.ceil((run.availableAt - now) / 1_000)))
}
