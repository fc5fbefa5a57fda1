import {
  MAX_HEADER_NAME_LENGTH,
  MAX_HEADER_VALUE_LENGTH,
  MAX_HEADERS,
  MAX_KEY_LENGTH,
  MAX_NAME_LENGTH,
  MAX_TAG_LENGTH,
  MAX_TAGS,
} from './bounds.ts'
import { type ErrorCode, notAllowed } from './errors.ts'

/** Headers of a run: names are lower-cased, values are text. They travel with the run and reach its children. */
export type RunHeaders = Readonly<Record<string, string>>

export interface CheckOptions {
  /** What is checked, for the message. */
  readonly field: string
  /** Code of the error. Default `invalid_configuration`; the API passes `invalid_request`. */
  readonly code?: ErrorCode
}

/** Control characters, separators of lines, lone surrogates (with the u flag a pair is not one). */
const UNPRINTABLE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u
const HEADER_NAME = /^[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?$/

function printable(value: unknown, maxLength: number, options: CheckOptions): string {
  if (typeof value === 'string' && value.length >= 1 && value.length <= maxLength && !UNPRINTABLE.test(value)) return value
  const { field, code = 'invalid_configuration' } = options
  throw notAllowed(code, { field, got: value, allowed: `1 to ${maxLength} printable characters` })
}

/** A name of a definition, queue, step, signal, limit, schedule, hook or tenant: 1–200 printable characters, no space at the ends. */
export function checkName(value: unknown, options: CheckOptions): string {
  const name = printable(value, MAX_NAME_LENGTH, options)
  if (name === name.trim() && name !== '__proto__') return name
  const { field, code = 'invalid_configuration' } = options
  throw notAllowed(code, { field, got: value, allowed: 'a name without spaces at its ends, other than __proto__' })
}

/** A key, concurrency key or partition: 1–512 printable characters. */
export function checkKey(value: unknown, options: CheckOptions): string {
  return printable(value, MAX_KEY_LENGTH, options)
}

/** Tags: at most 32 of 1–128 printable characters; duplicates are dropped, order is kept. */
export function checkTags(value: unknown, options: CheckOptions): readonly string[] {
  const { field, code = 'invalid_configuration' } = options
  if (!Array.isArray(value) || value.length > MAX_TAGS) {
    throw notAllowed(code, { field, got: value, allowed: `a list of at most ${MAX_TAGS} tags` })
  }
  const tags = value.map((tag: unknown, index) => printable(tag, MAX_TAG_LENGTH, { field: `${field}[${index}]`, code }))
  return [...new Set(tags)]
}

/** Headers: at most 32; names are lower-cased tokens of 1–128 characters, values 0–2,048 printable characters. */
export function checkHeaders(value: unknown, options: CheckOptions): RunHeaders {
  const { field, code = 'invalid_configuration' } = options
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw notAllowed(code, { field, got: value, allowed: 'an object of texts' })
  }
  const entries = Object.entries(value)
  if (entries.length > MAX_HEADERS) {
    throw notAllowed(code, { field, got: `${entries.length} headers`, allowed: `at most ${MAX_HEADERS}` })
  }
  const headers: Record<string, string> = {}
  for (const [name, text] of entries)
    headers[checkHeaderName(name, { field, code })] = checkHeaderValue(text, `${field}.${name}`, code)
  return headers
}

function checkHeaderName(name: string, options: { field: string; code: ErrorCode }): string {
  const lower = name.toLowerCase()
  if (lower.length <= MAX_HEADER_NAME_LENGTH && HEADER_NAME.test(lower)) return lower
  const allowed = `names of 1 to ${MAX_HEADER_NAME_LENGTH} letters, digits, ".", "_" and "-"`
  throw notAllowed(options.code, { field: options.field, got: name, allowed })
}

function checkHeaderValue(value: unknown, field: string, code: ErrorCode): string {
  if (typeof value === 'string' && value.length <= MAX_HEADER_VALUE_LENGTH && !UNPRINTABLE.test(value)) return value
  throw notAllowed(code, { field, got: value, allowed: `text of at most ${MAX_HEADER_VALUE_LENGTH} printable characters` })
}

/** A whole number within bounds. */
export function checkInteger(value: unknown, params: CheckOptions & { readonly min: number; readonly max: number }): number {
  const { field, code = 'invalid_configuration', min, max } = params
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value
  throw notAllowed(code, { field, got: value, allowed: `a whole number from ${min} to ${max}` })
}
