import { CLOCK, defineStatement, epochMs } from './statement.ts'

export interface PeekNextParams {
  readonly now: string | null
  readonly environment: string
  readonly definitions: readonly string[]
  readonly versions: readonly number[]
  readonly queues: readonly string[] | null
}

/**
 * What is left, read without locks: an empty SKIP LOCKED claim proves nothing. `more`: something this build can run is in the window
 * (or due and not yet promoted). `next_at`: the earliest timer, lease or schedule.
 */
export const peekNext = defineStatement<PeekNextParams>(
  'peek_next',
  (s) => `
WITH RECURSIVE ${CLOCK},
environment AS (SELECT id FROM ${s}.environments WHERE name = $2::text),
known AS (SELECT * FROM unnest((SELECT $3::text[]), (SELECT $4::int[])) AS k(definition, version)),
walk AS (
  SELECT first.lane_id, 1 AS steps FROM (SELECT r.lane_id FROM ${s}.ready r ORDER BY r.lane_id LIMIT 1) first
  UNION ALL
  SELECT next.lane_id, w.steps + 1
  FROM walk w CROSS JOIN LATERAL (SELECT r.lane_id FROM ${s}.ready r WHERE r.lane_id > w.lane_id ORDER BY r.lane_id LIMIT 1) next
  WHERE w.steps < 2000
),
open AS (
  SELECT l.id FROM ${s}.lanes l JOIN known k ON k.definition = l.definition AND k.version = l.version
  WHERE l.environment_id = (SELECT id FROM environment) AND NOT l.paused AND ($5::text[] IS NULL OR l.queue = ANY ($5))
),
timer AS (
  SELECT r.timer_at AS at FROM ${s}.runs r
  WHERE r.environment_id = (SELECT id FROM environment) AND r.timer_at IS NOT NULL ORDER BY r.timer_at LIMIT 1
),
lease AS (SELECT c.lease_until AS at FROM ${s}.claims c WHERE c.environment_id = (SELECT id FROM environment) ORDER BY c.lease_until LIMIT 1),
slot AS (
  SELECT c.next_at AS at FROM ${s}.schedules c
  WHERE c.environment_id = (SELECT id FROM environment) AND c.enabled AND c.next_at IS NOT NULL ORDER BY c.next_at LIMIT 1
)
SELECT
  EXISTS (SELECT FROM walk w WHERE abs(w.lane_id) IN (SELECT id FROM open))
    OR coalesce((SELECT at FROM timer) <= (SELECT at FROM clock), false) OR coalesce((SELECT at FROM lease) <= (SELECT at FROM clock), false) AS more,
  ${epochMs('least((SELECT at FROM timer), (SELECT at FROM lease), (SELECT at FROM slot))')} AS next_at,
  ${epochMs('(SELECT at FROM clock)')} AS now,
  coalesce((SELECT at FROM slot) <= (SELECT at FROM clock), false) AS schedule_due,
  (SELECT m.upkeep_at <= (SELECT at FROM clock) FROM ${s}.meta m) AS upkeep_due,
  (SELECT m.min_build FROM ${s}.meta m) AS min_build
`,
  (p) => [p.now, p.environment, p.definitions, p.versions, p.queues],
)
