import { cascading, followsParent, isOursWithParent, lastJoinToFollow } from './end-runs.ts'
import { CLOCK, defineStatement } from './statement.ts'

export interface FindEndingsParams {
  readonly now: string | null
  readonly environment: string
  /** Most runs of each kind. */
  readonly limit: number
}

/** Cascades looked at in one pass; the oldest come first. */
const CASCADES_AT_ONCE = 32

/**
 * What is to be ended though nobody asks: runs whose deadline has to be looked at, children whose parent was cancelled (`parent_id`), and
 * cascades without any (`run_id` null). Read without locks: each is looked at again under its own. The first ones are taken and then
 * compared, so that the index is read in its order, whatever is believed of how many are due.
 */
export const findEndings = defineStatement<FindEndingsParams>(
  'find_endings',
  (s) => `
WITH ${CLOCK},
environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $2::text),
due AS (
  SELECT f.id FROM (
    SELECT r.id, r.deadline_at FROM ${s}.runs r
    WHERE r.environment_id = (SELECT id FROM environment) AND r.deadline_at IS NOT NULL
    ORDER BY r.deadline_at LIMIT (SELECT $3::int)
  ) f
  WHERE f.deadline_at <= (SELECT at FROM clock)
),
parents AS MATERIALIZED (
  SELECT c.parent_id, c.join_seq, ${lastJoinToFollow(s, 'c.parent_id')} AS last FROM ${s}.cascades c WHERE c.environment_id = (SELECT id FROM environment) ORDER BY c.created_at LIMIT ${CASCADES_AT_ONCE}
),
children AS (
  SELECT p.parent_id, k.id FROM parents p LEFT JOIN LATERAL (
    SELECT x.id FROM ${s}.runs x
    WHERE x.parent_id = p.parent_id AND (p.join_seq = 0 AND coalesce(x.parent_join_seq, 0) <= p.last OR x.parent_join_seq = p.join_seq) AND ${followsParent('x')}
    ORDER BY x.parent_join_seq, x.child_index LIMIT (SELECT $3::int)
  ) k ON true
  LIMIT (SELECT $3::int + ${CASCADES_AT_ONCE})
)
SELECT d.id AS run_id, NULL::uuid AS parent_id FROM due d
UNION ALL
SELECT c.id, c.parent_id FROM children c
`,
  (p) => [p.now, p.environment, p.limit],
)

/** Attempts of one visit that are looked at for when it began. */
const ATTEMPTS_LOOKED_AT = 1_000

/**
 * When the current visit of `r` began: with the decision to replay it, its first attempt, else when it became due, else the end of the visit before. Parked runs make no
 * progress and owe none.
 */
const idleSince = (s: string) => `
  CASE WHEN r.status IN ('waiting', 'uncertain') THEN clock.at ELSE coalesce(
    (SELECT coalesce(max(a.started_at) FILTER (WHERE a.outcome = 'resolved'), min(a.started_at)) FROM (SELECT h.started_at, h.visit, h.outcome FROM ${s}.history h WHERE h.run_id = r.id ORDER BY h.seq DESC LIMIT ${ATTEMPTS_LOOKED_AT}) a
      WHERE a.visit = r.visit AND a.outcome <> 'release'),
    greatest(r.available_at, (SELECT h.finished_at FROM ${s}.history h WHERE h.run_id = r.id AND h.outcome <> 'release' ORDER BY h.seq DESC LIMIT 1))) END`

/**
 * Looks at the deadlines of those runs that are due for it, after a lock of their families: one that is over writes the request to end and
 * leaves word for the children; else the next instant to look is set. All three count from when the run was first due (after a retry by
 * hand: from that). Found by id: the instant is asked in a way that `runs_deadline_idx` does not answer. Until then `deadline_at` is a lower bound: progress does not move it, so that it costs nothing.
 */
export const judgeDeadlines = defineStatement<{ readonly now: string | null; readonly ids: readonly string[] }>(
  'judge_deadlines',
  (s) => `
WITH ${CLOCK},
due AS MATERIALIZED (
  SELECT r.id, clock.at, r.policy, r.finished_at IS NULL AND r.cancel_requested_at IS NULL AS live,
    coalesce(to_timestamp((r.policy ->> 'sinceMs')::float8 / 1000), greatest(r.created_at, r.scheduled_for)) AS since,
    r.status = 'running' OR r.visit > 1 OR (SELECT true FROM ${s}.history h WHERE h.run_id = r.id AND h.outcome <> 'release' LIMIT 1) IS NOT NULL AS started,
    CASE WHEN r.policy ->> 'maxIdleMs' IS NOT NULL THEN ${idleSince(s)} END AS idle_since
  FROM ${s}.runs r, clock
  WHERE r.id = ANY ($2::uuid[]) AND coalesce(r.deadline_at, 'infinity') <= clock.at AND ${isOursWithParent(s, 'r')}
),
limits AS (
  SELECT d.id, d.at, d.live,
    d.since + make_interval(secs => (d.policy ->> 'maxTotalMs')::float8 / 1000) AS total_at,
    CASE WHEN NOT d.started THEN d.since + make_interval(secs => (d.policy ->> 'maxWaitMs')::float8 / 1000) END AS start_at,
    d.idle_since + make_interval(secs => (d.policy ->> 'maxIdleMs')::float8 / 1000) AS progress_at
  FROM due d
),
verdicts AS (
  SELECT l.id, l.at, least(l.total_at, l.start_at, l.progress_at) AS next_at, l.live,
    CASE WHEN l.total_at <= l.at THEN 'maxDuration' WHEN l.start_at <= l.at THEN 'startWithin' WHEN l.progress_at <= l.at THEN 'progressWithin' END AS deadline
  FROM limits l
),
judged AS (
  UPDATE ${s}.runs r
  SET deadline_at = CASE WHEN v.live AND v.deadline IS NULL THEN v.next_at END,
      cancel_requested_at = CASE WHEN v.live AND v.deadline IS NOT NULL THEN v.at ELSE r.cancel_requested_at END,
      cancellation = CASE WHEN v.live AND v.deadline IS NOT NULL THEN jsonb_build_object('code', 'deadline_exceeded', 'cause', 'timeout', 'deadline', v.deadline, 'message',
        CASE v.deadline WHEN 'maxDuration' THEN 'The run took longer in all than its maxDuration of ' || (r.policy ->> 'maxTotalMs') || ' ms.'
          WHEN 'startWithin' THEN 'The run was not started within its startWithin of ' || (r.policy ->> 'maxWaitMs') || ' ms.'
          ELSE 'The run made no progress within its progressWithin of ' || (r.policy ->> 'maxIdleMs') || ' ms.' END) ELSE r.cancellation END
  FROM verdicts v
  WHERE r.id = v.id
  RETURNING r.id, r.environment_id, v.live AND v.deadline IS NOT NULL AS over
),
asked AS (SELECT j.id, j.environment_id FROM judged j WHERE j.over),
${cascading(s)}
SELECT (SELECT count(*)::int FROM asked) AS asked, count(*)::int AS judged FROM judged
`,
  (p) => [p.now, p.ids],
)
