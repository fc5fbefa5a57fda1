/** From a call to a run that can be stored: the one way in, for spawns, children, schedules and webhooks alike. */
import { DEFAULT_PRIORITY, MAX_PAYLOAD_BYTES } from './bounds.ts'
import type { AnyDefinition } from './definition.ts'
import { notAllowed, PawlError } from './errors.ts'
import { gatesOf } from './gate.ts'
import { uuidv7 } from './ids.ts'
import { toStored } from './json.ts'
import { checkKey } from './names.ts'
import type { Call } from './outcome.ts'
import type { Registry } from './registry.ts'
import { parseOptional } from './schema.ts'
import type { NewRun, Receipt } from './store.ts'

export interface ToNewRunOptions {
  readonly registry: Registry
  readonly tenant: string
  readonly id?: string | undefined
  readonly receipt?: Receipt | undefined
  readonly origin?: unknown
  /** Headers inherited from a parent or a request; the call's own win. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly maxPayloadBytes?: number | undefined
}

/**
 * Checks the input against its schema and resolves every default. The input is stored as sent. Throws unknown_definition,
 * invalid_input, invalid_state, payload_too_large, invalid_request. Costs no request.
 */
export async function toNewRun(call: Call, options: ToNewRunOptions): Promise<NewRun> {
  const { registry, tenant, maxPayloadBytes = MAX_PAYLOAD_BYTES } = options
  const definition = registry.find(call.definition, call.version)
  if (definition === undefined) throw unknownDefinition(call, registry)
  const input = toStored(call.input ?? null, { field: 'input', maxBytes: maxPayloadBytes, code: 'invalid_input' })
  const parsed = await parseOptional(definition.input, call.input ?? null, { code: 'invalid_input', field: 'input' })
  const state = await initialStateOf(definition, parsed, maxPayloadBytes)
  const queue = call.queue ?? definition.queue
  return {
    id: options.id ?? uuidv7(),
    idIsCallers: options.id !== undefined,
    tenant,
    queue,
    definition: definition.name,
    version: definition.version,
    step: definition.initial,
    priority: call.priority ?? definition.priority ?? DEFAULT_PRIORITY,
    delayMs: call.delayMs ?? null,
    runAt: call.at === undefined ? null : Date.parse(call.at),
    maxAttempts: call.maxAttempts ?? definition.retry.maxAttempts,
    retentionSeconds: toSeconds(definition.retentionMs.completed),
    failedRetentionSeconds: toSeconds(definition.retentionMs.failed),
    input: input.text,
    state: state?.text ?? null,
    payloadBytes: input.bytes + (state?.bytes ?? 0),
    key: keyOf(call, definition, parsed),
    gates: gatesOf({ definition, input: parsed, tenant, queue, queueIsCapped: registry.queues.get(queue)?.concurrency !== undefined }),
    tags: tagsOf(call, definition),
    headers: headersOf(call, options),
    origin: options.origin === undefined ? null : toStored(options.origin, { field: 'origin', code: 'invalid_request' }).text,
    receipt: options.receipt ?? null,
  }
}

function unknownDefinition(call: Call, registry: Registry): PawlError {
  const known = registry.versions(call.definition)
  if (known.length > 0) return notAllowed('unknown_definition', { field: 'version', got: call.version, allowed: `one of ${known.join(', ')}` })
  const names = registry.names.slice(0, 20).join(', ')
  return notAllowed('unknown_definition', { field: 'definition', got: call.definition, allowed: names === '' ? 'none is registered' : `one of ${names}` })
}

async function initialStateOf(definition: AnyDefinition, input: unknown, maxBytes: number): Promise<{ readonly text: string; readonly bytes: number } | null> {
  if (definition.kind !== 'machine') return null
  const first = definition.initialState ? definition.initialState(input) : input
  const state = await parseOptional(definition.state, first, { code: definition.initialState ? 'invalid_state' : 'invalid_input', field: 'state' })
  return toStored(state, { field: 'state', maxBytes, code: 'invalid_state' })
}

/** Seconds as an int4 holds them: 68 years at most. */
function toSeconds(ms: number): number {
  return Math.min(Math.ceil(ms / 1000), 2_147_483_647)
}

function keyOf(call: Call, definition: AnyDefinition, input: unknown): string | null {
  const key = call.key ?? definition.key?.(input)
  return key === undefined ? null : checkKey(key, { field: 'key', code: 'invalid_request' })
}

function tagsOf(call: Call, definition: AnyDefinition): readonly string[] | null {
  const tags = [...new Set([...definition.tags, ...(call.tags ?? [])])]
  return tags.length === 0 ? null : tags
}

function headersOf(call: Call, options: ToNewRunOptions): string | null {
  const headers = { ...options.headers, ...call.headers }
  return Object.keys(headers).length === 0 ? null : JSON.stringify(headers)
}
