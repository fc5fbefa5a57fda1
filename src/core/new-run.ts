/** From a call to a run that can be stored: the one way in, for spawns, children, schedules and webhooks alike. */
import { DEFAULT_PRIORITY, MAX_PAYLOAD_BYTES } from './bounds.ts'
import { firstDeadlineMs } from './deadlines.ts'
import type { AnyDefinition } from './definition.ts'
import { notAllowed, PawlError } from './errors.ts'
import { gatesOf } from './gate.ts'
import { uuidv7 } from './ids.ts'
import { JOB_STEP } from './job.ts'
import { type Json, type StoredJson, toStored, utf8Length } from './json.ts'
import { checkKey, checkTags } from './names.ts'
import type { Call } from './outcome.ts'
import { policyOf } from './policy.ts'
import type { Registry } from './registry.ts'
import { retentionOf } from './retention.ts'
import { DEFAULT_RETRY } from './retry.ts'
import { type ParseOptions, parse, parseOptional, type Schema } from './schema.ts'
import { type SpawnTerms, startOf, termsOf, withHoldings } from './spawn-terms.ts'
import type { NewRun, OnConflict, Receipt } from './store.ts'
import type { UniquePolicy } from './unique.ts'

/** A call as `with` makes it, or one that leaves the version to be the latest. */
export type NewRunCall = Omit<Call, 'version' | '__result'> & { readonly version: number | undefined }

export interface ToNewRunOptions {
  readonly registry: Registry
  readonly tenant: string
  readonly id?: string | undefined
  readonly receipt?: Receipt | undefined
  readonly origin?: unknown
  /** Headers inherited from a parent or a request; the call's own win. */
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly maxPayloadBytes?: number | undefined
  /** It is a child of a join: never gathered with others. */
  readonly isChild?: boolean | undefined
  /** Attempts where neither the call nor the definition says. */
  readonly maxAttempts?: number | undefined
}

/** What the call says, with the input read as a handler will read it. */
interface Asked {
  readonly call: NewRunCall
  readonly options: ToNewRunOptions
  readonly definition: AnyDefinition | undefined
  readonly queue: string
  readonly input: StoredJson
  readonly stored: Json
}

/**
 * Checks the input against its schema and resolves every default. The input is stored as sent. A definition that this build does not
 * know is refused unless the call says queue and version: then it is stored unchecked, for a build that does know it. A promise only
 * where something has to be waited for: a turn of the microtasks for each run of a batch is worth leaving out.
 * Throws, or rejects with, unknown_definition, invalid_input, invalid_state, payload_too_large, invalid_request. Costs no request.
 */
export function toNewRun(call: NewRunCall, options: ToNewRunOptions): NewRun | Promise<NewRun> {
  const definition = findDefinition(call, options.registry)
  const queue = call.queue ?? definition?.queue ?? ''
  const input = toStored(call.input, { field: 'input', maxBytes: maxBytesOf(options), code: 'invalid_input' })
  // what a handler will read: a Date has become text by then, and must be refused here if it cannot be that
  const stored: Json = JSON.parse(input.text)
  const asked: Asked = { call, options, definition, queue, input, stored }
  const parsed = definition && parseInput(definition, stored)
  if (parsed instanceof Promise || definition?.kind === 'machine' || definition?.unique) return waited(asked, parsed)
  return assemble(asked, { parsed, state: null, terms: plainTerms(asked) })
}

async function waited(asked: Asked, parsing: unknown): Promise<NewRun> {
  const { definition, options } = asked
  const parsed = await parsing
  const state = definition?.kind === 'machine' ? await initialStateOf(definition, parsed, maxBytesOf(options)) : null
  const terms = definition?.unique ? await uniqueTermsOf(asked, definition, definition.unique, parsed) : plainTerms(asked)
  return assemble(asked, { parsed, state, terms })
}

interface Found {
  readonly parsed: unknown
  readonly state: StoredJson | null
  readonly terms: SpawnTerms
}

function assemble({ call, options, definition, queue, input }: Asked, { parsed, state, terms }: Found): NewRun {
  const { registry, tenant } = options
  const queueIsCapped = registry.queues.get(queue)?.concurrency !== undefined
  const admission = askDefinition(call.definition, () => gatesOf({ definition, input: parsed, tenant, queue, queueIsCapped }))
  const retention = retentionOf(definition?.declaredRetention, registry.queues.get(queue)?.retention)
  const headers = headersOf(call, options)
  const key = call.key ?? (definition ? ownKeyOf(definition, parsed) : null)
  const policy = withHoldings(policyOf(definition, call), key === null ? undefined : definition?.keyHolding, terms.unique)
  return {
    id: options.id ?? uuidv7(),
    idIsCallers: options.id !== undefined,
    tenant,
    queue,
    definition: call.definition,
    // an unknown definition comes with its version
    version: definition?.version ?? call.version ?? 1,
    step: definition?.initial ?? JOB_STEP,
    priority: call.priority ?? definition?.priority ?? DEFAULT_PRIORITY,
    delayMs: terms.delayMs,
    runAt: terms.runAt,
    maxAttempts: call.maxAttempts ?? attemptsOf(definition, options.maxAttempts),
    retentionSeconds: toSeconds(retention.completed),
    failedRetentionSeconds: toSeconds(retention.failed),
    input: input.text,
    state: state?.text ?? null,
    payloadBytes: input.bytes + (state?.bytes ?? 0) + (headers === null ? 0 : utf8Length(headers)),
    key,
    gates: admission.gates,
    gateUnits: admission.units,
    policy,
    deadlineMs: policy === null ? null : firstDeadlineMs(policy),
    onConflict: terms.onConflict,
    tags: tagsOf(call, definition),
    headers,
    origin: options.origin === undefined ? null : toStored(options.origin, { field: 'origin', code: 'invalid_request' }).text,
    receipt: options.receipt ?? null,
  }
}

