import { atPlaces } from './places.ts'
import { defineStatement } from './statement.ts'
import { intoWindow } from './window.ts'

export interface PromoteDueParams {
  readonly now: string | null
  readonly environment: string
  readonly limit: number
}

/**
 * Moves what has become due into the claim window, runs held for a mismatch too (whoever claims them looks again): delayed runs, waits that ran out (`timed_out` is recorded), and claims whose
 * lease has ended (a loss is counted, and the slots they held are given back). Bounded, in due order, SKIP LOCKED.
 */
export const promoteDue = defineStatement<PromoteDueParams>(
  'promote_due',
  (s) => `
WITH due AS MATERIALIZED (
  SELECT d.ctid AS place, d.id FROM ${s}.runs d
  WHERE d.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND d.timer_at IS NOT NULL AND d.timer_at <= (SELECT coalesce($1::timestamptz, now()))
  ORDER BY d.timer_at
  LIMIT (SELECT $3::int)
  FOR NO KEY UPDATE SKIP LOCKED
),
promoted AS (
  UPDATE ${s}.runs r
  SET status = 'pending', notable = NULL, timer_at = NULL, hold = CASE WHEN r.hold <> 'mismatch' THEN r.hold END, seq = r.seq + 1, updated_at = coalesce($1::timestamptz, now()),
    timed_out = r.timed_out OR r.status = 'waiting' AND (r.awaits IS NOT NULL OR r.join_seq IS NOT NULL),
    available_at = CASE WHEN r.status = 'waiting' THEN coalesce($1::timestamptz, now()) ELSE r.available_at END
  WHERE ${atPlaces('r', 'due')} AND r.status IN ('pending', 'waiting')
  RETURNING r.id, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold
),
windowed AS (
  ${intoWindow(s, 'promoted', 'x.hold IS NULL')}
)
SELECT count(*)::int AS promoted FROM promoted
`,
  (p) => [p.now, p.environment, p.limit],
)
