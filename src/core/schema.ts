import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type ErrorCode, type ErrorItem, PawlError } from './errors.ts'
import { cleanText, type Json, toPointer } from './json.ts'

/** Any validator of the Standard Schema family (zod, valibot, arktype…): `I` is what it takes, `O` what it gives. */
export type Schema<I = unknown, O = unknown> = StandardSchemaV1<I, O>

export type In<S> = S extends StandardSchemaV1<infer I, unknown> ? I : never
export type Out<S> = S extends StandardSchemaV1<unknown, infer O> ? O : never

/** `T` with `never` in place of everything that JSON cannot hold. */
export type JsonOk<T> = T extends Json
  ? T
  : T extends (...args: never) => unknown
    ? never
    : T extends Date | ReadonlyMap<unknown, unknown> | ReadonlySet<unknown> | bigint | symbol
      ? never
      : T extends object
        ? {
            [K in keyof T]: T[K] extends undefined
              ? T[K]
              : JsonOk<Exclude<T[K], undefined>> | (undefined extends T[K] ? undefined : never)
          }
        : never

/** Refuses at compile time, with a readable name in the error, a schema whose value does not survive storage. */
export type Stored<S> =
  S extends StandardSchemaV1<infer I, infer O>
    ? [O] extends [I]
      ? [O] extends [JsonOk<O>]
        ? S
        : S & { 'pawl: this schema must produce JSON': never }
      : S & { 'pawl: schema input and output types must agree (no transforms in what is stored)': never }
    : never

export interface ParseOptions {
  /** Code of the error when the value does not match. */
  readonly code: ErrorCode
  /** What the value is, for the message: `input`, `state`, `result`… */
  readonly field: string
}

/**
 * The value as the schema gives it. A validator that works synchronously answers without a promise, so that the usual
 * case costs no turn of the event loop; `await` either. What the validator itself throws passes through.
 * @throws PawlError with `code` and one item (pointer, detail) per issue, at most 100.
 */
export function parse<S extends Schema>(schema: S, value: unknown, options: ParseOptions): Out<S> | Promise<Out<S>> {
  const result = schema['~standard'].validate(value)
  if (result instanceof Promise) return result.then((settled) => accept<S>(settled, options))
  return accept<S>(result, options)
}

/** The same for a schema that may be absent: then the value is given back as it is. */
export function parseOptional(schema: Schema | undefined, value: unknown, options: ParseOptions): unknown {
  return schema === undefined ? value : parse(schema, value, options)
}

const MAX_ISSUES = 100

function accept<S extends Schema>(result: StandardSchemaV1.Result<unknown>, options: ParseOptions): Out<S> {
  // the schema's own type says what it gives; Standard Schema erases it in `Schema`
  if (!result.issues) return result.value as Out<S>
  const errors: ErrorItem[] = result.issues
    .slice(0, MAX_ISSUES)
    .map((issue) => ({ pointer: toPointer(issue.path ?? []), detail: cleanText(issue.message).slice(0, 500) }))
  const first = errors[0] ?? { pointer: '', detail: 'not valid' }
  const where = first.pointer === '' ? options.field : `${options.field} at ${first.pointer}`
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : ''
  throw new PawlError(options.code, `${where}: ${first.detail}${more}.`, { field: options.field, errors })
}

/** True when the value is a validator of the Standard Schema family. */
export function isSchema(value: unknown): value is Schema {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false
  const standard = (value as { '~standard'?: { version?: unknown; validate?: unknown } })['~standard']
  return standard?.version === 1 && typeof standard.validate === 'function'
}
