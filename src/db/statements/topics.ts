/**
 * Waiting for topics: events, and the ends of other runs. A park registers in `event_waits`, then looks, in a later statement, for what has
 * happened already; who makes it happen looks for registrations after it has. That one of the two sees the other is seen to by a lock that both
 * take: of the event's name, which need not exist yet, and of the awaited run's row.
 */
import { CLOCK, defineStatement } from './statement.ts'

/** Marks advisory locks of event names, held by a transaction, never by a session; any number that nobody else uses. */
const TOPIC_LOCK_CLASS = 7_252_030

/** One number for each (environment, tenant, topic), the same in every statement: a clash only waits. */
export const topicNumber = (environment: string, tenant: string, topic: string) =>
  `hashtext(${environment} || E'\\x1f' || ${tenant} || E'\\x1f' || ${topic})`

/** Parks of the same event do not hold each other up; an emit waits for them, and they for it. All locks of a batch in one order. */
export const shareTopics = defineStatement<{
  readonly environment: string
  readonly tenants: readonly string[]
  readonly topics: readonly string[]
}>(
  'share_topics',
  () => `
SELECT count(pg_advisory_xact_lock_shared(${TOPIC_LOCK_CLASS}, k.number)) AS locked
FROM (SELECT DISTINCT ${topicNumber('$1::text', 'i.tenant', 'i.topic')} AS number FROM unnest($2::text[], $3::text[]) AS i(tenant, topic) ORDER BY 1 OFFSET 0) k
`,
  (p) => [p.environment, p.tenants, p.topics],
)

/** Taken by who emits, before the event is written. Waits for parks that are under way, which are short, and never for a run. */
export const takeTopic = defineStatement<{ readonly environment: string; readonly tenant: string; readonly topic: string }>(
  'take_topic',
  () => `
SELECT pg_advisory_xact_lock(${TOPIC_LOCK_CLASS}, ${topicNumber('$1::text', '$2::text', '$3::text')}) IS NULL AS locked
`,
  (p) => [p.environment, p.tenant, p.topic],
)

export interface TopicsParams {
  readonly now: string | null
  /** Runs that were parked in this batch, and what each waits for; parallel. */
  readonly runIds: readonly string[]
  readonly topics: readonly string[]
}

const parked = (s: string) => `
parked AS (
  SELECT r.id, r.environment_id, l.tenant, i.topic FROM unnest($2::uuid[], $3::text[]) AS i(run_id, topic)
  JOIN ${s}.runs r ON r.id = i.run_id JOIN ${s}.lanes l ON l.id = r.lane_id
  WHERE r.status = 'waiting' AND i.topic = ANY (r.awaits) AND r.xmin = pg_current_xact_id()::xid
)`

export const registerWaits = defineStatement<TopicsParams>(
  'register_waits',
  (s) => `
WITH ${CLOCK},
${parked(s)}
INSERT INTO ${s}.event_waits (tenant, environment_id, topic, run_id)
SELECT p.tenant, p.environment_id, p.topic, p.id FROM parked p CROSS JOIN clock ORDER BY p.tenant, p.environment_id, p.topic, p.id
ON CONFLICT DO NOTHING
`,
  (p) => [p.now, p.runIds, p.topics],
)

/** Of each event a run is told once: this is what it is known by in the inbox. */
export const eventDedup = (event: string) =>
  `'event:' || ${event}.name || '@' || (extract(epoch FROM ${event}.created_at) * 1000000)::bigint`

/** Puts events that are there already into the inbox of who was parked on them; an expired one is as if never emitted. `recheck_waits` wakes. */
export const hearEvents = defineStatement<TopicsParams>(
  'hear_events',
  (s) => `
WITH ${CLOCK},
${parked(s)}
INSERT INTO ${s}.signals (run_id, name, payload, dedup_key, created_at)
SELECT p.id, p.topic, e.payload, ${eventDedup('e')}, clock.at
FROM parked p CROSS JOIN clock
CROSS JOIN LATERAL (
  SELECT * FROM ${s}.events x WHERE x.tenant = p.tenant AND x.environment_id = p.environment_id AND x.name = substr(p.topic, 7) LIMIT 1
) e
WHERE e.expires_at > clock.at
ORDER BY e.created_at, e.name, p.id
ON CONFLICT (run_id, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
`,
  (p) => [p.now, p.runIds, p.topics],
)

