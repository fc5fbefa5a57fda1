import type { Context } from 'hono'
import type * as z from 'zod'
import { MAX_BODY_BYTES } from '../core/bounds.ts'
import { type ErrorItem, PawlError } from '../core/errors.ts'
import { parseJson, toPointer } from '../core/json.ts'

type Bytes = Uint8Array<ArrayBuffer>

/**
 * The body as bytes, counted while it is read: one that grows beyond 4 MiB is given up there, whatever its length claims.
 * @throws PawlError `payload_too_large` (413), `malformed` (400) when it breaks off.
 */
export async function readBytes(http: Context): Promise<Bytes> {
  const claimed = Number(http.req.header('content-length') ?? 0)
  if (claimed > MAX_BODY_BYTES) throw tooLarge(`${claimed} bytes`)
  // an application that we are mounted in may have read it before
  if (http.req.raw.bodyUsed) return checked(new Uint8Array(await http.req.arrayBuffer()))
  const { body } = http.req.raw
  if (body === null) return new Uint8Array(0)
  const reader = body.getReader()
  const chunks: Uint8Array[] = []
  let length = 0
  for (;;) {
    const { done, value } = await next(reader)
    if (done) return join(chunks, length)
    length += value.byteLength
    if (length > MAX_BODY_BYTES) {
      reader.cancel().catch(() => {})
      throw tooLarge(`more than ${MAX_BODY_BYTES} bytes`)
    }
    chunks.push(value)
  }
}

async function next(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<ReadableStreamReadResult<Uint8Array>> {
  try {
    return await reader.read()
  } catch (cause) {
    throw new PawlError('malformed', 'body: it broke off while it was read.', { field: 'body', cause })
  }
}

function join(chunks: readonly Uint8Array[], length: number): Bytes {
  const bytes = new Uint8Array(length)
  let at = 0
  for (const chunk of chunks) {
    bytes.set(chunk, at)
    at += chunk.byteLength
  }
  return bytes
}

function checked(bytes: Bytes): Bytes {
  if (bytes.byteLength > MAX_BODY_BYTES) throw tooLarge(`${bytes.byteLength} bytes`)
  return bytes
}

function tooLarge(got: string): PawlError {
  const allowed = `at most ${MAX_BODY_BYTES} bytes`
  return new PawlError('payload_too_large', `body: got ${got}, allowed is ${allowed}.`, { field: 'body', got, allowed })
}

/**
 * The JSON body, matched with the schema. An absent body is `{}` where the schema takes that.
 * @throws PawlError `unsupported_media_type` (415), `malformed` (400), `invalid_request` (422) with a pointer for each thing wrong.
 */
export async function readBody<S extends z.ZodType>(http: Context, schema: S): Promise<z.output<S>> {
  const bytes = await readBytes(http)
  if (bytes.byteLength === 0) return matchBody(schema, {})
  checkType(http)
  return matchBody(schema, parseJson(decode(bytes)))
}

/** A browser sends other types across origins without asking first; a body without a type is refused for the same reason. */
function checkType(http: Context): void {
  const encoding = http.req.header('content-encoding') ?? 'identity'
  const [type = '', ...parameters] = (http.req.header('content-type') ?? '').toLowerCase().split(';')
  const isJson = /^application\/(?:[\w.+-]+\+)?json$/.test(type.trim())
  const isUtf8 = parameters.every((parameter) => !/^\s*charset=/.test(parameter) || /^\s*charset="?utf-?8"?\s*$/.test(parameter))
  if (encoding === 'identity' && isJson && isUtf8) return
  const got = `${type.trim() || 'no content type'}${encoding === 'identity' ? '' : `, ${encoding}`}`.slice(0, 100)
  const allowed = 'application/json in UTF-8, not compressed'
  throw new PawlError('unsupported_media_type', `content-type: got ${got}, allowed is ${allowed}.`, {
    field: 'content-type',
    got,
    allowed,
  })
}

function decode(bytes: Bytes): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
  } catch (cause) {
    throw new PawlError('malformed', 'body: not UTF-8.', { field: 'body', cause })
  }
}

const MAX_ISSUES = 100

/** The value matched with the schema: `invalid_request` with a pointer for each thing wrong. */
export function matchBody<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const errors = result.error.issues.flatMap(toItems).slice(0, MAX_ISSUES)
  const [first = { pointer: '', detail: 'not valid' }] = errors
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : ''
  throw new PawlError('invalid_request', `body${first.pointer === '' ? '' : ` at ${first.pointer}`}: ${first.detail}${more}.`, {
    field: 'body',
    errors,
  })
}

function toItems(issue: z.core.$ZodIssue): ErrorItem[] {
  if (issue.code !== 'unrecognized_keys') return [{ pointer: toPointer(issue.path), detail: issue.message.slice(0, 300) }]
  return issue.keys.map((key) => ({ pointer: toPointer([...issue.path, key]), detail: 'no such field' }))
}
