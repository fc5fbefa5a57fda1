/**
 * Ending runs from outside of a flush: a cancellation, a deadline that has passed, a parent that was cancelled. There is one way: lock the
 * families, write the request on the run (`request_cancel`, `judge_deadlines`, `follow_parents`), then `end_requested` ends those that
 * nobody works on. A running one ends at its flush, or at its rescue; an uncertain one keeps the request beside its evidence.
 */
import { CLOCK, defineStatement } from './statement.ts'
import { outOfWindow } from './window.ts'

/** On a run that was cancelled in a wait: there is no step to start again with. */
export const CUT_WAIT = `'{"cancelledIn": "waiting"}'::jsonb`

/** True of a row that this transaction has locked or written. No foreign key points at `runs`, so its lock is always a plain one. */
export const isOurs = (row: string) => `(${row}.xmax = pg_current_xact_id()::xid OR ${row}.xmin = pg_current_xact_id()::xid)`

/** The same of a run and the parent it reports to: what `try_lock_families` had to leave to others is left alone. */
export const isOursWithParent = (s: string, run: string) => `
  ${isOurs(run)} AND coalesce((SELECT ${isOurs('p')} FROM ${s}.runs p WHERE p.id = ${run}.parent_id), true)`

/** A child that ends with its parent and has not been asked to. */
export const followsParent = (child: string) => `
  ${child}.finished_at IS NULL AND ${child}.cancel_requested_at IS NULL AND NOT coalesce((${child}.policy ->> 'outlivesParent')::boolean, false)`

/**
 * The last join (its seq) whose children follow the cancellation of `parent`. One that was started again after it has made those behind that
 * anew, and they are no part of it.
 */
export const lastJoinToFollow = (s: string, parent: string) => `coalesce((
    SELECT h.seq FROM ${s}.runs p CROSS JOIN LATERAL (
      SELECT x.seq FROM ${s}.history x WHERE x.run_id = p.id AND x.outcome = 'retried' ORDER BY x.seq DESC LIMIT 1
    ) h
    WHERE p.id = ${parent} AND p.status <> 'cancelled' AND p.cancel_requested_at IS NULL), 2147483647)`

/**
 * Leaves word that the children of those runs (`asked`: id, environment_id) are to follow, where there are any; beside `clock`. Whether it has
 * children at all is asked first, in the order of `runs_parent_idx`, which is what answers it then: where a few large families are all that
 * statistics know of, the second question has the table read to its end, for each run that has none.
 */
export const cascading = (s: string) => `
cascaded AS (
  INSERT INTO ${s}.cascades (parent_id, environment_id, created_at)
  SELECT a.id, a.environment_id, clock.at FROM asked a, clock
  WHERE CASE WHEN (SELECT true FROM ${s}.runs k WHERE k.parent_id = a.id ORDER BY k.parent_join_seq, k.child_index LIMIT 1)
    THEN (SELECT true FROM ${s}.runs k WHERE k.parent_id = a.id AND ${followsParent('k')} LIMIT 1) END
  ON CONFLICT DO NOTHING
  RETURNING parent_id
)`

const families = (s: string, lock: string) => `
SELECT FROM ${s}.runs r
WHERE r.id = ANY (ARRAY(
  SELECT i.id FROM unnest($1::uuid[]) AS i(id)
  UNION SELECT x.parent_id FROM ${s}.runs x WHERE x.id = ANY ($1::uuid[])))
ORDER BY r.id ${lock}
`

/** Locks runs together with the parents they report to, in the one order. Waits. */
export const lockFamilies = defineStatement<{ readonly ids: readonly string[] }>(
  'lock_families',
  (s) => families(s, 'FOR NO KEY UPDATE'),
  (p) => [p.ids],
)

/** The same without waiting: what others hold is theirs, and left to a later pass. */
export const tryLockFamilies = defineStatement<{ readonly ids: readonly string[] }>(
  'try_lock_families',
  (s) => families(s, 'FOR NO KEY UPDATE SKIP LOCKED'),
  (p) => [p.ids],
)

