/** What a step tells others: committed with its outcome or not at all, and told right after the commit. */
import {
  DEFAULT_EVENT_RETENTION_MS,
  MAX_DURATION_MS,
  MAX_PAYLOAD_BYTES,
  MAX_STEP_MESSAGES,
  MIN_EVENT_RETENTION_MS,
} from './bounds.ts'
import { type Duration, toMs } from './duration.ts'
import { type ErrorCode, notAllowed } from './errors.ts'
import { isUuid } from './ids.ts'
import { toStored } from './json.ts'
import { checkKey, checkName } from './names.ts'

/** An event of a step: as `pawl.emit` sends it. */
export interface EventMessage {
  readonly name: string
  readonly payload?: unknown
  /** How long it is there for those who come later. Default 7 days. */
  readonly retention?: Duration | undefined
}

/** A signal of a step: as `pawl.signal` sends it. One that finds no live run is dropped: the step has been committed by then. */
export interface SignalMessage {
  readonly to: { readonly id: string } | { readonly key: string; readonly definition?: string | undefined }
  readonly name: string
  readonly payload?: unknown
}

export interface MessageOptions {
  /** Events, emitted with this outcome's commit. */
  readonly emit?: readonly EventMessage[] | undefined
  /** Signals to other runs, sent with this outcome's commit. */
  readonly signal?: readonly SignalMessage[] | undefined
}

/** A message ready to be committed: the body is JSON text. */
export interface StepMessage {
  readonly kind: 'event' | 'signal'
  readonly name: string
  readonly payload: string
  readonly retentionMs: number | null
  readonly to: { readonly id: string } | { readonly key: string; readonly definition: string | null } | null
}

/** The messages of an outcome's options, checked. Undefined when there are none, as ever so often. Throws `invalid_outcome`. */
export function toMessages(options: MessageOptions | undefined): readonly StepMessage[] | undefined {
  if (options === undefined || (options.emit === undefined && options.signal === undefined)) return undefined
  const events = listOf(options.emit, 'emit')
  const signals = listOf(options.signal, 'signal')
  const count = events.length + signals.length
  if (count > MAX_STEP_MESSAGES) {
    const allowed = `at most ${MAX_STEP_MESSAGES} events and signals`
    throw notAllowed('invalid_outcome', { field: 'emit', got: `${count}`, allowed })
  }
  return count === 0 ? undefined : [...events.map(toEvent), ...signals.map(toSignal)]
}

/** How long an event is kept, in milliseconds. Throws the given code for what is no duration from a second up. */
export function toEventRetentionMs(retention: Duration | undefined, field: string, code: ErrorCode): number {
  if (retention === undefined) return DEFAULT_EVENT_RETENTION_MS
  return toMs(retention, field, { code, minMs: MIN_EVENT_RETENTION_MS, maxMs: MAX_DURATION_MS })
}

function listOf<T>(value: readonly T[] | undefined, field: string): readonly T[] {
  if (value === undefined || Array.isArray(value)) return value ?? []
  throw notAllowed('invalid_outcome', { field, got: value, allowed: 'a list' })
}

function toEvent(message: EventMessage): StepMessage {
  return {
    kind: 'event',
    ...namedPayload(message, 'emit'),
    retentionMs: toEventRetentionMs(message.retention, 'emit.retention', 'invalid_outcome'),
    to: null,
  }
}

function toSignal(message: SignalMessage): StepMessage {
  return { kind: 'signal', ...namedPayload(message, 'signal'), retentionMs: null, to: toAddress(message.to) }
}

function namedPayload(message: EventMessage | SignalMessage, field: string): Pick<StepMessage, 'name' | 'payload'> {
  const name = checkName(message?.name, { field: `${field}.name`, code: 'invalid_outcome' })
  const options = { field: `${field}.payload`, maxBytes: MAX_PAYLOAD_BYTES, code: 'invalid_outcome' } as const
  return { name, payload: toStored(message.payload, options).text }
}

function toAddress(to: SignalMessage['to']): StepMessage['to'] {
  if (typeof to === 'object' && to !== null && 'id' in to && isUuid(to.id)) return { id: to.id }
  if (typeof to !== 'object' || to === null || !('key' in to)) {
    throw notAllowed('invalid_outcome', { field: 'signal.to', got: to, allowed: '{ id } or { key, definition? }' })
  }
  const { key, definition } = to
  return {
    key: checkKey(key, { field: 'signal.to.key', code: 'invalid_outcome' }),
    definition:
      definition === undefined ? null : checkName(definition, { field: 'signal.to.definition', code: 'invalid_outcome' }),
  }
}
