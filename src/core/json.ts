import { MAX_JSON_DEPTH, MAX_PAYLOAD_BYTES } from './bounds.ts'
import { type ErrorCode, PawlError } from './errors.ts'

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json | undefined }

/** What a value becomes by being stored and read back: a `Date` is text, `undefined` (nothing returned) is `null`. */
export type ReadBack<T> = unknown extends T
  ? T
  : [T] extends [Json]
    ? T
    : undefined extends T
      ? ReadBack<Exclude<T, void>> | null
      : T extends Json
        ? T
        : T extends { toJSON(): infer J }
          ? ReadBack<J>
          : T extends object
            ? { [K in keyof T]: T[K] extends undefined ? T[K] : ReadBackMember<T[K]> }
            : never

type ReadBackMember<T> = undefined extends T ? ReadBack<Exclude<T, undefined>> | undefined : ReadBack<T>

export interface StoredJson {
  /** JSON text, safe for a jsonb column. */
  readonly text: string
  /** UTF-8 length of `text`. */
  readonly bytes: number
}

export interface ToStoredOptions {
  /** What the value is, for the error: `input`, `state`, `result`, `signal`… */
  readonly field: string
  /** `payload_too_large` above it. Default 1 MiB. */
  readonly maxBytes?: number
  /** Code for a value that does not survive. Default `invalid_input`. */
  readonly code?: ErrorCode
}

interface Walk {
  readonly field: string
  readonly code: ErrorCode
  readonly path: (string | number)[]
  readonly ancestors: object[]
  readonly maxBytes: number
  nodesLeft: number
  /** Set when a `toJSON` was met: it must be called once only, so a copy is written instead of the value. */
  copies: boolean
}

/**
 * Text of a value as `JSON.stringify` writes it, refusing whatever would read back differently: circular references,
 * BigInt, functions, symbols, NaN and Infinity, `undefined` inside arrays, Map, Set, Error and other built-in objects,
 * NUL and lone surrogates in strings and keys (jsonb refuses them), `__proto__` keys, more than 200 levels.
 * `toJSON` is honoured. Members that are `undefined` are left out; `undefined` itself is stored as `null`.
 * @throws PawlError with `code` and the JSON pointer of the culprit, or `payload_too_large`.
 */
export function toStored(value: unknown, options: ToStoredOptions): StoredJson {
  const { field, maxBytes = MAX_PAYLOAD_BYTES, code = 'invalid_input' } = options
  const scalar = storedScalar(value)
  if (scalar) return scalar
  // every node takes at least one byte of text, so more nodes than bytes cannot fit: this also bounds shared references
  const walk: Walk = { field, code, path: [], ancestors: [], maxBytes, nodesLeft: maxBytes, copies: false }
  let plain = checkNode(walk, value, '')
  if (!walk.copies) plain = value
  const text = JSON.stringify(plain)
  if (text.includes('\\u')) checkText(walk, plain)
  const bytes = utf8Length(text)
  if (bytes > maxBytes) throw tooLarge(field, `${bytes} bytes`, maxBytes)
  return { text, bytes }
}

const NULL_STORED: StoredJson = { text: 'null', bytes: 4 }

function storedScalar(value: unknown): StoredJson | undefined {
  if (value === undefined || value === null) return NULL_STORED
  if (typeof value === 'boolean') return value ? { text: 'true', bytes: 4 } : { text: 'false', bytes: 5 }
  if (typeof value !== 'number' || !Number.isFinite(value)) return undefined
  const text = JSON.stringify(value)
  return { text, bytes: text.length }
}

function tooLarge(field: string, got: string, maxBytes: number): PawlError {
  const allowed = `at most ${maxBytes} bytes of JSON`
  return new PawlError('payload_too_large', `${field}: got ${got}, allowed is ${allowed}.`, { field, got, allowed })
}

/** Checks one node and all below it. Answers what to serialise for it (the node itself unless a `toJSON` replaced something). */
function checkNode(walk: Walk, value: unknown, key: string | number): unknown {
  walk.nodesLeft -= 1
  switch (typeof value) {
    case 'string':
    case 'boolean':
    case 'undefined':
      return value
    case 'number':
      if (!Number.isFinite(value)) throw refuse(walk, `${value} is not a JSON number`)
      return value
    case 'object':
      return value === null ? null : checkObject(walk, value, key)
    default:
      throw refuse(walk, `a ${typeof value} cannot be stored`)
  }
}

