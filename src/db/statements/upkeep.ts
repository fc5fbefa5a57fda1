import { graceOf } from '../periods.ts'
import { atPlaces } from './places.ts'
import { CLOCK, defineStatement } from './statement.ts'

export interface UpkeepParams {
  readonly now: string | null
  readonly environment: string
  readonly limit: number
}

export interface TakeUpkeepParams {
  readonly now: string | null
  readonly environment: string
  readonly source: string
  readonly nextInMs: number
}

/** Notes that a tick was here, and who does the environment's upkeep now: only one of many ticks gets the row. */
export const takeUpkeep = defineStatement<TakeUpkeepParams>(
  'take_upkeep',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.environments e SET upkeep_at = clock.at + make_interval(secs => $4::float8 / 1000), last_tick_at = clock.at, last_tick_source = $3::text
FROM clock
WHERE e.name = $2::text AND e.upkeep_at <= clock.at
RETURNING e.id
`,
  (p) => [p.now, p.environment, p.source, p.nextInMs],
)

/** How soon a pass of retention that found more is followed by another, in seconds: 2,000 rows each, which outruns any spawning. */
const MORE_AFTER_SECONDS = 1

/** After the duties, in their batch: while lanes or counters have not been walked to their end, or expired receipts are left, upkeep is due again soon. */
export const hastenUpkeep = defineStatement<{ readonly now: string | null; readonly environment: string }>(
  'hasten_upkeep',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.environments e SET upkeep_at = least(e.upkeep_at, clock.at + make_interval(secs => ${MORE_AFTER_SECONDS}))
FROM clock
WHERE e.name = $2::text AND (
  e.gate_cursor IS NOT NULL
  OR EXISTS (SELECT FROM ${s}.lanes l WHERE l.environment_id = e.id AND l.prune_cursor_at IS NOT NULL)
  OR (SELECT t.expires_at FROM ${s}.receipts t WHERE t.environment_id = e.id ORDER BY t.expires_at LIMIT 1) <= clock.at
  OR (SELECT t.expires_at FROM ${s}.events t WHERE t.environment_id = e.id ORDER BY t.expires_at LIMIT 1) <= clock.at)
`,
  (p) => [p.now, p.environment],
)

