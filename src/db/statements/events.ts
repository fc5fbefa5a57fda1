/** Emitting, and telling those who wait: of an event, or of the end of a run. */
import { CLOCK, defineStatement } from './statement.ts'
import { endDedup, endOfRun, eventDedup } from './topics.ts'
import { intoWindow } from './window.ts'

export interface WriteEventParams {
  readonly now: string | null
  readonly environment: string
  /** Of this request: an event that bears it was written by it. */
  readonly nonce: string
  readonly tenant: string
  readonly name: string
  readonly payload: string
  readonly retentionMs: number
  /** The receipt of this request, that must be its own and undecided. */
  readonly receiptKey: string | null
  /** The message that this comes from, that must be locked by `lock_message`. */
  readonly messageId: string | null
}

/** Writes an event unless one of its name is there that has not expired. After `take_topic`. */
export const writeEvent = defineStatement<WriteEventParams>(
  'write_event',
  (s) => `
WITH ${CLOCK},
environment AS (SELECT id FROM ${s}.environments WHERE name = $2::text)
INSERT INTO ${s}.events (tenant, environment_id, name, created_at, expires_at, payload, nonce)
SELECT $4::text, e.id, $5::text, clock.at, clock.at + make_interval(secs => $7::float8 / 1000), $6::jsonb, $3::uuid FROM environment e CROSS JOIN clock
WHERE ($8::text IS NULL OR (
    SELECT true FROM ${s}.receipts t WHERE t.tenant = $4::text AND t.environment_id = e.id AND t.key = $8::text AND t.nonce = $3::uuid AND t.decision IS NULL))
  AND ($9::bigint IS NULL OR (
    SELECT true FROM ${s}.outbox o WHERE o.environment_id = e.id AND o.id = $9::bigint AND o.xmax = pg_current_xact_id()::xid))
ON CONFLICT (tenant, environment_id, name) DO UPDATE
  SET created_at = excluded.created_at, expires_at = excluded.expires_at, payload = excluded.payload, nonce = excluded.nonce
  WHERE events.expires_at <= excluded.created_at
`,
  (p) => [p.now, p.environment, p.nonce, p.tenant, p.name, p.payload, p.retentionMs, p.receiptKey, p.messageId],
)

export interface ReadEventParams {
  readonly environment: string
  readonly nonce: string
  readonly tenant: string
  readonly name: string
  readonly receiptKey: string | null
}

/** Notes on the receipt of this request what became of it, once. */
export const decideEvent = defineStatement<ReadEventParams>(
  'decide_event',
  (s) => `
WITH environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $1::text)
UPDATE ${s}.receipts t
SET decision = jsonb_build_object('created', v.nonce = $2::uuid, 'emittedAt', extract(epoch FROM v.created_at) * 1000, 'expiresAt', extract(epoch FROM v.expires_at) * 1000)
FROM ${s}.events v
WHERE v.tenant = $3::text AND v.environment_id = (SELECT id FROM environment) AND v.name = $4::text
  AND t.tenant = $3::text AND t.environment_id = (SELECT id FROM environment) AND t.key = $5::text AND t.nonce = $2::uuid AND t.decision IS NULL
`,
  (p) => [p.environment, p.nonce, p.tenant, p.name, p.receiptKey],
)

export const readEvent = defineStatement<ReadEventParams>(
  'read_event',
  (s) => `
SELECT v.nonce = $2::uuid AS created, (extract(epoch FROM v.created_at) * 1000)::float8 AS emitted_at, (extract(epoch FROM v.expires_at) * 1000)::float8 AS expires_at,
  t.nonce = $2::uuid AS receipt_is_ours, t.fingerprint, t.decision
FROM ${s}.environments e
LEFT JOIN ${s}.events v ON v.environment_id = e.id AND v.tenant = $3::text AND v.name = $4::text
LEFT JOIN ${s}.receipts t ON t.tenant = $3::text AND t.environment_id = e.id AND t.key = $5::text
WHERE e.name = $1::text
`,
  (p) => [p.environment, p.nonce, p.tenant, p.name, p.receiptKey],
)

export interface WaitersParams {
  readonly environment: string
  readonly tenant: string
  readonly topic: string
  /** Only registrations behind that run; null: from the first on. */
  readonly after: string | null
  readonly limit: number
}