function checkObject(walk: Walk, value: object, key: string | number): unknown {
  if (walk.nodesLeft < 0) throw tooLarge(walk.field, 'more values than that', walk.maxBytes)
  if (walk.ancestors.length >= MAX_JSON_DEPTH) {
    if (walk.ancestors.includes(value)) throw refuse(walk, 'the value contains itself')
    throw refuse(walk, `nested deeper than ${MAX_JSON_DEPTH} levels`)
  }
  const toJson = (value as { toJSON?: unknown }).toJSON
  if (typeof toJson === 'function') return checkReplaced(walk, value, toJson as (key: string) => unknown, key)
  walk.ancestors.push(value)
  const plain = Array.isArray(value) ? checkArray(walk, value) : checkMembers(walk, value)
  walk.ancestors.pop()
  return plain
}

function checkReplaced(walk: Walk, value: object, toJson: (key: string) => unknown, key: string | number): unknown {
  if (value instanceof Date && Number.isNaN(value.getTime())) throw refuse(walk, 'the date is invalid')
  const replaced = toJson.call(value, String(key))
  walk.copies = true
  if (replaced === undefined) throw refuse(walk, 'toJSON gave undefined')
  walk.ancestors.push(value)
  const plain =
    typeof replaced === 'object' && replaced !== null && !Array.isArray(replaced)
      ? { ...(checkMembers(walk, replaced) as object) }
      : checkNode(walk, replaced, key)
  walk.ancestors.pop()
  return plain
}

function checkArray(walk: Walk, value: readonly unknown[]): unknown {
  let copy: unknown[] | undefined
  for (let index = 0; index < value.length; index += 1) {
    const item = value[index]
    walk.path.push(index)
    if (item === undefined) throw refuse(walk, 'undefined in an array would read back as null')
    const plain = checkNode(walk, item, index)
    walk.path.pop()
    if (plain !== item && !copy) copy = value.slice(0, index)
    if (copy) copy.push(plain)
  }
  return copy ?? value
}

function checkMembers(walk: Walk, value: object): unknown {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) checkClass(walk, value)
  const members = value as Readonly<Record<string, unknown>>
  let copy: Record<string, unknown> | undefined
  for (const key of Object.keys(value)) {
    const member = members[key]
    walk.path.push(key)
    if (key === '__proto__') throw refuse(walk, 'a member may not be named __proto__')
    const plain = checkNode(walk, member, key)
    walk.path.pop()
    if (plain !== member) {
      copy ??= { ...members }
      copy[key] = plain
    }
  }
  return copy ?? value
}

/** Own classes are stored as their members; built-in objects would silently become `{}`. */
function checkClass(walk: Walk, value: object): void {
  const tag = Object.prototype.toString.call(value).slice(8, -1)
  if (tag !== 'Object') throw refuse(walk, `a ${tag} cannot be stored`)
}

/** Finds NUL and lone surrogates. Runs only when the text has an escape, so almost never. */
function checkText(walk: Walk, value: unknown): void {
  if (typeof value === 'string') checkString(walk, value)
  if (typeof value !== 'object' || value === null) return
  for (const key of Object.keys(value)) {
    walk.path.push(key)
    checkString(walk, key)
    checkText(walk, (value as Readonly<Record<string, unknown>>)[key])
    walk.path.pop()
  }
}

/** ES2024, in every host we run on (Node 20, workerd), not yet in the library types of the ES2023 target. */
type WithWellFormed = string & { isWellFormed(): boolean; toWellFormed(): string }

function isWellFormed(text: string): boolean {
  return (text as WithWellFormed).isWellFormed()
}

function checkString(walk: Walk, text: string): void {
  if (text.includes('\0')) throw refuse(walk, 'a string holds NUL (U+0000)')
  if (!isWellFormed(text)) throw refuse(walk, 'a string holds a lone surrogate')
}

function refuse(walk: Walk, detail: string): PawlError {
  const pointer = toPointer(walk.path)
  const where = pointer === '' ? walk.field : `${walk.field} at ${pointer}`
  return new PawlError(walk.code, `${where}: ${detail}.`, { field: walk.field, errors: [{ pointer, detail }] })
}