/** Upkeep is due at once: somebody stands where room is kept for him, and cannot use it. */
export const callUpkeep = defineStatement<{ readonly now: string | null; readonly environment: string }>(
  'call_upkeep',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.environments e SET upkeep_at = clock.at FROM clock WHERE e.name = $2::text AND e.upkeep_at > clock.at
`,
  (p) => [p.now, p.environment],
)

/** Lanes looked at in one pass of retention. */
const LANES_PER_PASS = 50

/**
 * Deletes ended runs whose retention is over, with all that belongs to them, bounded. Walks `runs_list_idx` of the lanes that were
 * looked at longest ago, each from where the last pass came to: ended runs need no index of their own, so finishing one stays cheap,
 * and runs that live long are passed over once a round, not once a pass. Spared: children whose parent has not yet committed the step
 * that reads them, and runs whose end somebody waits for and has not been told. `more`: a lane was not walked to its end.
 *
 * Where tables are partitioned, runs go with their partition (`partitions.ts`): only those are deleted that are over for so long that something
 * else must be keeping it.
 */
export const pruneEnded = defineStatement<UpkeepParams & { readonly minRetentionSeconds: number }>(
  'prune_ended',
  (s) => `
WITH ${CLOCK},
horizon AS (SELECT clock.at - ${graceOf(s)} AS before FROM clock),
picked AS MATERIALIZED (
  SELECT l.id, l.prune_cursor_at, l.prune_cursor_position FROM ${s}.lanes l
  WHERE l.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text)
  ORDER BY l.pruned_at, l.id LIMIT ${LANES_PER_PASS} FOR UPDATE OF l SKIP LOCKED
),
share AS (SELECT greatest($3::int / greatest(count(*), 1), 1) AS n FROM picked),
examined AS MATERIALIZED (
  SELECT x.* FROM picked p
  CROSS JOIN LATERAL (
    SELECT r.id, r.lane_id, r.created_at, r.position,
      r.finished_at + make_interval(secs => CASE WHEN r.status = 'completed' THEN r.retention_seconds ELSE r.failed_retention_seconds END) <= (SELECT before FROM horizon) AS over
    FROM ${s}.runs r
    WHERE r.lane_id = p.id AND r.created_at <= (SELECT before FROM horizon) - make_interval(secs => $4::float8)
      AND (r.created_at, r.position) > (coalesce(p.prune_cursor_at, '-infinity'), coalesce(p.prune_cursor_position, 0))
    ORDER BY r.created_at, r.position LIMIT (SELECT n FROM share)
  ) x
),
doomed AS MATERIALIZED (
  SELECT r.ctid AS place, r.id FROM ${s}.runs r
  WHERE r.id = ANY (ARRAY(SELECT x.id FROM examined x WHERE x.over)) AND r.finished_at IS NOT NULL AND NOT r.awaited
    AND (SELECT true FROM ${s}.runs p WHERE p.id = r.parent_id AND p.join_seq = r.parent_join_seq AND p.status NOT IN ('completed', 'failed', 'cancelled', 'discarded')) IS NULL
  FOR UPDATE OF r SKIP LOCKED
),
gone AS (DELETE FROM ${s}.runs r WHERE ${atPlaces('r', 'doomed')} AND r.finished_at IS NOT NULL RETURNING r.id),
no_history AS (DELETE FROM ${s}.history h WHERE h.run_id = ANY (ARRAY(SELECT g.id FROM gone g))),
no_signals AS (DELETE FROM ${s}.signals x WHERE x.run_id = ANY (ARRAY(SELECT g.id FROM gone g))),
no_waits AS (DELETE FROM ${s}.event_waits x WHERE x.run_id = ANY (ARRAY(SELECT g.id FROM gone g))),
no_keys AS (DELETE FROM ${s}.uniques u WHERE u.run_id = ANY (ARRAY(SELECT g.id FROM gone g))),
reached AS (
  SELECT p.id, count(x.id) >= (SELECT n FROM share) AS more, max(x.created_at) AS at,
    (SELECT y.position FROM examined y WHERE y.lane_id = p.id ORDER BY y.created_at DESC, y.position DESC LIMIT 1) AS position
  FROM picked p LEFT JOIN examined x ON x.lane_id = p.id GROUP BY p.id
),
moved AS (
  UPDATE ${s}.lanes l
  SET pruned_at = clock.at, prune_cursor_at = CASE WHEN r.more THEN r.at END, prune_cursor_position = CASE WHEN r.more THEN r.position END
  FROM reached r, clock WHERE l.id = r.id
)
SELECT (SELECT count(*)::int FROM gone) AS pruned, coalesce((SELECT bool_or(r.more) FROM reached r), false) AS more
`,
  (p) => [p.now, p.environment, p.limit, p.minRetentionSeconds],
)

export const pruneReceipts = defineStatement<UpkeepParams>(
  'prune_receipts',
  (s) => `
WITH ${CLOCK},
expired AS MATERIALIZED (
  SELECT t.ctid AS place FROM ${s}.receipts t
  WHERE t.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND t.expires_at <= (SELECT at FROM clock)
  ORDER BY t.expires_at LIMIT (SELECT $3::int) FOR UPDATE OF t SKIP LOCKED
),
gone AS (DELETE FROM ${s}.receipts t WHERE t.ctid = ANY (ARRAY(SELECT e.place FROM expired e)) RETURNING 1)
SELECT count(*)::int AS pruned FROM gone
`,
  (p) => [p.now, p.environment, p.limit],
)
