/** Why a run is not moving: one reason, from the facts that one look at the database gives. */
import { partsOf } from './gate.ts'
import type { Registry } from './registry.ts'
import { isTerminal, type Status } from './status.ts'
import { awaitedRunOf, eventOf, isTopic } from './topics.ts'

/** Work that has been due for so long while no tick was noted is not late but forgotten. Ticks are noted once a minute. */
export const TICK_IS_STALE_MS = 120_000

/** What the database says about a run, in one snapshot. Instants are epoch milliseconds. */
export interface ExplainRecord {
  readonly now: number
  readonly status: Status
  readonly definition: string
  readonly version: number
  readonly queue: string
  readonly hold: string | null
  readonly holdDetail: { readonly by?: string; readonly since?: string; readonly detail?: string } | null
  readonly step: string
  readonly losses: number
  readonly timerAt: number | null
  readonly availableAt: number
  readonly updatedAt: number
  readonly finishedAt: number | null
  readonly blockedOn: string | null
  readonly awaits: readonly string[] | null
  /** `event:…` and `run:…`, as it waits for them. */
  readonly topics: readonly string[]
  readonly join: { readonly remaining: number; readonly ids: readonly string[] } | null
  /** Itself first: each waits for the end of the next, the last for its own. */
  readonly circle: readonly string[] | null
  readonly uncertainty: unknown
  readonly leaseUntil: number | null
  /** The pauses of its queue and definition, for its tenant or for all. */
  readonly pauses: readonly { readonly kind: string; readonly by: string | null; readonly since: number }[]
  readonly gate: {
    /** Units that are held of it, and those that this run asks for. */
    readonly held: number
    readonly units: number
    /** Null: no slots, a rate alone. */
    readonly capacity: number | null
    readonly isRate: boolean
    readonly dueAt: number | null
    readonly holders: readonly string[]
  } | null
  /** Runs of its lane that come before it, counted up to a bound; null: it is not in line. */
  readonly ahead: number | null
  readonly lastTickAt: number | null
  readonly lastTickSource: string | null
}

interface Common {
  /** A sentence for people. */
  readonly detail: string
  /** Epoch milliseconds: since when this has been so, as far as it is known. */
  readonly since: number
  /** When it ends by itself, if it does. */
  readonly until?: number
}

interface Circle {
  /** Runs that wait for each other's ends, this one first: each for the next, the last for it. Nothing that they do can end it. */
  readonly circle?: readonly string[]
}

/** One reason; the members beside it are those that say which. */
export type Explanation = Common &
  (
    | { readonly reason: 'ended' | 'uncertain'; readonly status: Status }
    | { readonly reason: 'running'; readonly step: string }
    | { readonly reason: 'run_paused' | 'queue_paused' | 'definition_paused'; readonly by?: string }
    | { readonly reason: 'mismatch' | 'environment'; readonly held: unknown }
    | { readonly reason: 'not_due' }
    | { readonly reason: 'no_code'; readonly definition: string; readonly version: number; readonly known: readonly number[] }
    | {
        readonly reason: 'gate_full'
        readonly limit: string
        readonly partition?: string
        /** Units there are, units that are held, and units that this run takes of them (its weight). */
        readonly capacity: number
        readonly held: number
        readonly units: number
        /** Runs of this tenant that hold some, ten at most. */
        readonly holders: readonly string[]
      }
    | { readonly reason: 'rate'; readonly limit: string; readonly partition?: string }
    | { readonly reason: 'waiting_signal' | 'waiting_event'; readonly names: readonly string[] }
    | ({ readonly reason: 'waiting_run'; readonly names: readonly string[] } & Circle)
    | ({ readonly reason: 'waiting_children'; readonly remaining: number; readonly children: readonly string[] } & Circle)
    | { readonly reason: 'quarantine'; readonly losses: number; readonly ahead: number }
    | { readonly reason: 'no_tick'; readonly lastTickAt: number | null; readonly source: string | null }
    | { readonly reason: 'behind_others' | 'due'; readonly ahead: number }
  )