const KEEP: OnConflict = { kind: 'keep' }

function maxBytesOf({ maxPayloadBytes = MAX_PAYLOAD_BYTES }: ToNewRunOptions): number {
  return maxPayloadBytes
}

/** Where the definition does not say what becomes of a run that is there. */
function plainTerms({ call, options: { isChild = false } }: Asked): SpawnTerms {
  const { onConflict } = call
  const { delayMs, runAt } = startOf(call)
  return { delayMs, runAt, onConflict: isChild || onConflict === undefined ? KEEP : { kind: onConflict }, unique: null }
}

function uniqueTermsOf(asked: Asked, definition: AnyDefinition, policy: UniquePolicy, parsed: unknown): Promise<SpawnTerms> {
  const { call, queue, stored } = asked
  const { id, isChild = false } = asked.options
  const { name, version } = definition
  const ask = (identify: () => Json | null) => askDefinition(name, identify)
  return termsOf({ definition: name, version, queue, policy, stored, parsed, call, id, isChild, ask })
}

function findDefinition(call: NewRunCall, registry: Registry): AnyDefinition | undefined {
  const found = registry.find(call.definition, call.version)
  if (found !== undefined || (call.queue !== undefined && call.version !== undefined)) return found
  const known = registry.versions(call.definition)
  if (known.length > 0) return refuseDefinition('version', call.version, `one of ${known.join(', ')}`)
  const names = registry.names.slice(0, 20).join(', ')
  return refuseDefinition('definition', call.definition, names === '' ? 'none is registered' : `one of ${names}`)
}

function refuseDefinition(field: string, got: unknown, known: string): never {
  throw notAllowed('unknown_definition', { field, got, allowed: `${known} (for another build: queue and version, both said)` })
}

/**
 * The stored input as the definition's schema gives it, at spawn and for the handler alike. Nothing sent is stored as null, so a schema
 * that refuses null is asked about `undefined`. A job without a schema takes nothing. A promise only where the validator gives one.
 * @throws PawlError `invalid_input` with pointers.
 */
export function parseInput(definition: AnyDefinition, stored: unknown): unknown {
  const { input: schema, name } = definition
  const isNothing = stored === null || stored === undefined
  if (schema === undefined) {
    if (isNothing) return null
    throw notAllowed('invalid_input', { field: 'input', got: stored, allowed: `nothing: "${name}" declares no input` })
  }
  const options = { code: 'invalid_input', field: 'input' } as const
  return isNothing ? parseNothing(schema, options) : parse(schema, stored, options)
}

async function parseNothing(schema: Schema, options: ParseOptions): Promise<unknown> {
  const { issues } = await schema['~standard'].validate(null)
  return parse(schema, issues ? undefined : null, options)
}

async function initialStateOf(definition: AnyDefinition, input: unknown, maxBytes: number): Promise<StoredJson> {
  const { initialState, state: schema } = definition
  const options = { field: 'state', code: 'invalid_state' } as const
  // an input that is the state has just been parsed with the same schema
  if (!initialState && definition.input === schema) return toStored(input, { ...options, maxBytes })
  const first = initialState ? askDefinition(definition.name, () => initialState(input)) : input
  return toStored(await parseOptional(schema, first, options), { ...options, maxBytes })
}

/** What the user's own function says. A failure in it is a mistake of the definition, not of the request. */
function askDefinition<T>(name: string, ask: () => T): T {
  try {
    return ask()
  } catch (cause) {
    if (cause instanceof PawlError) throw cause
    const message = cause instanceof Error ? cause.message : String(cause)
    const detail = `A function of "${name}" (key, by, concurrencyKey, limits, initialState) threw: ${message.slice(0, 500)}`
    throw new PawlError('invalid_configuration', detail, { field: name, cause })
  }
}

function ownKeyOf(definition: AnyDefinition, input: unknown): string | null {
  const key = askDefinition(definition.name, () => definition.key?.(input))
  return key === undefined ? null : checkKey(key, { field: `"${definition.name}".key`, code: 'invalid_request' })
}

/** Seconds as an int4 holds them: 68 years at most. */
function toSeconds(ms: number): number {
  return Math.min(Math.ceil(ms / 1000), 2_147_483_647)
}

/** The definition's own word, then the client's default, then what a definition has when nobody says. */
function attemptsOf(definition: AnyDefinition | undefined, clientDefault: number | undefined): number {
  const declared = definition?.declaredRetry
  const own = definition?.retry.maxAttempts ?? DEFAULT_RETRY.maxAttempts
  return declared === 'none' || declared?.maxAttempts !== undefined ? own : (clientDefault ?? own)
}

function tagsOf(call: NewRunCall, definition: AnyDefinition | undefined): readonly string[] | null {
  if (call.tags === undefined && definition?.tags.length === 0) return null
  const tags = [...new Set([...(definition?.tags ?? []), ...(call.tags ?? [])])]
  return tags.length === 0 ? null : checkTags(tags, { field: 'tags', code: 'invalid_request' })
}

function headersOf(call: NewRunCall, options: ToNewRunOptions): string | null {
  if (call.headers === undefined && options.headers === undefined) return null
  const headers = { ...options.headers, ...call.headers }
  return Object.keys(headers).length === 0 ? null : JSON.stringify(headers)
}
