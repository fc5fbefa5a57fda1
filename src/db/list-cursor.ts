import { PawlError } from '../core/errors.ts'
import type { ListOrder, ListPlace } from './statements/list-runs.ts'

/** Microseconds until the year 275760: the last instant that both a Date and Postgres hold. */
const MAX_MAJOR = 8_640_000_000_000_000_000n
const MAX_MINOR = 9_223_372_036_854_775_807n
const MAX_INT = 2_147_483_647n
const NUMBER = /^(?:0|[1-9]\d{0,18})$/
const BASE64URL = /^[A-Za-z0-9_-]{1,200}$/

/** Opaque to callers, and checked when it comes back: it is only a place in an order, never a permission. */
export function writeCursor(order: string, place: ListPlace): string {
  const text = JSON.stringify([order, String(place.major), String(place.minor)])
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')
}

/** @throws PawlError `malformed` for what `writeCursor` did not write for this order. */
export function readCursor(cursor: string, order: ListOrder | 'history'): ListPlace {
  const parts = decode(cursor)
  if (!Array.isArray(parts) || parts.length !== 3 || parts[0] !== order) throw badCursor()
  const [major, minor] = [readNumber(parts[1]), readNumber(parts[2])]
  const inTime = order === 'lane' || order === 'key' || order === 'notable'
  if (major > (inTime ? MAX_MAJOR : MAX_INT) || minor > (inTime ? MAX_MINOR : MAX_INT)) throw badCursor()
  return { major, minor }
}

function decode(cursor: string): unknown {
  if (!BASE64URL.test(cursor)) throw badCursor()
  try {
    return JSON.parse(atob(cursor.replaceAll('-', '+').replaceAll('_', '/')))
  } catch {
    throw badCursor()
  }
}

function readNumber(value: unknown): bigint {
  if (typeof value !== 'string' || !NUMBER.test(value)) throw badCursor()
  return BigInt(value)
}

function badCursor(): PawlError {
  const detail = 'cursor: it is not one that was answered for this list. Leave it out to start anew.'
  return new PawlError('malformed', detail, { field: 'cursor', allowed: 'the nextCursor of the page before' })
}
