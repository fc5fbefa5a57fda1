/**
 * What a run may wait for besides signals of its own is a topic: an event by name, or the end of another run. A topic is one text wherever it
 * is kept: among the names of a wait, in the inbox once it was told, in `event_waits` until then. No signal may be called like one.
 */
import { notAllowed } from './errors.ts'
import { isUuid } from './ids.ts'
import { checkKey, checkName } from './names.ts'

const EVENT = 'event:'
const RUN = 'run:'

export function eventTopic(name: string): string {
  return EVENT + name
}

export function runTopic(id: string): string {
  return RUN + id
}

export function isTopic(name: string): boolean {
  return name.startsWith(EVENT) || name.startsWith(RUN)
}

/** The event that a topic stands for; undefined for anything else. */
export function eventOf(topic: string): string | undefined {
  return topic.startsWith(EVENT) ? topic.slice(EVENT.length) : undefined
}

/** The run whose end a topic stands for; undefined for anything else. */
export function awaitedRunOf(topic: string): string | undefined {
  return topic.startsWith(RUN) ? topic.slice(RUN.length) : undefined
}

/** A run that somebody waits for: by its id, or as the live run that has that key now. */
export type RunTarget = { readonly id: string } | { readonly definition: string; readonly key: string }

const endMark: unique symbol = Symbol.for('pawl.endOf')

/** The end of another run, for `waitFor`. Opaque. */
export interface EndOf {
  readonly [endMark]: true
  readonly target: RunTarget
}

/**
 * The end of another run of the same tenant, to be waited for without holding anything: `waitFor(endOf(id), { goto: 'go on' })`. The step
 * that follows finds its result, or its error, among `children()`. A run that has ended already answers at once. By key it is the live run that
 * has the key when the step ends. Costs one request more than another wait. Throws `invalid_outcome`; the step fails with `not_found`
 * when there is no such run.
 */
export function endOf(target: string | { readonly definition: { readonly name: string } | string; readonly key: string }): EndOf {
  return Object.freeze({ [endMark]: true as const, target: toTarget(target) })
}

export function isEndOf(value: unknown): value is EndOf {
  return typeof value === 'object' && value !== null && endMark in value
}

function toTarget(target: Parameters<typeof endOf>[0]): RunTarget {
  if (typeof target === 'string') {
    if (isUuid(target)) return { id: target }
    throw notAllowed('invalid_outcome', { field: 'endOf', got: target, allowed: 'the id of a run, or { definition, key }' })
  }
  const { definition, key } = target ?? {}
  const name = typeof definition === 'object' ? definition.name : definition
  return {
    definition: checkName(name, { field: 'endOf.definition', code: 'invalid_outcome' }),
    key: checkKey(key, { field: 'endOf.key', code: 'invalid_outcome' }),
  }
}
