import { MAX_DURATION_MS } from './bounds.ts'
import { type ErrorCode, notAllowed } from './errors.ts'

type Unit =
  | 'ms'
  | 's'
  | 'm'
  | 'h'
  | 'd'
  | 'w'
  | ' ms'
  | ' second'
  | ' seconds'
  | ' minute'
  | ' minutes'
  | ' hour'
  | ' hours'
  | ' day'
  | ' days'
  | ' week'
  | ' weeks'

/** A length of time: a number is milliseconds, a string bears its unit (`"500ms"`, `"90s"`, `"1 day"`, `"2 weeks"`). */
export type Duration = number | `${number}${Unit}`

const UNIT_MS: Readonly<Record<string, number>> = {
  ms: 1,
  millisecond: 1,
  milliseconds: 1,
  s: 1_000,
  second: 1_000,
  seconds: 1_000,
  m: 60_000,
  minute: 60_000,
  minutes: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  hours: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  days: 86_400_000,
  w: 604_800_000,
  week: 604_800_000,
  weeks: 604_800_000,
}

const PATTERN = /^(\d{1,15}(?:\.\d{1,9})?) ?([a-z]+)$/
const ALLOWED = 'milliseconds as a number, or a string with a unit (ms, s, m, h, d, w, or "1 day"), from 0 to 100 years'

export interface DurationBounds {
  readonly minMs?: number
  readonly maxMs?: number
  /** Code of the error, `invalid_configuration` by default; the API passes `invalid_request`. */
  readonly code?: ErrorCode
}

/**
 * Milliseconds of a duration, rounded to whole ones. Bounds are 0 and 100 years unless narrower ones are given.
 * @throws PawlError naming the field, what was got and what is allowed.
 */
export function toMs(duration: unknown, field: string, bounds: DurationBounds = {}): number {
  const { minMs = 0, maxMs = MAX_DURATION_MS, code = 'invalid_configuration' } = bounds
  const ms = parseMs(duration)
  if (ms === undefined || ms > MAX_DURATION_MS) throw notAllowed(code, { field, got: duration, allowed: ALLOWED })
  if (ms < minMs || ms > maxMs) {
    throw notAllowed(code, { field, got: duration, allowed: `${fromMs(minMs)} to ${fromMs(maxMs)}` })
  }
  return ms
}

function parseMs(duration: unknown): number | undefined {
  if (typeof duration === 'number') return Number.isFinite(duration) && duration >= 0 ? Math.round(duration) : undefined
  if (typeof duration !== 'string') return undefined
  const match = PATTERN.exec(duration)
  if (!match) return undefined
  const unit = match[2] as string
  if (!Object.hasOwn(UNIT_MS, unit)) return undefined
  return Math.round(Number(match[1]) * (UNIT_MS[unit] as number))
}

/** The canonical text of a duration in whole milliseconds, in the largest unit that divides it: `"1 day"`, `"90s"`, `"0s"`. */
export function fromMs(ms: number): string {
  if (ms === 0) return '0s'
  if (ms % 86_400_000 === 0) return ms === 86_400_000 ? '1 day' : `${ms / 86_400_000} days`
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000}h`
  if (ms % 60_000 === 0) return `${ms / 60_000}m`
  if (ms % 1_000 === 0) return `${ms / 1_000}s`
  return `${ms}ms`
}
