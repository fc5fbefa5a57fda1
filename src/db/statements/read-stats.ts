import { CLOCK, defineStatement, epochMs } from './statement.ts'

export interface ReadStatsParams {
  readonly now: string | null
  readonly environment: string
  /** Null: all tenants. */
  readonly tenant: string | null
}

/** Entries of an index that one number may count, over all lanes: tens of milliseconds. */
const MAX_COUNTED = 100_000
/** Rows of `runs` that one number may visit. */
const MAX_VISITED = 50_000
/** Gates with runs in their line that are looked at: a probe each. */
const MAX_GATES = 1_000
/** A lane's part of `MAX_COUNTED`, at least. */
const MIN_COUNTED_PER_LANE = 1_000
/** Distinct priorities in the window of one lane that are looked at. */
const MAX_PRIORITIES = 64

/** First in line of each priority in the lanes of `lane`: a scan that leaps from priority to priority, whatever lies between. */
const firstInLine = (s: string) =>
  `
first_in_line AS (
  SELECT l.id, side.sign, f.priority, f.available_at, 1 AS step
  FROM lane l CROSS JOIN (VALUES (1), (-1)) AS side(sign)
  CROSS JOIN LATERAL (SELECT y.priority, y.available_at FROM ${s}.ready y WHERE y.lane_id = l.id * side.sign ORDER BY y.priority, y.available_at LIMIT 1) f
  UNION ALL
  SELECT g.id, g.sign, f.priority, f.available_at, g.step + 1
  FROM first_in_line g
  CROSS JOIN LATERAL (
    SELECT y.priority, y.available_at FROM ${s}.ready y WHERE y.lane_id = g.id * g.sign AND y.priority > g.priority ORDER BY y.priority, y.available_at LIMIT 1
  ) f
  WHERE g.step < ${MAX_PRIORITIES}
)`.trim()

/** The order is that of the index: without it a scan of the table, stopping early by luck, may look cheaper. */
const counted = (from: string, where: string, order: string) =>
  `(SELECT count(*) FROM (SELECT FROM ${from} WHERE ${where} ORDER BY ${order} LIMIT (SELECT n FROM share)) x)::int`

const countedReady = (s: string, lane: string) =>
  counted(`${s}.ready y`, `y.lane_id = ${lane}`, 'y.priority, y.available_at, y.position')

const countedNotable = (s: string, status: string) =>
  counted(`${s}.runs r`, `r.notable IS NOT NULL AND r.notable = '${status}' AND r.lane_id = l.id`, 'r.created_at, r.position')

/**
 * What there is, by queue, in one snapshot. What moves is counted where it lies (`ready`, `runs_timer_idx`, `runs_blocked_idx`,
 * `runs_held_idx`, `claims`), what rests by `runs_notable_idx` and `runs_list_idx`; completed is what remains. Each count stops at a bound:
 * exact below it, "at least" at it, and then `exact` is false. `due` is what could be claimed now: nothing of the future, nor of a paused lane.
 */
