import { defineStatement, epochMs } from './statement.ts'

export interface PeekNextParams {
  readonly now: string | null
  readonly environment: string
  readonly definitions: readonly string[]
  readonly versions: readonly number[]
  readonly queues: readonly string[] | null
}

/** The lanes of a walk that this build can take runs of. */
const servable = (s: string) => `JOIN ${s}.lanes l ON l.id = abs(w.lane_id)
    WHERE w.steps > 0 AND l.environment_id = (SELECT id FROM environment) AND NOT l.paused
      AND ((SELECT $5::text[]) IS NULL OR l.queue = ANY ((SELECT $5::text[])::text[]))
      AND (l.definition, l.version) IN (SELECT k.definition, k.version FROM unnest((SELECT $3::text[]), (SELECT $4::int[])) AS k(definition, version))`

/**
 * What is left, read without locks: an empty SKIP LOCKED claim proves nothing. `more`: something this build can run is in the window
 * (or due and not yet promoted), or is to be ended (`ending_due`); `lonely` and `others`: whether some of what is
 * in the window must be claimed alone, and whether some need not. `next_at`: the earliest timer, lease, schedule or deadline, or tokens for
 * somebody who waits for them.
 */
export const peekNext = defineStatement<PeekNextParams>(
  'peek_next',
  (s) => `
WITH RECURSIVE environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $2::text),
others AS (
  SELECT 0 AS lane_id, 0 AS steps
  UNION ALL
  SELECT next.lane_id, w.steps + 1
  FROM others w
  CROSS JOIN LATERAL (
    SELECT y.lane_id FROM ${s}.ready y WHERE y.lane_id > w.lane_id ORDER BY y.lane_id LIMIT 1
  ) next
  WHERE w.steps < 2000
),
lonely AS (
  SELECT -2147483648 AS lane_id, 0 AS steps
  UNION ALL
  SELECT next.lane_id, w.steps + 1
  FROM lonely w
  CROSS JOIN LATERAL (
    SELECT y.lane_id FROM ${s}.ready y WHERE y.lane_id > w.lane_id AND y.lane_id < 0 ORDER BY y.lane_id LIMIT 1
  ) next
  WHERE w.steps < 2000
),
found AS MATERIALIZED (
  SELECT EXISTS (SELECT FROM others w ${servable(s)}) AS others, EXISTS (SELECT FROM lonely w ${servable(s)}) AS lonely
),
due AS MATERIALIZED (
  SELECT coalesce($1::timestamptz, now()) AS now,
    (SELECT r.timer_at FROM ${s}.runs r
      WHERE r.environment_id = (SELECT id FROM environment) AND r.timer_at IS NOT NULL ORDER BY r.timer_at LIMIT 1) AS timer,
    (SELECT c.lease_until FROM ${s}.claims c WHERE c.environment_id = (SELECT id FROM environment) ORDER BY c.lease_until LIMIT 1) AS lease,
    (SELECT c.next_at FROM ${s}.schedules c
      WHERE c.environment_id = (SELECT id FROM environment) AND c.enabled AND c.next_at IS NOT NULL ORDER BY c.next_at LIMIT 1) AS slot,
    least(
      (SELECT r.deadline_at FROM ${s}.runs r
        WHERE r.environment_id = (SELECT id FROM environment) AND r.deadline_at IS NOT NULL ORDER BY r.deadline_at LIMIT 1),
      (SELECT c.created_at FROM ${s}.cascades c WHERE c.environment_id = (SELECT id FROM environment) ORDER BY c.created_at LIMIT 1)) AS ending,
    (SELECT c.due_at FROM ${s}.limit_counters c
      WHERE c.environment_id = (SELECT id FROM environment) AND c.due_at IS NOT NULL ORDER BY c.due_at LIMIT 1) AS gate
)
SELECT
  coalesce(least(d.timer, d.lease, d.ending, d.gate) <= d.now, false) OR f.others OR f.lonely AS more,
  f.lonely, f.others,
  ${epochMs('least(d.timer, d.lease, d.slot, d.ending, d.gate)')} AS next_at,
  ${epochMs('d.now')} AS now,
  coalesce(d.slot <= d.now, false) AS schedule_due,
  coalesce(d.ending <= d.now, false) AS ending_due,
  coalesce(d.gate <= d.now, false) AS gates_due,
  coalesce((SELECT e.upkeep_at <= d.now FROM ${s}.environments e WHERE e.name = $2::text), false) AS upkeep_due,
  (SELECT o.id FROM ${s}.outbox o WHERE o.environment_id = (SELECT id FROM environment) ORDER BY o.id LIMIT 1) IS NOT NULL AS relay_due,
  m.min_build
FROM due d CROSS JOIN found f LEFT JOIN ${s}.meta m ON true
`,
  (p) => [p.now, p.environment, p.definitions, p.versions, p.queues],
)
