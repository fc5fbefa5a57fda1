import { CUT_WAIT } from './end-runs.ts'
import { defineStatement, kindsOf } from './statement.ts'
import { intoWindow } from './window.ts'

/** One committed transition of a claimed run each. Arrays of the same length; a shorter or empty one means null for the rest. */
export interface ApplyOutcomesParams {
  readonly now: string | null
  readonly ids: readonly string[]
  readonly seqs: readonly number[]
  readonly claimIds: readonly string[]
  /** next, continue, wait, join, done, fail, retry, snooze, discard, cancel, release, uncertain, hold */
  readonly outcomes: readonly string[]
  readonly statuses: readonly string[]
  /** The step that had this outcome, and the one that follows (null: the same). */
  readonly fromSteps: readonly string[]
  readonly steps: readonly (string | null)[]
  readonly states: readonly (string | null)[]
  readonly results: readonly (string | null)[]
  readonly errors: readonly (string | null)[]
  /** pending: delay · waiting: timeout (null: none). Milliseconds from now. */
  readonly delaysMs: readonly (number | null)[]
  /** pending: an instant in place of a delay, as epoch milliseconds; one that is past is now. */
  readonly untils: readonly (number | null)[]
  /** Names of a wait, joined by the unit separator. */
  readonly awaits: readonly (string | null)[]
  /** Wall time of the attempt, milliseconds. */
  readonly elapsedMs: readonly number[]
  readonly attempts: readonly number[]
  readonly payloadBytes: readonly (number | null)[]
}

const AT = 'coalesce($1::timestamptz, now())'

/** A request to end came before the outcome, which is not one that stands all the same. */
const CUT = 'r.cancel_requested_at IS NOT NULL AND NOT k.firm'
/** What such a run ends with: the request, as it was written. */
const CANCELLED = `coalesce(r.cancellation, '{"code": "cancelled", "message": "The run was cancelled.", "cause": "cancelled"}'::jsonb)`

/**
 * Commits outcomes of claimed runs, each under its guard (run, claim, seq) and only while the claim's lease lasts. What hangs off an
 * outcome in later statements of the batch finds it by its history row, written here. Answers only the exceptions: rows that were
 * not changed (`applied_before` when history holds that transition of that claim, else stale), and those that stand otherwise than asked
 * because a cancellation had been requested, or because they are held and so do not go on here. What is `firm` keeps its status beside a
 * requested cancellation: an end, and uncertainty.
 *
 * What many outcomes of a batch share is sent once, as a kind; what few of them have is read by subscript. Rows are changed in the
 * order given, so ids in order are locked in order.
 */