export const readStats = defineStatement<ReadStatsParams>(
  'read_stats',
  (s) => `
WITH RECURSIVE ${CLOCK},
environment AS (SELECT e.id FROM ${s}.environments e WHERE e.name = $2::text),
lane AS MATERIALIZED (
  SELECT l.id, l.queue, l.paused FROM ${s}.lanes l WHERE l.environment_id = (SELECT id FROM environment) AND ($3::text IS NULL OR l.tenant = $3::text)
),
share AS (SELECT greatest(${MIN_COUNTED_PER_LANE}, ${MAX_COUNTED} / greatest((SELECT count(*) FROM lane), 1))::int AS n),
${firstInLine(s)},
oldest AS (SELECT g.id, min(g.available_at) AS due_at FROM first_in_line g GROUP BY g.id),
delayed AS (
  SELECT t.lane_id, count(*)::int AS visited, (count(*) FILTER (WHERE t.status = 'pending'))::int AS n, (count(*) FILTER (WHERE t.timer_at <= (SELECT at FROM clock) AND t.hold IS NULL))::int AS due,
    min(t.timer_at) FILTER (WHERE t.timer_at <= (SELECT at FROM clock) AND t.hold IS NULL) AS due_at
  FROM (SELECT r.lane_id, r.status, r.timer_at, r.hold FROM ${s}.runs r
    WHERE r.environment_id = (SELECT id FROM environment) AND r.timer_at IS NOT NULL ORDER BY r.timer_at LIMIT ${MAX_VISITED}) t
  GROUP BY t.lane_id
),
gate AS (
  SELECT f.name, 1 AS steps FROM (SELECT r.blocked_on AS name FROM ${s}.runs r WHERE r.blocked_on IS NOT NULL ORDER BY r.blocked_on LIMIT 1) f
  UNION ALL
  SELECT n.name, g.steps + 1 FROM gate g
  CROSS JOIN LATERAL (SELECT r.blocked_on AS name FROM ${s}.runs r WHERE r.blocked_on > g.name ORDER BY r.blocked_on LIMIT 1) n
  WHERE g.steps < ${MAX_GATES}
),
line AS (SELECT ${MAX_VISITED} / greatest(count(*), 1) AS n FROM gate),
stopped AS MATERIALIZED (
  SELECT g.name, b.lane_id
  FROM gate g CROSS JOIN LATERAL (
    SELECT r.lane_id FROM ${s}.runs r WHERE r.blocked_on IS NOT NULL AND r.blocked_on = g.name
    ORDER BY r.priority, r.available_at, r.position LIMIT (SELECT n FROM line)
  ) b
),
blocked AS (SELECT x.lane_id, count(*)::int AS n FROM stopped x GROUP BY x.lane_id),
held AS (
  SELECT l.id AS lane_id, count(*)::int AS n
  FROM lane l CROSS JOIN unnest(ARRAY['paused', 'mismatch', 'environment']) AS why(hold)
  CROSS JOIN LATERAL (
    SELECT r.status, r.timer_at FROM ${s}.runs r WHERE r.hold IS NOT NULL AND r.hold = why.hold AND r.lane_id = l.id LIMIT (SELECT n FROM share)
  ) h
  WHERE h.status = 'pending' AND h.timer_at IS NULL GROUP BY l.id
),
running AS (
  SELECT r.lane_id, count(*)::int AS n
  FROM (SELECT x.id FROM ${s}.claims c CROSS JOIN LATERAL unnest(c.run_ids) AS x(id) WHERE c.environment_id = (SELECT id FROM environment) LIMIT ${MAX_VISITED}) h
  CROSS JOIN LATERAL (SELECT k.lane_id, k.status FROM ${s}.runs k WHERE k.id = h.id OFFSET 0) r
  WHERE r.status = 'running' GROUP BY r.lane_id
),
counts AS (
  SELECT l.queue, l.paused, least(o.due_at, d.due_at) AS due_at,
    ${countedReady(s, 'l.id')} + ${countedReady(s, '-l.id')} AS ready,
    coalesce(h.n, 0) AS held,
    coalesce(d.n, 0) AS delayed, coalesce(d.due, 0) AS due_timers, coalesce(b.n, 0) AS blocked, coalesce(g.n, 0) AS running,
    ${countedNotable(s, 'waiting')} AS waiting,
    ${countedNotable(s, 'failed')} AS failed,
    ${countedNotable(s, 'cancelled')} AS cancelled,
    ${countedNotable(s, 'discarded')} AS discarded,
    ${countedNotable(s, 'uncertain')} AS uncertain,
    ${counted(`${s}.runs r`, 'r.lane_id = l.id', 'r.created_at, r.position')} AS total
  FROM lane l
  LEFT JOIN oldest o ON o.id = l.id
  LEFT JOIN delayed d ON d.lane_id = l.id
  LEFT JOIN blocked b ON b.lane_id = l.id
  LEFT JOIN held h ON h.lane_id = l.id
  LEFT JOIN running g ON g.lane_id = l.id
),
by_queue AS (
  SELECT c.queue, min(c.due_at) FILTER (WHERE NOT c.paused) AS due_at, sum(c.ready)::int AS ready, sum(c.held)::int AS held, (sum(c.ready + c.due_timers) FILTER (WHERE NOT c.paused))::int AS due,
    sum(c.delayed)::int AS delayed, sum(c.blocked)::int AS blocked,
    sum(c.running)::int AS running, sum(c.waiting)::int AS waiting, sum(c.failed)::int AS failed, sum(c.cancelled)::int AS cancelled,
    sum(c.discarded)::int AS discarded, sum(c.uncertain)::int AS uncertain,
    sum(greatest(c.total - c.ready - c.held - c.delayed - c.blocked - c.running - c.waiting - c.failed - c.cancelled - c.discarded - c.uncertain, 0))::int AS completed
  FROM counts c GROUP BY c.queue
),
bounded AS (
  SELECT bool_or(n.most >= (SELECT n FROM share)) OR (SELECT coalesce(sum(d.visited), 0) FROM delayed d) >= ${MAX_VISITED} OR (SELECT max(g.steps) FROM gate g) >= ${MAX_GATES} OR EXISTS (SELECT FROM stopped x GROUP BY x.name HAVING count(*) >= (SELECT n FROM line))
    OR (SELECT coalesce(sum(g.n), 0) FROM running g) >= ${MAX_VISITED} AS yes
  FROM counts c CROSS JOIN LATERAL (SELECT greatest(c.ready, c.held, c.waiting, c.failed, c.cancelled, c.discarded, c.uncertain, c.total) AS most) n
),
pause AS (
  SELECT DISTINCT p.name FROM ${s}.pauses p
  WHERE p.environment_id = (SELECT id FROM environment) AND p.kind = 'queue' AND p.tenant IN ('', coalesce($3::text, ''))
),
named AS (
  SELECT q.queue AS name FROM by_queue q
  UNION
  SELECT p.name FROM pause p
)
SELECT ${epochMs('clock.at')} AS now, n.name, ${epochMs('q.due_at')} AS oldest_due_at,
  n.name IN (SELECT p.name FROM pause p) AS paused, NOT coalesce((SELECT b.yes FROM bounded b), false) AS exact,
  coalesce(q.ready, 0) AS ready, coalesce(q.held, 0) AS held, coalesce(q.due, 0) AS due, coalesce(q.delayed, 0) AS delayed, coalesce(q.blocked, 0) AS blocked, coalesce(q.running, 0) AS running,
  coalesce(q.waiting, 0) AS waiting, coalesce(q.failed, 0) AS failed, coalesce(q.cancelled, 0) AS cancelled,
  coalesce(q.discarded, 0) AS discarded, coalesce(q.uncertain, 0) AS uncertain, coalesce(q.completed, 0) AS completed
FROM clock
LEFT JOIN named n ON true
LEFT JOIN by_queue q ON q.queue = n.name
ORDER BY n.name
`,
  (p) => [p.now, p.environment, p.tenant],
)