export interface RequestCancelParams {
  readonly now: string | null
  readonly environment: string
  readonly tenant: string
  readonly ids: readonly string[]
  /** The error that a run ends with for it. */
  readonly cancellation: string
}

/**
 * Writes the request to end on runs that have not ended and bear none, after `lockFamilies`. Answers each run of that tenant as it was:
 * `asked` is null where there was nothing to write, `children` says that some follow.
 */
export const requestCancel = defineStatement<RequestCancelParams>(
  'request_cancel',
  (s) => `
WITH ${CLOCK},
before AS MATERIALIZED (
  SELECT r.id, r.status, r.gates, r.cancel_requested_at FROM ${s}.runs r
  WHERE r.id = ANY ($4::uuid[]) AND r.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text)
    AND (SELECT l.tenant FROM ${s}.lanes l WHERE l.id = r.lane_id) = $3::text
),
asked AS (
  UPDATE ${s}.runs r SET cancel_requested_at = clock.at, cancellation = $5::jsonb
  FROM clock
  WHERE r.id = ANY (ARRAY(SELECT b.id FROM before b WHERE b.status NOT IN ('completed', 'failed', 'cancelled', 'discarded') AND b.cancel_requested_at IS NULL))
  RETURNING r.id, r.environment_id
),
${cascading(s)}
SELECT b.id, b.status, b.gates, a.id AS asked,
  b.id IN (SELECT c.parent_id FROM cascaded c) OR (SELECT true FROM ${s}.cascades c WHERE c.parent_id = b.id AND c.join_seq = 0) IS NOT NULL AS children
FROM before b LEFT JOIN asked a ON a.id = b.id
`,
  (p) => [p.now, p.environment, p.tenant, p.ids, p.cancellation],
)

/**
 * Ends those of the runs that bear a request and that nobody works on: pending (due, delayed, blocked, held) and waiting ones. After a lock
 * of their families, in its transaction; what that could not lock stays. With a run go its timer, its deadline and its row of the window;
 * what else follows an end hangs off its history row, like that of a flush. The row of the window is found by
 * its whole key: it is written only under the lock of its run, which is held by now. Answers what ended, and the gates it stood before.
 */
export const endRequested = defineStatement<{ readonly now: string | null; readonly ids: readonly string[] }>(
  'end_requested',
  (s) => `
WITH ${CLOCK},
before AS MATERIALIZED (
  SELECT r.id, r.status, r.gates, r.lane_id, r.losses, r.priority, r.available_at, r.position FROM ${s}.runs r
  WHERE r.id = ANY ($2::uuid[]) AND r.status IN ('pending', 'waiting') AND r.cancel_requested_at IS NOT NULL AND ${isOursWithParent(s, 'r')}
),
ended AS (
  UPDATE ${s}.runs r
  SET status = 'cancelled', notable = 'cancelled', seq = r.seq + 1, finished_at = clock.at, updated_at = clock.at, timer_at = NULL, deadline_at = NULL,
      awaits = CASE WHEN r.status = 'pending' THEN r.awaits END, join_seq = CASE WHEN r.status = 'pending' THEN r.join_seq END, join_remaining = NULL,
      join_spare = NULL, blocked_on = NULL, hold = NULL, hold_detail = CASE WHEN r.status = 'waiting' THEN ${CUT_WAIT} END, error = r.cancellation
  FROM clock
  WHERE r.id = ANY (ARRAY(SELECT b.id FROM before b)) AND r.status IN ('pending', 'waiting')
  RETURNING r.id, r.seq, r.visit, r.failures, r.losses, r.step, r.updated_at, r.error
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome, error)
  SELECT e.id, e.seq, e.visit, e.failures + e.losses, NULL, e.updated_at, e.updated_at, e.step, 'cancel', e.error FROM ended e
),
left_window AS (
  ${outOfWindow(s, 'before', `x.status = 'pending'`)}
)
SELECT b.id, b.gates FROM before b
`,
  (p) => [p.now, p.ids],
)
