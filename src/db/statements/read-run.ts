import { defineStatement, epochMs } from './statement.ts'

export interface ReadRunParams {
  readonly environment: string
  readonly tenant: string
  readonly id: string
}

/**
 * The claim that runs an attempt, and the outcome that ended it, count as one; between attempts only what has failed or was lost does.
 * So a run that was never claimed has attempt 0. An attempt that was uncertain has been counted when its success is confirmed.
 */
const ATTEMPT = `r.failures + r.losses
    + (r.status IN ('running', 'discarded') OR r.status = 'completed' AND r.uncertainty->'resolution'->>'decision' IS DISTINCT FROM 'success')::int`

/** When the engine next looks at it without being asked: its timer, or its place in the window. */
const AVAILABLE_AT = `CASE WHEN r.status = 'pending' THEN coalesce(r.timer_at, r.available_at) ELSE r.timer_at END`

/** Columns of a run (`r`) and its lane (`l`) that are small whatever the run is. */
const FACTS = `
  r.id, l.tenant, l.definition, l.version, l.queue, r.status, CASE WHEN r.finished_at IS NULL THEN r.hold END AS hold, r.hold_detail, r.step, r.seq, r.visit, ${ATTEMPT} AS attempt,
  r.max_attempts, r.snoozes, r.losses, r.priority, r.awaits, r.join_remaining, r.timed_out, r.blocked_on, r.key, r.tags, r.origin, r.parent_id, r.position, r.cancellation,
  ${epochMs('r.created_at')} AS created_at, ${epochMs('r.updated_at')} AS updated_at, ${epochMs('r.scheduled_for')} AS scheduled_for,
  ${epochMs(AVAILABLE_AT)} AS available_at, ${epochMs('r.finished_at')} AS finished_at, ${epochMs('r.cancel_requested_at')} AS cancel_requested_at`

/** A run with all its payloads. */
export const RUN_COLUMNS = `${FACTS}, r.headers, r.input, r.state, r.result, r.error, r.uncertainty`

/** A run without what may be large, so that a page of 500 always fits a reply. */
export const LISTED_RUN_COLUMNS = `${FACTS}, NULL::jsonb AS headers, NULL::jsonb AS input, NULL::jsonb AS state, NULL::jsonb AS result, NULL::jsonb AS uncertainty,
  CASE WHEN jsonb_typeof(r.error) = 'object' THEN r.error - 'stack' - 'data' END AS error`

/** The run of that tenant and environment; none for a run of another. */
export const readRun = defineStatement<ReadRunParams>(
  'read_run',
  (s) => `
SELECT ${RUN_COLUMNS}
FROM ${s}.runs r
JOIN ${s}.lanes l ON l.id = r.lane_id
WHERE r.id = $3::uuid
  AND r.environment_id = (SELECT e.id FROM ${s}.environments e WHERE e.name = $1::text)
  AND l.tenant = $2::text
`,
  (p) => [p.environment, p.tenant, p.id],
)
