import { Cron } from 'croner'
import { notAllowed, PawlError } from './errors.ts'
import { cleanText } from './json.ts'

/**
 * The first slot of a cron expression (five fields, minute first, or a nickname such as `@daily`) strictly after `after`,
 * or `undefined` when there is none.
 *
 * Clocks that change: an expression with fixed minutes and hours fires once per day that it names. In a gap (02:30 when
 * clocks go from 02:00 to 03:00) it fires at the first instant after the gap; in an overlap at the first of the two
 * instants. An expression with `*` for the minute or the hour follows real time: each instant of an overlap, none in a gap.
 * @throws PawlError `invalid_configuration` for an expression or time zone that is not one.
 */
export function nextSlot(expression: string, timeZone: string, after: Date): Date | undefined {
  return toCron(expression, timeZone).nextRun(after) ?? undefined
}

/** Any day will do: whether an expression is valid, and fires at all, does not depend on it. Workers have no clock while loading. */
const ANY_DAY = new Date(Date.UTC(2026, 0, 1))

/** Refuses, when a definition is made, an expression that is invalid or never fires, and an unknown time zone. */
export function checkCron(expression: string, timeZone: string, field: string): void {
  if (typeof timeZone !== 'string' || !isTimeZone(timeZone)) {
    throw notAllowed('invalid_configuration', { field: `${field}.timeZone`, got: timeZone, allowed: 'an IANA time zone' })
  }
  if (nextSlot(expression, timeZone, ANY_DAY) === undefined) {
    throw notAllowed('invalid_configuration', { field, got: expression, allowed: 'an expression that fires at some time' })
  }
}

function toCron(expression: string, timeZone: string): Cron {
  try {
    return new Cron(expression, { timezone: timeZone, paused: true, mode: '5-part', fixedTimeRule: 'no-wildcard' })
  } catch (cause) {
    const reason = cleanText(cause instanceof Error ? cause.message : String(cause)).slice(0, 200)
    const allowed = 'five cron fields (minute hour day month weekday)'
    const detail = `cron expression ${JSON.stringify(String(expression).slice(0, 60))}: ${reason}; allowed are ${allowed}.`
    throw new PawlError('invalid_configuration', detail, { field: 'cron', got: String(expression).slice(0, 60), allowed, cause })
  }
}

function isTimeZone(timeZone: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone })
    return true
  } catch {
    return false
  }
}
