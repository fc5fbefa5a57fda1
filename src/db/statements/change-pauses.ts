import { CLOCK, defineStatement, epochMs } from './statement.ts'
import { intoWindow, outOfWindow } from './window.ts'

export interface PauseParams {
  readonly now: string | null
  readonly environment: string
  /** Empty: of all tenants. */
  readonly tenant: string
  readonly kind: 'queue' | 'definition'
  readonly name: string
  readonly by: string | null
  /** Known without having run: may be paused all the same. */
  readonly declared: boolean
}

/** Marks advisory locks (held by a transaction, never by a session) between pausing and the making of lanes; any number that nobody else uses. */
export const PAUSE_LOCK_CLASS = 7_252_029

/**
 * First in a batch that pauses or resumes. Whoever makes a lane holds the same lock as a sharer (`ensureEnvironment`): a lane made at this
 * moment would neither know of the pause nor be found by it.
 */
export const lockPauses = defineStatement<{ readonly environment: string }>(
  'lock_pauses',
  () => `SELECT pg_advisory_xact_lock(${PAUSE_LOCK_CLASS}, hashtext($1::text)) IS NULL AS locked`,
  (p) => [p.environment],
)

const environment = (s: string) => `environment AS (SELECT e.id FROM ${s}.environments e WHERE e.name = $1::text)`

/** Lanes of that queue or definition, of that tenant or of all. */
const lanesOf = (s: string) => `
  ${s}.lanes l WHERE l.environment_id = (SELECT id FROM environment) AND ($2::text = '' OR l.tenant = $2::text)
    AND CASE $3::text WHEN 'queue' THEN l.queue ELSE l.definition END = $4::text`

const isKnown = (s: string, declared: string) => `(${declared}::boolean OR EXISTS (SELECT FROM ${lanesOf(s)}))`

/** A pause that stands keeps who began it and when. `did`: it is new. */
export const insertPause = defineStatement<PauseParams>(
  'insert_pause',
  (s) => `
WITH ${environment(s)},
inserted AS (
  INSERT INTO ${s}.pauses (tenant, environment_id, kind, name, paused_by, paused_at)
  SELECT $2::text, e.id, $3::text, $4::text, $5::text, coalesce($7::timestamptz, now()) FROM environment e WHERE ${isKnown(s, '$6')}
  ON CONFLICT DO NOTHING
  RETURNING 1
)
SELECT EXISTS (SELECT FROM inserted) AS did
`,
  (p) => [p.environment, p.tenant, p.kind, p.name, p.by, p.declared, p.now],
)

export const deletePause = defineStatement<PauseParams>(
  'delete_pause',
  (s) => `
WITH ${environment(s)},
deleted AS (
  DELETE FROM ${s}.pauses p
  WHERE p.tenant = $2::text AND p.environment_id = (SELECT id FROM environment) AND p.kind = $3::text AND p.name = $4::text
  RETURNING 1
)
SELECT EXISTS (SELECT FROM deleted) AS did
`,
  (p) => [p.environment, p.tenant, p.kind, p.name],
)

/** Lanes follow the pauses, in a later statement of that batch: paused as long as anything of theirs is, for them or for everybody. */
export const followPauses = defineStatement<PauseParams>(
  'follow_pauses',
  (s) => `
WITH ${environment(s)},
meant AS (
  SELECT l.id, EXISTS (${pausedLane(s, 'l')}) AS paused FROM ${lanesOf(s)}
)
UPDATE ${s}.lanes l SET paused = m.paused FROM meant m WHERE l.id = m.id AND l.paused IS DISTINCT FROM m.paused
`,
  (p) => [p.environment, p.tenant, p.kind, p.name],
)

/** The pauses that stop a lane (or what has its columns). */
export function pausedLane(s: string, lane: string): string {
  return `SELECT FROM ${s}.pauses p
    WHERE p.environment_id = ${lane}.environment_id AND p.tenant IN ('', ${lane}.tenant)
      AND (p.kind, p.name) IN (('queue', ${lane}.queue), ('definition', ${lane}.definition))`
}

