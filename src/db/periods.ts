/** Periods by which an installation may be partitioned: which range of run ids each has, since a UUIDv7 begins with its time. */

export type Period = 'day' | 'week' | 'month'

export const PERIODS: readonly Period[] = ['day', 'week', 'month']

const DAY_MS = 86_400_000

/**
 * How long after its retention a run of a partitioned installation is deleted by itself, in days: two periods. By then its partition has
 * been dropped, or something keeps it.
 */
const GRACE_DAYS: Readonly<Record<Period, number>> = { day: 2, week: 14, month: 62 }

/** That grace, as SQL; nothing on an installation with plain tables. */
export function graceOf(schema: string): string {
  const cases = PERIODS.map((period) => `WHEN '${period}' THEN interval '${GRACE_DAYS[period]} days'`)
  return `(SELECT CASE m.partitioned_by ${cases.join(' ')} ELSE interval '0' END FROM ${schema}.meta m)`
}

/** When the period begins that holds this instant, epoch milliseconds. In UTC; weeks begin on Mondays. */
export function startOf(period: Period, ms: number): number {
  const date = new Date(ms)
  const day = Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate())
  if (period === 'day') return day
  if (period === 'week') return day - ((date.getUTCDay() + 6) % 7) * DAY_MS
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1)
}

/** When the next period begins. */
export function endOf(period: Period, ms: number): number {
  const start = startOf(period, ms)
  if (period !== 'month') return start + (period === 'day' ? 1 : 7) * DAY_MS
  const date = new Date(start)
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1)
}

/** The least UUID of that instant. `n`: the n-th behind it, which no UUIDv7 is, since its version is 0. */
export function leastId(ms: number, n = 0): string {
  const time = ms.toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-0000-0000-${n.toString(16).padStart(12, '0')}`
}

/** The instant of the least UUID of one, epoch milliseconds. */
export function instantOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)
}
