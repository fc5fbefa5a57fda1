import { CLOCK, defineStatement } from './statement.ts'

export interface OneRunParams {
  readonly now: string | null
  readonly environment: string
  readonly tenant: string
  readonly id: string
}

/** On a run that was cancelled in a wait: there is no step to start again with. */
const CUT_WAIT = `'{"cancelledIn": "waiting"}'::jsonb`

const visible = (s: string) => `
  r.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND EXISTS (SELECT FROM ${s}.lanes l WHERE l.id = r.lane_id AND l.tenant = $3::text)`

/** Locks a run together with the parent it reports to, in the one order. */
export const lockFamily = defineStatement<{ readonly id: string }>(
  'lock_family',
  (s) => `
SELECT FROM ${s}.runs r
WHERE r.id = $1::uuid OR r.id = (SELECT x.parent_id FROM ${s}.runs x WHERE x.id = $1::uuid)
ORDER BY r.id FOR NO KEY UPDATE
`,
  (p) => [p.id],
)

/**
 * Cancels a run that is not running, and asks a running or uncertain one to stop. After `lockFamily`. Idempotent; a run that has ended
 * stays as it is. No row: no such run of this tenant. Its row of the window is found by its whole key and deleted where it was found: it is
 * written only under the lock of its run, which is held by now.
 */
export const cancelRun = defineStatement<OneRunParams & { readonly by: string | null }>(
  'cancel_run',
  (s) => `
WITH ${CLOCK},
before AS MATERIALIZED (
  SELECT r.id, r.status, r.gates, r.cancel_requested_at, r.lane_id, r.losses, r.priority, r.available_at, r.position FROM ${s}.runs r
  WHERE r.id = $4::uuid AND ${visible(s)}
),
ended AS (
  UPDATE ${s}.runs r
  SET status = 'cancelled', notable = 'cancelled', seq = r.seq + 1, finished_at = clock.at, updated_at = clock.at, cancel_requested_at = clock.at, timer_at = NULL,
      awaits = CASE WHEN r.status = 'pending' THEN r.awaits END, join_seq = CASE WHEN r.status = 'pending' THEN r.join_seq END, join_remaining = NULL,
      blocked_on = NULL, hold = NULL, hold_detail = CASE WHEN r.status = 'waiting' THEN ${CUT_WAIT} END,
      error = jsonb_build_object('code', 'cancelled', 'message', 'The run was cancelled' || coalesce(' by ' || $5::text, '') || '.')
  FROM clock
  WHERE r.id = (SELECT b.id FROM before b) AND r.status IN ('pending', 'waiting')
  RETURNING r.id, r.seq, r.visit, r.failures, r.losses, r.step, r.updated_at, r.error
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome, error)
  SELECT e.id, e.seq, e.visit, e.failures + e.losses, NULL, e.updated_at, e.updated_at, e.step, 'cancel', e.error FROM ended e
),
left_window AS (
  DELETE FROM ${s}.ready y WHERE y.ctid = ANY (ARRAY(
    SELECT x.place FROM before b CROSS JOIN LATERAL (
      SELECT w.ctid AS place FROM ${s}.ready w
      WHERE w.lane_id = CASE WHEN b.losses > 0 THEN -b.lane_id ELSE b.lane_id END AND w.priority = b.priority AND w.available_at = b.available_at AND w.position = b.position
        AND w.run_id = b.id
      LIMIT 1
    ) x
    WHERE b.status = 'pending'))
),
asked AS (
  UPDATE ${s}.runs r SET cancel_requested_at = clock.at
  FROM clock
  WHERE r.id = (SELECT b.id FROM before b) AND r.status IN ('running', 'uncertain') AND r.cancel_requested_at IS NULL
  RETURNING r.id
)
SELECT b.id, b.status, b.gates,
  CASE WHEN EXISTS (SELECT FROM ended) THEN 'cancelled' WHEN EXISTS (SELECT FROM asked) THEN 'requested' WHEN b.status = 'cancelled' THEN 'already_cancelled'
    WHEN b.status IN ('completed', 'failed', 'discarded') THEN 'already_ended' ELSE 'already_requested' END AS did
FROM before b
`,
  (p) => [p.now, p.environment, p.tenant, p.id, p.by],
)

/**
 * What the run holds while it lives: its key, and what its policy says beside that, unless the time of that is up or it was for the start
 * alone. `r` with its lane `l`; the instant is $1.
 */
const holdings = `
  SELECT l.definition AS scope, r.key AS token, coalesce((r.policy #>> '{key,keep}')::int, 0) AS keep, NULL::timestamptz AS expires_at,
    r.created_at + make_interval(secs => (r.policy #>> '{key,periodMs}')::float8 / 1000) AS reserved_until
  WHERE r.key IS NOT NULL
  UNION ALL
  SELECT x.scope, x.token, x.keep, x.expires_at, NULL
  FROM (SELECT r.policy #>> '{unique,scope}' AS scope, r.policy #>> '{unique,token}' AS token, (r.policy #>> '{unique,keep}')::int AS keep,
    CASE WHEN r.policy #> '{unique,fromSchedule}' IS NULL THEN r.created_at ELSE greatest(r.scheduled_for, r.created_at) END
      + make_interval(secs => (r.policy #>> '{unique,periodMs}')::float8 / 1000) AS expires_at) x
  WHERE x.token IS NOT NULL AND x.keep & 16 = 0 AND coalesce(x.expires_at > coalesce($1::timestamptz, now()), true)`