/** The registrations of one pass, in the order of the runs' ids. */
const registered = (s: string, environment: string, tenant: string, topic: string, after: string, limit: string) => `
    SELECT w.run_id FROM ${s}.event_waits w
    WHERE w.tenant = ${tenant}::text AND w.environment_id = (SELECT id FROM ${s}.environments WHERE name = ${environment}::text) AND w.topic = ${topic}::text
      AND w.run_id > coalesce(${after}::uuid, '00000000-0000-0000-0000-000000000000')
    ORDER BY w.run_id LIMIT ${limit}::int`

const lockingWaiters = (s: string, lock: string) => `
SELECT count(*)::int AS locked FROM (
  SELECT FROM ${s}.runs r
  WHERE r.id = ANY (ARRAY(${registered(s, '$1', '$2', '$3', '$4', '$5')}) || CASE WHEN $3::text LIKE 'run:%' THEN ARRAY[substr($3::text, 5)::uuid] END)
  ORDER BY r.id FOR NO KEY UPDATE OF r ${lock}
) x
`
const waitersParams = (p: WaitersParams) => [p.environment, p.tenant, p.topic, p.after, p.limit]

/** Behind the lock of an event's name nothing waits for a run, whose flush may be waiting for that name: those held by others are told later. */
export const lockFreeWaiters = defineStatement<WaitersParams>(
  'lock_free_waiters',
  (s) => lockingWaiters(s, 'SKIP LOCKED'),
  waitersParams,
)

/** The same in a batch that holds no name: waits for them, the awaited run among them, in the one order. */
export const lockWaiters = defineStatement<WaitersParams>('lock_waiters', (s) => lockingWaiters(s, ''), waitersParams)

export interface TellParams extends WaitersParams {
  readonly now: string | null
  /** Of the request that emits: only what it wrote is told. Null: a message tells. */
  readonly nonce: string | null
  /** The message that this comes from, which is moved on or deleted; null: what is left over becomes one. */
  readonly messageId: string | null
}

/**
 * Puts what happened (`source`: payload and dedup key) into the inbox of the waiters that the statement before has locked (`xmax` is ours), and
 * wakes those that wait. A registration ends when its run was told, or has ended; one whose run has known this event before stays, for the next.
 */
