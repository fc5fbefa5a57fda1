import { CUT_WAIT } from './end-runs.ts'
import { CLOCK, defineStatement } from './statement.ts'
import { intoWindow } from './window.ts'

export interface OneRunParams {
  readonly now: string | null
  readonly environment: string
  readonly tenant: string
  readonly id: string
}

const visible = (s: string) => `
  r.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND EXISTS (SELECT FROM ${s}.lanes l WHERE l.id = r.lane_id AND l.tenant = $3::text)`

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

/**
 * Takes again what ended runs hold while they live, before each `retryRun`, in the order in which spawns take keys; what another run holds stays
 * with it. Of two that want the same, the first has it.
 */
export const retakeKeys = defineStatement<Omit<OneRunParams, 'id'> & { readonly ids: readonly string[] }>(
  'retake_keys',
  (s) => `
INSERT INTO ${s}.uniques AS u (tenant, environment_id, scope, token, run_id, keep, expires_at, reserved_until)
SELECT DISTINCT ON (h.scope, h.token) l.tenant, r.environment_id, h.scope, h.token, r.id, h.keep, h.expires_at, h.reserved_until
FROM unnest($4::uuid[]) WITH ORDINALITY AS i(id, n) CROSS JOIN LATERAL (SELECT * FROM ${s}.runs x WHERE x.id = i.id LIMIT 1) r
JOIN ${s}.lanes l ON l.id = r.lane_id CROSS JOIN LATERAL (${holdings}) h
WHERE r.status IN ('failed', 'cancelled', 'discarded') AND l.tenant = $3::text
  AND r.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text)
ORDER BY h.scope, h.token, i.n
ON CONFLICT (tenant, environment_id, scope, token) DO UPDATE
  SET run_id = excluded.run_id, keep = excluded.keep, expires_at = excluded.expires_at, reserved_until = excluded.reserved_until
  WHERE u.run_id = excluded.run_id OR u.expires_at <= coalesce($1::timestamptz, now())
`,
  (p) => [p.now, p.environment, p.tenant, p.ids],
)

/** The deadlines of a run that is started again count from now. The wait before its first start is over for good. */
const anew = `
      policy = CASE WHEN r.policy ?| ARRAY['maxTotalMs', 'maxIdleMs'] THEN r.policy || jsonb_build_object('sinceMs', extract(epoch FROM clock.at) * 1000) ELSE r.policy END,
      deadline_at = clock.at + make_interval(secs => least((r.policy ->> 'maxTotalMs')::float8, (r.policy ->> 'maxIdleMs')::float8) / 1000)`

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
      available_at = clock.at, timer_at = NULL, cancel_requested_at = NULL, cancellation = NULL, error = NULL, result = NULL, max_attempts = coalesce($5::int, r.max_attempts), hold = NULL, hold_detail = NULL,
      ${anew},
      parent_join_seq = CASE WHEN NOT EXISTS (
        SELECT FROM ${s}.runs p WHERE p.id = r.parent_id AND p.join_seq = r.parent_join_seq AND p.status = 'waiting') THEN r.parent_join_seq END
  FROM clock, before b
  WHERE r.id = b.id AND r.status IN ('failed', 'cancelled', 'discarded') AND r.hold_detail IS DISTINCT FROM ${CUT_WAIT} AND b.is_ours
    AND ($5::int IS NULL OR $5::int > r.max_attempts)
  RETURNING r.id, r.seq, r.visit, r.step, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.updated_at
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome)
  SELECT x.id, x.seq, x.visit - 1, 0, NULL, x.updated_at, x.updated_at, x.step, 'retried' FROM retried x
),
windowed AS (
  ${intoWindow(s, 'retried', 'true')}
  ON CONFLICT DO NOTHING
)
SELECT b.id, b.status, b.holder, b.is_ours, b.max_attempts, EXISTS (SELECT FROM retried) AS retried FROM before b
`,
  (p) => [p.now, p.environment, p.tenant, p.id, p.maxAttempts],
)