/** The end of a run, as those who wait for it are told. */
export const endOfRun = (run: string, definition: string) =>
  `jsonb_build_object('id', ${run}.id, 'definition', ${definition}, 'key', ${run}.key, 'status', ${run}.status, 'result', ${run}.result, 'error', ${run}.error)`

/** Another end of the same run, after a retry, is another one. */
export const endDedup = (run: string) => `'run:' || ${run}.id || '@' || ${run}.seq`

const GONE = `jsonb_build_object('code', 'gone', 'message', 'The run is no more.')`

/**
 * Notes on runs that they are awaited, so that who ends them tells. One that has ended already is answered at once, and one that has been
 * pruned meanwhile as well. After `lock_runs`, which locks them too: whether they have ended cannot change any more.
 */
export const awaitRuns = defineStatement<TopicsParams>(
  'await_runs',
  (s) => `
WITH ${CLOCK},
${parked(s)},
targets AS MATERIALIZED (
  SELECT p.id AS waiter, p.topic, p.tenant, substr(p.topic, 5)::uuid AS id, t.status, t.finished_at, t.definition, t.is_theirs
  FROM parked p
  LEFT JOIN LATERAL (
    SELECT r.status, r.finished_at, l.definition, l.tenant = p.tenant AND r.environment_id = p.environment_id AS is_theirs
    FROM ${s}.runs r JOIN ${s}.lanes l ON l.id = r.lane_id WHERE r.id = substr(p.topic, 5)::uuid LIMIT 1
  ) t ON true
),
noted AS (
  UPDATE ${s}.runs r SET awaited = true
  WHERE r.id = ANY (ARRAY(SELECT t.id FROM targets t WHERE t.is_theirs AND t.finished_at IS NULL)) AND NOT r.awaited
)
INSERT INTO ${s}.signals (run_id, name, payload, dedup_key, created_at)
SELECT t.waiter, t.topic,
  CASE WHEN t.is_theirs THEN (SELECT ${endOfRun('r', 't.definition')} FROM ${s}.runs r WHERE r.id = t.id)
    ELSE jsonb_build_object('id', t.id, 'definition', '', 'key', NULL, 'status', 'failed', 'result', NULL, 'error', ${GONE}) END,
  CASE WHEN t.is_theirs THEN (SELECT ${endDedup('r')} FROM ${s}.runs r WHERE r.id = t.id) ELSE t.topic END, clock.at
FROM targets t CROSS JOIN clock
WHERE t.finished_at IS NOT NULL OR t.is_theirs IS NOT TRUE
ON CONFLICT (run_id, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
`,
  (p) => [p.now, p.runIds, p.topics],
)

/** Forgets what runs were waiting for that have gone on, or ended, in this batch: found by the history row of this transaction. */
export const forgetWaits = defineStatement<{ readonly ids: readonly string[] }>(
  'forget_waits',
  (s) => `
DELETE FROM ${s}.event_waits w
WHERE w.run_id = ANY (ARRAY(
  SELECT r.id FROM ${s}.runs r
  CROSS JOIN LATERAL (SELECT h.xmin AS written_by FROM ${s}.history h WHERE h.run_id = r.id AND h.seq = r.seq LIMIT 1) h
  WHERE r.id = ANY ($1::uuid[]) AND h.written_by = pg_current_xact_id()::xid))
`,
  (p) => [p.ids],
)

export interface FindRunsParams {
  readonly environment: string
  readonly tenant: string
  /** By id, or by key and definition; parallel, null where it is the other. */
  readonly ids: readonly (string | null)[]
  readonly definitions: readonly (string | null)[]
  readonly keys: readonly (string | null)[]
}

export const findRuns = defineStatement<FindRunsParams>(
  'find_runs',
  (s) => `
SELECT (
  SELECT r.id FROM ${s}.runs r
  WHERE r.id = coalesce(i.id, (
      SELECT u.run_id FROM ${s}.uniques u
      WHERE u.tenant = $2::text AND u.environment_id = e.id AND u.scope = i.definition AND u.token = i.key LIMIT 1))
    AND r.environment_id = e.id AND EXISTS (SELECT FROM ${s}.lanes l WHERE l.id = r.lane_id AND l.tenant = $2::text)
) AS id
FROM unnest($3::uuid[], $4::text[], $5::text[]) WITH ORDINALITY AS i(id, definition, key, ordinal)
LEFT JOIN ${s}.environments e ON e.name = $1::text
ORDER BY i.ordinal
`,
  (p) => [p.environment, p.tenant, p.ids, p.definitions, p.keys],
)
