/** Whether a signal may be sent, as far as the definitions of this build can say. */
import type { SignalCall } from '../core/calls.ts'
import type { AnyDefinition } from '../core/definition.ts'
import { notAllowed, PawlError } from '../core/errors.ts'
import { isUuid } from '../core/ids.ts'
import { checkKey, checkName } from '../core/names.ts'
import type { Registry } from '../core/registry.ts'
import { parse, type Schema } from '../core/schema.ts'
import type { RunRecord } from '../core/store.ts'

export interface CheckSignalParams {
  readonly call: SignalCall
  /** The payload as it will be stored and read back. */
  readonly payload: unknown
  readonly registry: Registry
  /** Reads the target. Asked only when definitions disagree about the payload or none declares the signal, and only for a target named by id. */
  readonly readTarget: (id: string) => Promise<Pick<RunRecord, 'definition' | 'version'> | null>
}

/**
 * The payload to store: as the schema gives it when it is clear which one counts, as sent when several do. Refuses a signal that no
 * definition it may be meant for declares, or whose payload none of them takes.
 * @throws PawlError `invalid_request`, `unknown_definition`, `invalid_signal` with pointers, `no_target`.
 */
export async function checkSignal(params: CheckSignalParams): Promise<unknown> {
  const { call, payload, registry } = params
  const name = checkName(call.name, { field: 'name', code: 'invalid_request' })
  const candidates = candidatesFor(call.to, registry)
  const schemas = [...new Set(candidates.flatMap((definition) => definition.signals[name] ?? []))]
  const [only] = schemas
  if (only === undefined) return forAnotherBuild(params, name, candidates)
  if (schemas.length === 1) return parsePayload(only, payload)
  const results = await Promise.allSettled(schemas.map((schema) => parsePayload(schema, payload)))
  const refusals = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []))
  if (refusals.length === results.length) throw refusals[0]
  if (refusals.length === 0 || !('id' in call.to)) return payload
  return parseForTarget(params, call.to.id, name)
}

/** No definition here declares it. A run of a definition that this build does not have is another build's to read: while it rolls out. */
async function forAnotherBuild(params: CheckSignalParams, name: string, candidates: readonly AnyDefinition[]): Promise<unknown> {
  const { call, payload, registry, readTarget } = params
  const target = 'id' in call.to ? await readTarget(call.to.id) : null
  if (target !== null && registry.find(target.definition, target.version) === undefined) return payload
  throw undeclared(name, candidates)
}

function candidatesFor(to: SignalCall['to'], registry: Registry): readonly AnyDefinition[] {
  if ('id' in to) {
    // an id that is none addresses nothing, like one that is unknown
    if (!isUuid(to.id)) throw new PawlError('no_target', 'No live run has this id.', { field: 'to.id' })
    return registry.definitions
  }
  checkKey(to.key, { field: 'to.key', code: 'invalid_request' })
  if (to.definition === undefined) return registry.definitions
  const named = registry.definitions.filter((definition) => definition.name === to.definition)
  if (named.length > 0) return named
  const allowed = registry.names.length === 0 ? 'none is registered' : `one of ${registry.names.slice(0, 20).join(', ')}`
  throw notAllowed('unknown_definition', { field: 'to.definition', got: to.definition, allowed })
}

function undeclared(name: string, candidates: readonly AnyDefinition[]): PawlError {
  const declared = [...new Set(candidates.flatMap((definition) => Object.keys(definition.signals)))].slice(0, 20)
  return notAllowed('invalid_signal', {
    field: 'name',
    got: name,
    allowed: declared.length > 0 ? `one of ${declared.join(', ')}` : 'none',
  })
}

const AS_SIGNAL = { code: 'invalid_signal', field: 'payload' } as const

/** Nothing sent is stored as null: a schema that refuses null is asked about `undefined`. */
async function parsePayload(schema: Schema, payload: unknown): Promise<unknown> {
  if (payload !== null) return parse(schema, payload, AS_SIGNAL)
  const takesNull = !(await schema['~standard'].validate(null)).issues
  return parse(schema, takesNull ? null : undefined, AS_SIGNAL)
}

/** Two definitions declare the signal differently, so it matters which one the run is of. */
async function parseForTarget({ payload, registry, readTarget }: CheckSignalParams, id: string, name: string): Promise<unknown> {
  const target = await readTarget(id)
  if (target === null) throw new PawlError('no_target', `No live run has the id ${id}.`, { field: 'to.id', got: id })
  const definition = registry.find(target.definition, target.version)
  // a run of another build: its own build reads the signal
  if (definition === undefined) return payload
  const schema = definition.signals[name]
  if (schema === undefined) throw undeclared(name, [definition])
  return parsePayload(schema, payload)
}