/** How it stands: one row when somebody knows the name. The tenant's own pause is told first. */
export const readPause = defineStatement<PauseParams>(
  'read_pause',
  (s) => `
WITH ${environment(s)}
SELECT p.name IS NOT NULL AS paused, p.paused_by AS by, ${epochMs('p.paused_at')} AS since
FROM (SELECT) one
LEFT JOIN ${s}.pauses p ON p.environment_id = (SELECT id FROM environment) AND p.tenant IN ('', $2::text) AND p.kind = $3::text AND p.name = $4::text
WHERE p.name IS NOT NULL OR ${isKnown(s, '$5')}
ORDER BY p.tenant DESC LIMIT 1
`,
  (p) => [p.environment, p.tenant, p.kind, p.name, p.declared],
)

export interface HoldRunParams {
  readonly now: string | null
  readonly environment: string
  readonly tenant: string
  readonly id: string
}

const before = (s: string) => `
before AS MATERIALIZED (
  SELECT r.id, r.status, r.hold, r.hold_detail, r.gates, r.lane_id, r.losses, r.priority, r.available_at, r.position FROM ${s}.runs r
  WHERE r.id = $4::uuid AND r.environment_id = (SELECT e.id FROM ${s}.environments e WHERE e.name = $2::text)
    AND EXISTS (SELECT FROM ${s}.lanes l WHERE l.id = r.lane_id AND l.tenant = $3::text)
)`

const AT_TEXT = `to_char(clock.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** What a change of the hold leaves alone: of a running run, since when it runs. */
const UPDATED_AT = `CASE WHEN r.status = 'running' THEN r.updated_at ELSE clock.at END`

/**
 * Holds a run that has not ended, after its lock. It leaves the window, and the line of a gate, but its timer goes on; whatever makes it ready
 * asks for the hold. A running one keeps its claim: the outcome of its step finds the hold.
 */
export const holdRun = defineStatement<HoldRunParams & { readonly by: string | null }>(
  'hold_run',
  (s) => `
WITH ${CLOCK},
${before(s)},
held AS (
  UPDATE ${s}.runs r
  SET hold = 'paused', hold_detail = jsonb_strip_nulls(jsonb_build_object('by', $5::text, 'since', ${AT_TEXT})), blocked_on = NULL, updated_at = ${UPDATED_AT}
  FROM clock
  WHERE r.id = (SELECT b.id FROM before b) AND r.hold IS NULL AND r.finished_at IS NULL
  RETURNING r.hold, r.hold_detail
),
left_window AS (
  ${outOfWindow(s, 'before', `x.status = 'pending' AND x.hold IS NULL`)}
)
SELECT b.status, b.gates, coalesce(h.hold, b.hold) AS hold, coalesce(h.hold_detail, b.hold_detail) AS hold_detail,
  CASE WHEN h.hold IS NOT NULL THEN 'paused' WHEN b.status IN ('completed', 'failed', 'cancelled', 'discarded') THEN 'already_ended'
    WHEN b.hold = 'paused' THEN 'already_paused' ELSE 'already_held' END AS did
FROM before b LEFT JOIN held h ON true
`,
  (p) => [p.now, p.environment, p.tenant, p.id, p.by],
)

/** Ends the hold of a run, after its lock: back into the window when nothing else keeps it, in its old place. */
export const unholdRun = defineStatement<HoldRunParams>(
  'unhold_run',
  (s) => `
WITH ${CLOCK},
${before(s)},
freed AS (
  UPDATE ${s}.runs r SET hold = NULL, hold_detail = NULL, timer_at = CASE WHEN r.hold = 'mismatch' THEN NULL ELSE r.timer_at END, updated_at = ${UPDATED_AT}
  FROM clock
  WHERE r.id = (SELECT b.id FROM before b) AND r.hold IS NOT NULL AND r.finished_at IS NULL
  RETURNING r.id, r.status, r.timer_at, r.blocked_on, r.lane_id, r.losses, r.priority, r.available_at, r.position
),
windowed AS (
  ${intoWindow(s, 'freed', `x.status = 'pending' AND x.timer_at IS NULL AND x.blocked_on IS NULL`)}
  ON CONFLICT DO NOTHING
)
SELECT b.status, NULL::text AS hold, NULL::jsonb AS hold_detail,
  CASE WHEN EXISTS (SELECT FROM freed) THEN 'resumed' WHEN b.status IN ('completed', 'failed', 'cancelled', 'discarded') THEN 'already_ended' ELSE 'not_paused' END AS did
FROM before b
`,
  (p) => [p.now, p.environment, p.tenant, p.id],
)