/** RFC 6901 pointer of a path. NUL and lone surrogates in names are replaced, so that the pointer itself can be stored and sent. */
export function toPointer(path: readonly (PropertyKey | { readonly key: PropertyKey })[]): string {
  let pointer = ''
  for (const part of path) {
    const key = String(typeof part === 'object' ? part.key : part)
    pointer += `/${cleanText(key).replaceAll('~', '~0').replaceAll('/', '~1')}`
  }
  return pointer
}

/** The text with NUL and lone surrogates replaced by U+FFFD: for messages and stacks, which must always be storable. */
export function cleanText(text: string): string {
  return (text as WithWellFormed).toWellFormed().replaceAll('\0', '\uFFFD')
}

const encoder = new TextEncoder()

/** Length of a text in UTF-8 bytes. */
export function utf8Length(text: string): number {
  if (text.length > 2_048) return encoder.encode(text).byteLength
  let bytes = text.length
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index)
    if (unit < 0x80) continue
    // a surrogate pair is 4 bytes in 2 units, so each of its units adds 1; other units above 0x7ff add 2
    bytes += unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 1 : 2
  }
  return bytes
}

export interface ParseJsonOptions {
  /** Levels allowed, at most and by default 200. */
  readonly maxDepth?: number
  readonly field?: string
}

/**
 * The value of a JSON text, refusing what could not be stored as it stands: NUL and lone surrogates, `__proto__` members,
 * deep nesting, numbers that a double cannot hold (`1e400`, integers that would be rounded).
 * @throws PawlError `malformed` for a text that is not JSON or nested too deep, `invalid_request` with a pointer for the rest.
 */
export function parseJson(text: string, options: ParseJsonOptions = {}): Json {
  const { maxDepth = MAX_JSON_DEPTH, field = 'body' } = options
  if (nestsDeeper(text, maxDepth)) throw tooDeep(field, maxDepth)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (cause) {
    throw new PawlError('malformed', `${field}: not JSON (${cleanText((cause as Error).message).slice(0, 200)}).`, {
      field,
      cause,
    })
  }
  const walk: ParsedWalk = {
    field,
    code: 'invalid_request',
    path: [],
    ancestors: [],
    maxBytes: 0,
    nodesLeft: 0,
    copies: false,
    checksText: text.includes('\\u') || !isWellFormed(text),
    largeInteger: false,
  }
  checkParsed(walk, value)
  if (walk.largeInteger) refuseRoundedIntegers(walk, text)
  return value as Json
}

function tooDeep(field: string, maxDepth: number): PawlError {
  return new PawlError('malformed', `${field}: nested deeper than ${maxDepth} levels.`, { field })
}

const QUOTE = 34
const BACKSLASH = 92

/** Looks at the text alone: `JSON.parse` takes seconds of CPU over millions of brackets before anybody could refuse them. */
function nestsDeeper(text: string, maxDepth: number): boolean {
  let depth = 0
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index)
    if (unit === QUOTE) {
      for (index += 1; index < text.length && text.charCodeAt(index) !== QUOTE; index += 1) {
        if (text.charCodeAt(index) === BACKSLASH) index += 1
      }
    } else if (unit === 91 || unit === 123) {
      depth += 1
      if (depth > maxDepth) return true
    } else if (unit === 93 || unit === 125) depth -= 1
  }
  return false
}

interface ParsedWalk extends Walk {
  readonly checksText: boolean
  largeInteger: boolean
}

function checkParsed(walk: ParsedWalk, value: unknown): void {
  if (typeof value === 'string' && walk.checksText) checkString(walk, value)
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw refuse(walk, 'the number is beyond the range of a double')
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) walk.largeInteger = true
    return
  }
  if (typeof value !== 'object' || value === null) return
  for (const key of Object.keys(value)) {
    walk.path.push(key)
    if (key === '__proto__') throw refuse(walk, 'a member may not be named __proto__')
    if (walk.checksText) checkString(walk, key)
    checkParsed(walk, (value as Readonly<Record<string, unknown>>)[key])
    walk.path.pop()
  }
}

/** Strings come first in the pattern so that digits inside them are skipped. */
const STRING_OR_LONG_INTEGER = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,400}(?![\d.eE])/g

function refuseRoundedIntegers(walk: Walk, text: string): void {
  for (const [token] of text.matchAll(STRING_OR_LONG_INTEGER)) {
    if (token.startsWith('"') || BigInt(Number(token)) === BigInt(token)) continue
    throw refuse(walk, `the number ${token.slice(0, 40)} would lose digits: send it as a string`)
  }
}
