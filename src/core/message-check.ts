import type { AnyDefinition } from './definition.ts'
import { notAllowed } from './errors.ts'
import { parse, type Schema } from './schema.ts'

/**
 * The payload to store of an event: as its schema gives it, or as sent when definitions declare it differently, each of which must take it. Refuses an
 * event that no definition of this build declares: nobody could ever wait for it.
 * @throws PawlError `invalid_event`, with pointers when it is the payload.
 */
export async function checkEvent(definitions: readonly AnyDefinition[], name: string, payload: unknown): Promise<unknown> {
  const schemas = [...new Set(definitions.flatMap((definition) => definition.events[name] ?? []))]
  if (schemas.length === 0) {
    const declared = definitions.flatMap((definition) => Object.keys(definition.events))
    throw undeclared('invalid_event', name, declared)
  }
  const parsed = await Promise.all(schemas.map((schema) => parsePayload(schema, payload, 'invalid_event')))
  return parsed.length === 1 ? parsed[0] : payload
}

/**
 * The payload to store of a signal that a step sends: as its schema gives it, or as sent when several definitions declare it, one of which must
 * take it. Its target is looked for after the commit, so what it is of is known only where the step says it.
 * @throws PawlError `invalid_signal`, with pointers when it is the payload.
 */
export async function checkStepSignal(
  definitions: readonly AnyDefinition[],
  { name, definition, payload }: { readonly name: string; readonly definition: string | null; readonly payload: unknown },
): Promise<unknown> {
  const candidates = definitions.filter((one) => definition === null || one.name === definition)
  const schemas = [...new Set(candidates.flatMap(({ signals }) => signals[name] ?? []))]
  if (schemas.length === 0) {
    const declared = candidates.flatMap(({ signals }) => Object.keys(signals))
    throw undeclared('invalid_signal', name, declared)
  }
  const parsed = await Promise.allSettled(schemas.map((schema) => parsePayload(schema, payload, 'invalid_signal')))
  const taken = parsed.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  if (taken.length > 0) return schemas.length === 1 ? taken[0] : payload
  const [refused] = parsed
  throw refused?.status === 'rejected' ? refused.reason : undefined
}

function undeclared(code: 'invalid_event' | 'invalid_signal', name: string, declared: readonly string[]) {
  const names = [...new Set(declared)].slice(0, 20)
  return notAllowed(code, { field: 'name', got: name, allowed: names.length > 0 ? `one of ${names.join(', ')}` : 'none' })
}

/** Nothing sent is stored as null: a schema that refuses null is asked about `undefined`. */
async function parsePayload(schema: Schema, payload: unknown, code: 'invalid_event' | 'invalid_signal'): Promise<unknown> {
  const options = { code, field: 'payload' } as const
  if (payload !== null && payload !== undefined) return parse(schema, payload, options)
  const takesNull = !(await schema['~standard'].validate(null)).issues
  return parse(schema, takesNull ? null : undefined, options)
}