const telling = (s: string, source: string, whenDone: string) => `
WITH ${CLOCK},
environment AS MATERIALIZED (SELECT id FROM ${s}.environments WHERE name = $2::text),
message AS MATERIALIZED (
  SELECT o.id FROM ${s}.outbox o WHERE o.environment_id = (SELECT id FROM environment) AND o.id = $8::bigint AND o.xmax = pg_current_xact_id()::xid
),
source AS MATERIALIZED (${source}),
listed AS MATERIALIZED (${registered(s, '$2', '$3', '$4', '$5', '$6')}),
waiters AS MATERIALIZED (
  SELECT r.id, r.finished_at IS NOT NULL AS ended, r.status = 'waiting' AND coalesce($4::text = ANY (r.awaits), false) AS wakes FROM listed x JOIN ${s}.runs r ON r.id = x.run_id
  WHERE r.xmax = pg_current_xact_id()::xid AND ($8::bigint IS NULL OR EXISTS (SELECT FROM message))
),
told AS (
  INSERT INTO ${s}.signals (run_id, name, payload, dedup_key, created_at)
  SELECT w.id, $4::text, source.payload, source.dedup_key, clock.at FROM waiters w CROSS JOIN source CROSS JOIN clock WHERE NOT w.ended
  ON CONFLICT (run_id, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
  RETURNING run_id
),
woken AS (
  UPDATE ${s}.runs r
  SET signalled = true,
      status = CASE WHEN w.wakes THEN 'pending'::${s}.run_status ELSE r.status END,
      notable = CASE WHEN w.wakes THEN NULL ELSE r.notable END,
      timer_at = CASE WHEN w.wakes THEN NULL ELSE r.timer_at END,
      available_at = CASE WHEN w.wakes THEN clock.at ELSE r.available_at END,
      updated_at = CASE WHEN w.wakes THEN clock.at ELSE r.updated_at END,
      seq = r.seq + w.wakes::int
  FROM waiters w, clock
  WHERE r.id = w.id AND r.id = ANY (ARRAY(SELECT t.run_id FROM told t))
  RETURNING r.id, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold, w.wakes
),
windowed AS (
  ${intoWindow(s, 'woken', 'x.wakes AND x.hold IS NULL')}
  ON CONFLICT DO NOTHING
),
unregistered AS (
  DELETE FROM ${s}.event_waits w
  WHERE w.tenant = $3::text AND w.environment_id = (SELECT id FROM environment) AND w.topic = $4::text
    AND w.run_id = ANY (ARRAY(SELECT t.run_id FROM told t UNION ALL SELECT x.id FROM waiters x WHERE x.ended))
),
pass AS (
  SELECT (SELECT count(*) FROM waiters) AS seen, (SELECT x.id FROM waiters x ORDER BY x.id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM listed) >= $6::int AS more, (SELECT count(*) FROM listed) > (SELECT count(*) FROM waiters) AS skipped
),
moved AS (
  UPDATE ${s}.outbox o SET body = jsonb_build_object('after', p.last) FROM pass p
  WHERE o.environment_id = (SELECT id FROM environment) AND o.id = (SELECT m.id FROM message m) AND p.more AND p.seen > 0
),
${whenDone},
done AS (
  DELETE FROM ${s}.outbox o USING pass p
  WHERE o.environment_id = (SELECT id FROM environment) AND o.id = (SELECT m.id FROM message m) AND NOT (p.more AND p.seen > 0)
),
left_over AS (
  INSERT INTO ${s}.outbox (created_at, environment_id, tenant, kind, subject)
  SELECT clock.at, e.id, $3::text, 'topic', $4::text FROM pass p CROSS JOIN clock CROSS JOIN environment e
  WHERE $8::bigint IS NULL AND (p.more OR p.skipped) AND EXISTS (SELECT FROM source)
  RETURNING 1
)
SELECT (SELECT count(*)::int FROM told) AS told, (SELECT count(*)::int FROM woken w WHERE w.wakes) AS woken,
  EXISTS (SELECT FROM left_over) OR (p.more AND p.seen > 0) AS more
FROM pass p
`
const tellParams = (p: TellParams) => [p.now, p.environment, p.tenant, p.topic, p.after, p.limit, p.nonce, p.messageId]

export const tellEvent = defineStatement<TellParams>(
  'tell_event',
  (s) =>
    telling(
      s,
      `
  SELECT e.payload, ${eventDedup('e')} AS dedup_key FROM ${s}.events e
  WHERE e.tenant = $3::text AND e.environment_id = (SELECT id FROM environment) AND e.name = substr($4::text, 7) AND ($7::uuid IS NULL OR e.nonce = $7::uuid)`,
      'nothing AS (SELECT)',
    ),
  tellParams,
)

/** Once all have been told, the run is nobody's to wait for, and retention may have it. */
export const tellEnd = defineStatement<TellParams>(
  'tell_end',
  (s) =>
    telling(
      s,
      `
  SELECT ${endOfRun('r', 'l.definition')} AS payload, ${endDedup('r')} AS dedup_key FROM ${s}.runs r JOIN ${s}.lanes l ON l.id = r.lane_id
  WHERE r.id = substr($4::text, 5)::uuid AND r.finished_at IS NOT NULL AND $7::uuid IS NULL`,
      `
unawaited AS (
  UPDATE ${s}.runs r SET awaited = false FROM pass p
  WHERE r.id = substr($4::text, 5)::uuid AND r.finished_at IS NOT NULL AND EXISTS (SELECT FROM message) AND NOT (p.more AND p.seen > 0)
)`,
    ),
  tellParams,
)

/** Deletes events that have expired. */
export const pruneEvents = defineStatement<{ readonly now: string | null; readonly environment: string; readonly limit: number }>(
  'prune_events',
  (s) => `
WITH ${CLOCK},
expired AS MATERIALIZED (
  SELECT e.ctid AS place FROM ${s}.events e
  WHERE e.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND e.expires_at <= (SELECT at FROM clock)
  ORDER BY e.expires_at LIMIT (SELECT $3::int) FOR UPDATE OF e SKIP LOCKED
)
DELETE FROM ${s}.events e WHERE e.ctid = ANY (ARRAY(SELECT x.place FROM expired x)) AND e.expires_at <= (SELECT at FROM clock)
`,
  (p) => [p.now, p.environment, p.limit],
)