/** Takes again what an ended run holds while it lives, before `retryRun`; what another run holds stays with it. */
export const retakeKey = defineStatement<OneRunParams>(
  'retake_key',
  (s) => `
INSERT INTO ${s}.uniques AS u (tenant, environment_id, scope, token, run_id, keep, expires_at, reserved_until)
SELECT l.tenant, r.environment_id, h.scope, h.token, r.id, h.keep, h.expires_at, h.reserved_until
FROM (SELECT * FROM ${s}.runs x WHERE x.id = $4::uuid LIMIT 1) r JOIN ${s}.lanes l ON l.id = r.lane_id CROSS JOIN LATERAL (${holdings}) h
WHERE r.status IN ('failed', 'cancelled', 'discarded') AND l.tenant = $3::text
  AND r.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text)
ORDER BY h.scope, h.token
ON CONFLICT (tenant, environment_id, scope, token) DO UPDATE
  SET run_id = excluded.run_id, keep = excluded.keep, expires_at = excluded.expires_at, reserved_until = excluded.reserved_until
  WHERE u.run_id = excluded.run_id OR u.expires_at <= coalesce($1::timestamptz, now())
`,
  (p) => [p.now, p.environment, p.tenant, p.id],
)

/**
 * Starts an ended run again where it stopped: state, signals and committed steps stay, failures and losses begin anew. A parent that still
 * waits has counted it already and does not count it twice. A run that was cancelled while it waited is refused: the step it would start with
 * was to be entered by what it waited for. No row: no such run.
 */
export const retryRun = defineStatement<OneRunParams & { readonly maxAttempts: number | null }>(
  'retry_run',
  (s) => `
WITH ${CLOCK},
before AS MATERIALIZED (
  SELECT r.id, r.status, k.holder, coalesce(k.is_ours, true) AS is_ours, r.max_attempts
  FROM ${s}.runs r
  CROSS JOIN LATERAL (
    SELECT bool_and(coalesce(u.run_id = r.id, false)) AS is_ours, (array_agg(u.run_id) FILTER (WHERE u.run_id <> r.id))[1] AS holder
    FROM ${s}.lanes l CROSS JOIN LATERAL (${holdings}) h
    LEFT JOIN LATERAL (
      SELECT x.run_id FROM ${s}.uniques x WHERE x.tenant = l.tenant AND x.environment_id = r.environment_id AND x.scope = h.scope AND x.token = h.token LIMIT 1
    ) u ON true
    WHERE l.id = r.lane_id
  ) k
  WHERE r.id = $4::uuid AND ${visible(s)} FOR NO KEY UPDATE OF r
),
retried AS (
  UPDATE ${s}.runs r
  SET status = 'pending', notable = NULL, seq = r.seq + 1, visit = r.visit + 1, failures = 0, losses = 0, lonely_losses = 0, snoozes = 0, finished_at = NULL, updated_at = clock.at,
      available_at = clock.at, timer_at = NULL, cancel_requested_at = NULL, error = NULL, result = NULL, max_attempts = coalesce($5::int, r.max_attempts), hold = NULL, hold_detail = NULL,
      parent_join_seq = CASE WHEN NOT EXISTS (
        SELECT FROM ${s}.runs p WHERE p.id = r.parent_id AND p.join_seq = r.parent_join_seq AND p.status = 'waiting') THEN r.parent_join_seq END
  FROM clock, before b
  WHERE r.id = b.id AND r.status IN ('failed', 'cancelled', 'discarded') AND r.hold_detail IS DISTINCT FROM ${CUT_WAIT} AND b.is_ours
    AND ($5::int IS NULL OR $5::int > r.max_attempts)
  RETURNING r.id, r.seq, r.visit, r.step, r.lane_id, r.priority, r.available_at, r.position, r.updated_at
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome)
  SELECT x.id, x.seq, x.visit - 1, 0, NULL, x.updated_at, x.updated_at, x.step, 'retried' FROM retried x
),
windowed AS (
  INSERT INTO ${s}.ready (lane_id, priority, available_at, position, run_id)
  SELECT x.lane_id, x.priority, x.available_at, x.position, x.id FROM retried x
  ON CONFLICT DO NOTHING
)
SELECT b.id, b.status, b.holder, b.is_ours, b.max_attempts, EXISTS (SELECT FROM retried) AS retried FROM before b
`,
  (p) => [p.now, p.environment, p.tenant, p.id, p.maxAttempts],
)