export type ExplainReason = Explanation['reason']

/** The reason that keeps it from moving now. Of several it is the one that would go on when the others were gone. */
export function explainRecord(record: ExplainRecord, registry: Pick<Registry, 'find' | 'versions'>): Explanation {
  const { status, updatedAt, finishedAt } = record
  if (isTerminal(status)) return { reason: 'ended', status, since: finishedAt ?? updatedAt, detail: `It is ${status}.` }
  if (record.hold !== null) return held(record, record.hold)
  if (status === 'uncertain') {
    return {
      reason: 'uncertain',
      status,
      since: updatedAt,
      detail: 'What became of its last attempt is not known: it waits for a decision (resolve).',
    }
  }
  if (status === 'running') return running(record)
  if (status === 'waiting') return waiting(record)
  return pending(record, registry)
}

function byWhom(by: string | null | undefined): string {
  return by ? ` by ${by}` : ''
}

function held({ hold, holdDetail, updatedAt, timerAt }: ExplainRecord, reason: string): Explanation {
  const since = Date.parse(holdDetail?.since ?? '') || updatedAt
  const by = holdDetail?.by
  if (reason === 'paused')
    return { reason: 'run_paused', since, ...(by && { by }), detail: `It was paused${byWhom(by)}: resume it.` }
  if (reason === 'environment') {
    const detail = 'It belongs to another environment than the one that would run it.'
    return { reason: 'environment', since, ...(timerAt !== null && { until: timerAt }), held: { hold, ...holdDetail }, detail }
  }
  const what = holdDetail?.detail ?? 'Its history does not fit the code.'
  const detail = `${what} Deploy code that fits: it is looked at again by itself, or at once when it is resumed.`
  // from now and then: whether the code fits by then nobody knows
  return { reason: 'mismatch', since, held: { hold, ...holdDetail }, detail, ...(timerAt !== null && { until: timerAt }) }
}

function running({ step, updatedAt, leaseUntil }: ExplainRecord): Explanation {
  const lease = leaseUntil === null ? {} : { until: leaseUntil }
  const detail = `Step "${step}" is running; if its host is gone, it is taken up again after its lease.`
  return { reason: 'running', step, since: updatedAt, ...lease, detail }
}

function waiting({ awaits, topics, join, circle, timerAt, updatedAt }: ExplainRecord): Explanation {
  const common = { since: updatedAt, ...(timerAt !== null && { until: timerAt }) }
  const inCircle = circle === null ? {} : { circle }
  if (join) {
    const { remaining, ids } = join
    const detail = `It waits for ${remaining} more of its children to end.${ofCircle(circle)}`
    return { reason: 'waiting_children', remaining, children: ids, ...inCircle, ...common, detail }
  }
  const events = topics.flatMap((topic) => eventOf(topic) ?? [])
  const runs = topics.flatMap((topic) => awaitedRunOf(topic) ?? [])
  const signals = (awaits ?? []).filter((name) => !isTopic(name))
  const what = [
    ...(runs.length > 0 ? [`the end of ${runs.join(' or ')}`] : []),
    ...(events.length > 0 ? [`the event ${quoted(events)}`] : []),
    ...(signals.length > 0 ? [`the signal ${quoted(signals)}`] : []),
  ]
  const detail = `It waits for ${what.join(', for ')}.${ofCircle(circle)}`
  if (runs.length > 0) return { reason: 'waiting_run', names: runs, ...inCircle, ...common, detail }
  if (events.length > 0) return { reason: 'waiting_event', names: events, ...common, detail }
  return { reason: 'waiting_signal', names: signals, ...common, detail }
}

function ofCircle(circle: readonly string[] | null): string {
  if (circle === null) return ''
  const round = [...circle, circle[0]].join(', which waits for ')
  return ` They wait for each other: ${round}. Only what comes from elsewhere ends it: a signal, an event, a timeout or a cancellation of one of them.`
}

