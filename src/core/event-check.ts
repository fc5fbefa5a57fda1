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
  if (schemas.length === 0) throw undeclared(definitions, name)
  const parsed = await Promise.all(schemas.map((schema) => parsePayload(schema, payload)))
  return parsed.length === 1 ? parsed[0] : payload
}

function undeclared(definitions: readonly AnyDefinition[], name: string) {
  const declared = [...new Set(definitions.flatMap((definition) => Object.keys(definition.events)))].slice(0, 20)
  const allowed = declared.length > 0 ? `one of ${declared.join(', ')}` : 'none'
  return notAllowed('invalid_event', { field: 'name', got: name, allowed })
}

const AS_EVENT = { code: 'invalid_event', field: 'payload' } as const

/** Nothing sent is stored as null: a schema that refuses null is asked about `undefined`. */
async function parsePayload(schema: Schema, payload: unknown): Promise<unknown> {
  if (payload !== null && payload !== undefined) return parse(schema, payload, AS_EVENT)
  const takesNull = !(await schema['~standard'].validate(null)).issues
  return parse(schema, takesNull ? null : undefined, AS_EVENT)
}
