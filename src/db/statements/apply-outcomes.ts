import { CLOCK, defineStatement } from './statement.ts'

/** One committed transition of a claimed run each. Arrays of the same length; a shorter or empty one means null for the rest. */
export interface ApplyOutcomesParams {
  readonly now: string | null
  readonly ids: readonly string[]
  readonly seqs: readonly number[]
  readonly claimIds: readonly string[]
  /** next, continue, wait, join, done, fail, retry, snooze, discard, cancel, release */
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
  /** Names of a wait, joined by the unit separator. */
  readonly awaits: readonly (string | null)[]
  /** Wall time of the attempt, milliseconds. */
  readonly elapsedMs: readonly number[]
  readonly attempts: readonly number[]
  readonly payloadBytes: readonly (number | null)[]
}

/**
 * Commits outcomes of claimed runs, each under its guard (run, claim, seq) and only while the claim's lease lasts. What hangs off an
 * outcome in later statements of the batch finds it by its history row, written here. Answers only the exceptions: rows that were
 * not changed (`applied_before` when history holds that transition of that claim, else stale), and those that ended otherwise than
 * asked because a cancellation had been requested.
 */
export const applyOutcomes = defineStatement<ApplyOutcomesParams>(
  'apply_outcomes',
  (s) => `
WITH ${CLOCK},
alive AS MATERIALIZED (SELECT c.id FROM ${s}.claims c WHERE c.id = ANY (ARRAY(SELECT DISTINCT unnest($4::uuid[]))) AND c.lease_until > (SELECT at FROM clock)),
outcomes AS MATERIALIZED (
  SELECT o.*, o.outcome IN ('next', 'continue', 'wait', 'join') AS progress, o.status >= 'completed' AND o.status <= 'discarded' AS final
  FROM unnest((SELECT $2::uuid[]), (SELECT $3::int[]), (SELECT $4::uuid[]), (SELECT $5::text[]), (SELECT $6::${s}.run_status[]), (SELECT $7::text[]), (SELECT $8::text[]), (SELECT $9::text[]),
      (SELECT $10::text[]), (SELECT $11::text[]), (SELECT $12::float8[]), (SELECT $13::text[]), (SELECT $14::float8[]), (SELECT $15::int[]), (SELECT $16::int[]))
    AS o(id, seq, claim_id, outcome, status, from_step, step, state, result, error, delay_ms, awaits, elapsed_ms, attempt, payload_bytes)
),
applied AS (
  UPDATE ${s}.runs r
  SET seq = r.seq + 1,
      status = CASE WHEN o.final OR r.cancel_requested_at IS NULL THEN o.status ELSE 'cancelled' END,
      notable = CASE WHEN NOT o.final AND r.cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN o.status IN ('waiting', 'failed', 'cancelled', 'discarded', 'uncertain') THEN o.status END,
      claimed_by = CASE WHEN o.status = 'running' AND r.cancel_requested_at IS NULL THEN r.claimed_by END,
      available_at = CASE
        WHEN o.final OR o.outcome IN ('release', 'continue') THEN r.available_at
        WHEN o.status = 'pending' AND o.delay_ms IS NOT NULL THEN clock.at + make_interval(secs => o.delay_ms / 1000)
        ELSE clock.at
      END,
      timer_at = CASE WHEN o.final OR r.cancel_requested_at IS NOT NULL OR o.delay_ms IS NULL OR (o.status = 'pending' AND o.delay_ms <= 0) THEN NULL ELSE clock.at + make_interval(secs => o.delay_ms / 1000) END,
      finished_at = CASE WHEN o.final OR r.cancel_requested_at IS NOT NULL THEN clock.at END,
      updated_at = clock.at,
      step = coalesce(o.step, r.step),
      visit = r.visit + o.progress::int,
      failures = CASE WHEN o.progress THEN 0 ELSE r.failures + (o.outcome IN ('retry', 'fail'))::int END,
      losses = CASE WHEN o.progress THEN 0 ELSE r.losses END,
      lonely_losses = CASE WHEN o.progress THEN 0 ELSE r.lonely_losses END,
      snoozes = CASE WHEN o.progress THEN 0 ELSE r.snoozes + (o.outcome = 'snooze')::int END,
      awaits = CASE WHEN o.awaits IS NOT NULL THEN string_to_array(o.awaits, E'\\x1f') WHEN o.progress OR o.final THEN NULL ELSE r.awaits END,
      timed_out = CASE WHEN o.progress THEN false ELSE r.timed_out END,
      join_seq = CASE WHEN o.outcome = 'join' THEN r.seq + 1 WHEN o.progress OR o.final THEN NULL ELSE r.join_seq END,
      join_remaining = NULL,
      payload_bytes = coalesce(o.payload_bytes, r.payload_bytes),
      state = CASE WHEN o.state IS NULL THEN r.state ELSE o.state::jsonb END,
      result = o.result::jsonb,
      error = CASE WHEN o.error IS NOT NULL THEN o.error::jsonb WHEN o.outcome IN ('snooze', 'release') THEN r.error END
  FROM outcomes o, clock
  WHERE r.id = o.id AND r.seq = o.seq AND r.claimed_by = o.claim_id AND r.status = 'running' AND o.claim_id IN (SELECT id FROM alive)
  RETURNING r.id, r.seq, r.visit - o.progress::int AS visit, r.status, o.status AS asked, o.outcome, o.attempt, o.elapsed_ms, o.claim_id, o.from_step, o.error, r.updated_at,
    r.lane_id, r.losses, r.priority, r.available_at, r.position, r.timer_at, r.hold
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome, error)
  SELECT a.id, a.seq, a.visit, a.attempt, a.claim_id, a.updated_at - make_interval(secs => a.elapsed_ms / 1000), a.updated_at, a.from_step,
    CASE WHEN a.status = a.asked THEN a.outcome ELSE 'cancel' END, a.error::jsonb
  FROM applied a
),
windowed AS (
  INSERT INTO ${s}.ready (lane_id, priority, available_at, position, run_id)
  SELECT CASE WHEN a.losses > 0 THEN -a.lane_id ELSE a.lane_id END, a.priority, a.available_at, a.position, a.id
  FROM applied a WHERE a.status = 'pending' AND a.timer_at IS NULL AND a.hold IS NULL
)
SELECT o.id, a.status, a.id IS NOT NULL AS changed, EXISTS (
    SELECT FROM ${s}.history h WHERE h.run_id = o.id AND h.seq = o.seq + 1 AND h.claimed_by = o.claim_id
  ) AS applied_before
FROM outcomes o LEFT JOIN applied a ON a.id = o.id
WHERE a.id IS NULL OR a.status <> o.status
`,
  (p) => [
    p.now,
    p.ids,
    p.seqs,
    p.claimIds,
    p.outcomes,
    p.statuses,
    p.fromSteps,
    p.steps,
    p.states,
    p.results,
    p.errors,
    p.delaysMs,
    p.awaits,
    p.elapsedMs,
    p.attempts,
    p.payloadBytes,
  ],
)
