/** Uncertain runs: how they come to be so by their handler, and how a person resolves them. */
import type { OneRunParams } from './change-runs.ts'
import { CLOCK, defineStatement, instantText } from './statement.ts'
import { intoWindow } from './window.ts'

/** What was known and decided before, when a run (`r`) is uncertain once more: kept, so that a decision is known by its id for good. */
export const EARLIER = `CASE WHEN r.uncertainty IS NULL THEN '{}'::jsonb
  ELSE jsonb_build_object('earlier', coalesce(r.uncertainty->'earlier', '[]'::jsonb) || jsonb_build_array(r.uncertainty - 'earlier')) END`

/** Notes what is known of runs whose outcome in this batch was `uncertain`. After `apply_outcomes`; resent, it changes nothing. */
export const noteUncertainty = defineStatement<{
  readonly now: string | null
  readonly ids: readonly string[]
  /** By, reason and evidence, as JSON. Parallel to the ids. */
  readonly reports: readonly string[]
}>(
  'note_uncertainty',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.runs r
SET uncertainty = jsonb_build_object('since', ${instantText('clock.at')}, 'step', r.step, 'visit', r.visit, 'attempt', r.failures + r.losses) || i.report::jsonb || ${EARLIER}
FROM unnest($2::uuid[], $3::text[]) AS i(id, report), clock
WHERE r.id = i.id AND r.status = 'uncertain' AND r.xmin = pg_current_xact_id()::xid
`,
  (p) => [p.now, p.ids, p.reports],
)

export interface ResolveRunParams extends OneRunParams {
  readonly resolutionId: string
  /** success, failure, replay */
  readonly decision: string
  /** JSON text. */
  readonly result: string | null
  readonly error: string | null
  /** What is kept of the decision, as JSON text. */
  readonly resolution: string
  /** Of the whole command: another one under the same id is refused. */
  readonly fingerprint: string
}

/**
 * Ends an uncertain run as a person says, or starts its step again. After `lockFamilies`. A decision is known by its id, also of those
 * made when the run was uncertain before: `same` says that this very command was carried out already, `other` that another one bears its id.
 * A replay is the same visit, so the handler has the same idempotency key; it is refused once the run's cancellation was requested. No row:
 * no such run of this tenant.
 */
export const resolveRun = defineStatement<ResolveRunParams>(
  'resolve_run',
  (s) => `
WITH ${CLOCK},
before AS MATERIALIZED (
  SELECT r.id, r.status, r.seq, r.cancel_requested_at IS NOT NULL AS cancel_requested, (
    SELECT x.known->'resolution'->>'fingerprint' FROM jsonb_array_elements(jsonb_build_array(r.uncertainty) || coalesce(r.uncertainty->'earlier', '[]'::jsonb)) AS x(known)
    WHERE x.known->'resolution'->>'id' = $5::text LIMIT 1) AS known
  FROM ${s}.runs r
  WHERE r.id = $4::uuid AND r.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text)
    AND EXISTS (SELECT FROM ${s}.lanes l WHERE l.id = r.lane_id AND l.tenant = $3::text)
),
resolved AS (
  UPDATE ${s}.runs r
  SET seq = r.seq + 1, updated_at = clock.at,
      status = CASE $6::text WHEN 'success' THEN 'completed' WHEN 'failure' THEN 'failed' ELSE 'pending' END::${s}.run_status,
      notable = CASE WHEN $6::text = 'failure' THEN 'failed'::${s}.run_status END,
      finished_at = CASE WHEN $6::text <> 'replay' THEN clock.at END,
      available_at = CASE WHEN $6::text = 'replay' THEN clock.at ELSE r.available_at END,
      timer_at = NULL,
      awaits = CASE WHEN $6::text <> 'success' THEN r.awaits END,
      join_seq = CASE WHEN $6::text <> 'success' THEN r.join_seq END,
      result = $7::jsonb, error = CASE WHEN $6::text = 'replay' THEN r.error ELSE $8::jsonb END,
      uncertainty = r.uncertainty || jsonb_build_object('resolution', $9::jsonb || jsonb_build_object('at', ${instantText('clock.at')}))
  FROM clock, before b
  WHERE r.id = b.id AND r.status = 'uncertain' AND b.known IS NULL AND NOT ($6::text = 'replay' AND r.cancel_requested_at IS NOT NULL)
  RETURNING r.id, r.seq, r.visit, r.failures, r.losses, r.step, r.lane_id, r.priority, r.available_at, r.position, r.updated_at, r.hold, r.error, r.status
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome, error)
  SELECT x.id, x.seq, x.visit, x.failures + x.losses, NULL, x.updated_at, x.updated_at, x.step, 'resolved', CASE WHEN x.status = 'failed' THEN x.error END FROM resolved x
),
windowed AS (
  ${intoWindow(s, 'resolved', `x.status = 'pending' AND x.hold IS NULL`)}
  ON CONFLICT DO NOTHING
)
SELECT b.id, coalesce((SELECT x.status FROM resolved x), b.status) AS status, b.cancel_requested, EXISTS (SELECT FROM resolved) AS resolved,
  coalesce(b.known = $10::text, false) AS same, coalesce(b.known <> $10::text, false) AS other
FROM before b
`,
  (p) => [p.now, p.environment, p.tenant, p.id, p.resolutionId, p.decision, p.result, p.error, p.resolution, p.fingerprint],
)