function quoted(names: readonly string[]): string {
  return names.map((name) => JSON.stringify(name)).join(' or ')
}

function pending(record: ExplainRecord, registry: Pick<Registry, 'find' | 'versions'>): Explanation {
  const { now, pauses, timerAt, updatedAt, definition, version, losses } = record
  const [pause] = pauses
  if (pause) {
    const reason = pause.kind === 'queue' ? 'queue_paused' : 'definition_paused'
    const name = pause.kind === 'queue' ? record.queue : definition
    const detail = `The ${pause.kind} "${name}" was paused${byWhom(pause.by)}: resume it.`
    return { reason, since: pause.since, ...(pause.by !== null && { by: pause.by }), detail }
  }
  if (timerAt !== null && timerAt > now) {
    const why = losses > 0 ? 'It lost its host and pauses' : 'It is not due'
    return { reason: 'not_due', since: updatedAt, until: timerAt, detail: `${why} until ${new Date(timerAt).toISOString()}.` }
  }
  if (!registry.find(definition, version)) {
    const known = registry.versions(definition)
    const has = known.length > 0 ? `it has version ${known.join(', ')}` : 'it has none of that name'
    const detail = `This build has no code for "${definition}" version ${version}: ${has}.`
    return { reason: 'no_code', definition, version, known, since: record.availableAt, detail }
  }
  return record.blockedOn === null ? inLine(record) : blocked(record, record.blockedOn)
}

function blocked({ gate, availableAt }: ExplainRecord, name: string): Explanation {
  const { limit, partition, words } = partsOf(name)
  const place = { limit, ...(partition !== '' && { partition }) }
  const { held = 0, units = 1, holders = [], isRate = false, dueAt = null } = gate ?? {}
  const capacity = gate === null ? 1 : gate.capacity
  const isFull = capacity !== null && held >= capacity
  if (isRate && !isFull) {
    const until = dueAt === null ? {} : { until: dueAt }
    const some = units > 1 ? `the ${units} tokens that it takes` : 'a token'
    return { reason: 'rate', ...place, since: availableAt, ...until, detail: `${words} does not have ${some} for it yet.` }
  }
  const slots = capacity ?? 1
  const by = holders.length > 0 ? `, held by ${holders.join(', ')}` : ''
  const detail = `${words} lets ${slots} run at once and ${room(slots - held, units)}${by}.`
  return { reason: 'gate_full', ...place, capacity: slots, held, units, holders, since: availableAt, detail }
}

function room(free: number, units: number): string {
  if (free <= 0) return 'is full'
  return units > free
    ? `has room for ${free} more, of which this run takes ${units}`
    : `has room for ${free} more: who comes before it is let in first`
}

function inLine({ now, availableAt, losses, ahead, lastTickAt, lastTickSource, timerAt }: ExplainRecord): Explanation {
  const since = Math.max(availableAt, timerAt ?? 0)
  const isForgotten = now - since > TICK_IS_STALE_MS && (lastTickAt === null || now - lastTickAt > TICK_IS_STALE_MS)
  if (isForgotten) {
    const seen = lastTickAt === null ? 'never' : `last at ${new Date(lastTickAt).toISOString()}`
    const detail = `It is due, and nobody ticks: a tick was seen ${seen}.`
    return { reason: 'no_tick', since: Math.max(since, lastTickAt ?? 0), lastTickAt, source: lastTickSource, detail }
  }
  const before = ahead ?? 0
  if (losses > 0) {
    const detail = `It has lost its host ${losses} times, so it is run alone, when nothing else is in hand.`
    return { reason: 'quarantine', losses, ahead: before, since, detail }
  }
  if (before > 0) return { reason: 'behind_others', ahead: before, since, detail: `It is due, behind ${before} others.` }
  return { reason: 'due', ahead: 0, since, detail: 'It is due, and the next tick takes it.' }
}