/**
 * Which schema this is, when it was last ticked, and the oldest thing that is due and not yet taken: in the window of an open lane,
 * a timer or a lease that has run out, tokens for somebody who waits for them. Beside it the oldest slot of a schedule that has not been fired.
 */
export const readHealth = defineStatement<{ readonly now: string | null; readonly environment: string }>(
  'read_health',
  (s) => `
WITH RECURSIVE ${CLOCK},
environment AS (SELECT e.id FROM ${s}.environments e WHERE e.name = $2::text),
lane AS MATERIALIZED (SELECT l.id FROM ${s}.lanes l WHERE l.environment_id = (SELECT id FROM environment) AND NOT l.paused),
${firstInLine(s)},
timer AS (
  SELECT r.timer_at AS at FROM ${s}.runs r
  WHERE r.environment_id = (SELECT id FROM environment) AND r.timer_at IS NOT NULL ORDER BY r.timer_at LIMIT 1
),
lease AS (SELECT c.lease_until AS at FROM ${s}.claims c WHERE c.environment_id = (SELECT id FROM environment) ORDER BY c.lease_until LIMIT 1),
gate AS (
  SELECT g.due_at AS at
  FROM (SELECT c.gate, c.due_at FROM ${s}.limit_counters c
    WHERE c.environment_id = (SELECT id FROM environment) AND c.due_at IS NOT NULL ORDER BY c.due_at LIMIT ${MAX_GATES}) g
  CROSS JOIN LATERAL (SELECT FROM ${s}.runs r WHERE r.blocked_on IS NOT NULL AND r.blocked_on = g.gate LIMIT 1) waits
  ORDER BY g.due_at LIMIT 1
),
slot AS (
  SELECT c.next_at AS at FROM ${s}.schedules c
  WHERE c.environment_id = (SELECT id FROM environment) AND c.enabled AND c.next_at IS NOT NULL ORDER BY c.next_at LIMIT 1
)
SELECT ${epochMs('clock.at')} AS now, m.schema_version, m.min_build, ${epochMs('e.last_tick_at')} AS last_tick_at, e.last_tick_source,
  ${epochMs(`least(
    (SELECT min(g.available_at) FROM first_in_line g),
    (SELECT t.at FROM timer t WHERE t.at <= (SELECT at FROM clock)),
    (SELECT t.at FROM lease t WHERE t.at <= (SELECT at FROM clock)),
    (SELECT t.at FROM gate t WHERE t.at <= (SELECT at FROM clock)))`)} AS oldest_due_at,
  ${epochMs('(SELECT t.at FROM slot t WHERE t.at <= (SELECT at FROM clock))')} AS oldest_slot_at
FROM ${s}.meta m CROSS JOIN clock LEFT JOIN ${s}.environments e ON e.name = $2::text
`,
  (p) => [p.now, p.environment],
)