export const applyOutcomes = defineStatement<ApplyOutcomesParams>(
  'apply_outcomes',
  (s) => `
WITH alive AS MATERIALIZED (SELECT c.id FROM ${s}.claims c WHERE c.id = ANY ((SELECT $4::uuid[])::uuid[]) AND c.lease_until - (SELECT ${AT}) > '0'),
kinds AS (
  SELECT k.*, k.outcome IN ('next', 'continue', 'wait', 'join') AS progress, k.status >= 'completed' AND k.status <= 'discarded' AS final, k.status >= 'completed' AS firm,
    CASE WHEN k.status IN ('waiting', 'failed', 'cancelled', 'discarded', 'uncertain') THEN k.status END AS notable,
    k.claim_id IN (SELECT a.id FROM alive a) AS alive
  FROM unnest((SELECT $4::uuid[]), (SELECT $5::int[]), (SELECT $6::text[]), (SELECT $7::${s}.run_status[]), (SELECT $8::text[]), (SELECT $9::text[]), (SELECT $10::int[]))
    WITH ORDINALITY AS k(claim_id, seq, outcome, status, from_step, step, attempt, kind)
),
applied AS (
  UPDATE ${s}.runs r
  SET seq = r.seq + 1,
      status = CASE WHEN ${CUT} THEN 'cancelled' WHEN k.status = 'running' AND r.hold IS NOT NULL THEN 'pending' ELSE k.status END,
      notable = CASE WHEN ${CUT} THEN 'cancelled' ELSE k.notable END,
      claimed_by = CASE WHEN k.status = 'running' AND r.cancel_requested_at IS NULL AND r.hold IS NULL THEN r.claimed_by END,
      available_at = CASE
        WHEN k.final OR k.outcome IN ('release', 'continue', 'hold') THEN r.available_at
        WHEN ($18::float8[])[o.n] IS NOT NULL THEN greatest(to_timestamp(($18::float8[])[o.n] / 1000), ${AT})
        WHEN k.status = 'pending' AND ($14::float8[])[o.n] IS NOT NULL THEN ${AT} + make_interval(secs => ($14::float8[])[o.n] / 1000)
        ELSE ${AT}
      END,
      timer_at = CASE
        WHEN k.final OR r.cancel_requested_at IS NOT NULL THEN NULL
        WHEN to_timestamp(($18::float8[])[o.n] / 1000) > ${AT} THEN to_timestamp(($18::float8[])[o.n] / 1000)
        WHEN ($14::float8[])[o.n] IS NULL OR k.status = 'pending' AND ($14::float8[])[o.n] <= 0 THEN NULL
        ELSE ${AT} + make_interval(secs => ($14::float8[])[o.n] / 1000)
      END,
      finished_at = CASE WHEN k.final OR ${CUT} THEN ${AT} END,
      deadline_at = CASE WHEN NOT k.final AND NOT (${CUT}) THEN r.deadline_at END,
      updated_at = ${AT},
      step = coalesce(k.step, r.step),
      visit = r.visit + k.progress::int,
      failures = CASE WHEN k.progress THEN 0 ELSE r.failures + (k.outcome IN ('retry', 'fail', 'uncertain'))::int END,
      losses = CASE WHEN k.progress THEN 0 ELSE r.losses END,
      lonely_losses = CASE WHEN k.progress THEN 0 ELSE r.lonely_losses END,
      snoozes = CASE WHEN k.progress THEN 0 ELSE r.snoozes + (k.outcome = 'snooze')::int END,
      awaits = CASE WHEN ($15::text[])[o.n] IS NOT NULL THEN string_to_array(($15::text[])[o.n], E'\\x1f') WHEN k.progress OR k.final AND k.outcome NOT IN ('fail', 'cancel') THEN NULL ELSE r.awaits END,
      timed_out = r.timed_out AND NOT k.progress,
      join_seq = CASE WHEN k.outcome = 'join' THEN r.seq + 1 WHEN k.progress OR k.final AND k.outcome NOT IN ('fail', 'cancel') THEN NULL ELSE r.join_seq END,
      join_remaining = NULL,
      payload_bytes = coalesce(($17::int[])[o.n], r.payload_bytes),
      state = CASE WHEN ($11::text[])[o.n] IS NULL THEN r.state ELSE ($11::text[])[o.n]::jsonb END,
      result = ($12::text[])[o.n]::jsonb,
      hold_detail = CASE WHEN k.outcome IN ('wait', 'join') AND ${CUT} THEN ${CUT_WAIT} ELSE r.hold_detail END,
      error = CASE WHEN ${CUT} OR k.outcome = 'cancel' THEN ${CANCELLED} WHEN ($13::text[])[o.n] IS NOT NULL THEN ($13::text[])[o.n]::jsonb WHEN k.outcome IN ('snooze', 'release') THEN r.error END
  FROM unnest((SELECT $2::uuid[]), (SELECT $3::int[])) WITH ORDINALITY AS o(id, kind, n), kinds k
  WHERE k.kind = coalesce(o.kind, 1) AND k.alive AND r.id = o.id AND r.seq = k.seq AND r.claimed_by = k.claim_id AND r.status = 'running'
  RETURNING r.id, r.environment_id, r.awaited AND r.finished_at IS NOT NULL AS tells, r.seq, r.visit - k.progress::int AS visit, r.status, k.status AS asked, k.outcome, k.attempt, o.n, k.claim_id, k.from_step, r.updated_at,
    CASE WHEN r.status = 'cancelled' THEN r.error END AS cancelled, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.status = 'pending' AND r.timer_at IS NULL AND r.hold IS NULL AS due
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome, error)
  SELECT a.id, a.seq, a.visit, a.attempt, a.claim_id, a.updated_at - make_interval(secs => ($16::float8[])[a.n] / 1000), a.updated_at, a.from_step,
    CASE WHEN a.status = a.asked OR a.status = 'pending' THEN a.outcome ELSE 'cancel' END, coalesce(a.cancelled, ($13::text[])[a.n]::jsonb)
  FROM applied a
),
windowed AS (
  ${intoWindow(s, 'applied', 'x.due')}
),
told AS (
  INSERT INTO ${s}.outbox (created_at, environment_id, tenant, kind, subject)
  SELECT a.updated_at, a.environment_id, (SELECT l.tenant FROM ${s}.lanes l WHERE l.id = a.lane_id), 'end', 'run:' || a.id FROM applied a WHERE a.tells
)
SELECT o.id, a.status, a.id IS NOT NULL AS changed, (
    SELECT true FROM ${s}.history h WHERE h.run_id = o.id AND h.seq = k.seq + 1 AND h.claimed_by = k.claim_id
  ) IS NOT NULL AS applied_before
FROM unnest((SELECT $2::uuid[]), (SELECT $3::int[])) AS o(id, kind)
JOIN kinds k ON k.kind = coalesce(o.kind, 1)
LEFT JOIN applied a ON a.id = o.id
WHERE (SELECT count(*) FROM applied x WHERE x.status = x.asked) <> cardinality($2::uuid[]) AND (a.id IS NULL OR a.status <> k.status)
`,
  (p) => {
    const shared = kindsOf(p.ids.length, [p.claimIds, p.seqs, p.outcomes, p.statuses, p.fromSteps, p.steps, p.attempts])
    return [
      p.now,
      p.ids,
      shared.kinds,
      ...shared.columns,
      p.states,
      p.results,
      p.errors,
      p.delaysMs,
      p.awaits,
      p.elapsedMs,
      p.payloadBytes,
      p.untils,
    ]
  },
)
