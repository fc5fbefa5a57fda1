import { CLOCK, defineStatement } from './statement.ts'
import { intoWindow } from './window.ts'

export interface DeliverSignalParams {
  readonly now: string | null
  readonly environment: string
  readonly nonce: string
  readonly tenant: string
  /** The target: an id, or a key with or without its definition. */
  readonly runId: string | null
  readonly key: string | null
  readonly definition: string | null
  readonly name: string
  readonly payload: string | null
  readonly receiptKey: string | null
}

/**
 * Whether this signal wakes the run. The update asks it of the row again: after a wait for the lock, constraints are checked of the row
 * as the snapshot has it before it is found to have changed, so that what was decided of the new row must not be written to the old.
 */
const WAKES = `r.status = 'waiting' AND coalesce($8::text = ANY (r.awaits), false)`

/**
 * Puts a signal into the inbox of a live run and wakes it when it waits for that name. The target is locked by id whatever its status;
 * whether it is live and whether it waits is decided under the lock, and only then is the signal inserted: inserted first, it could be
 * left on a run that has just ended; woken by a filter on the status, a run that is being parked at this moment would be passed over.
 */
export const deliverSignal = defineStatement<DeliverSignalParams>(
  'deliver_signal',
  (s) => `
WITH ${CLOCK},
environment AS (SELECT id FROM ${s}.environments WHERE name = $2::text),
addressed AS MATERIALIZED (
  SELECT $5::uuid AS id WHERE $5::uuid IS NOT NULL
  UNION ALL
  SELECT u.run_id FROM ${s}.uniques u
  WHERE $5::uuid IS NULL AND u.tenant = $4::text AND u.environment_id = (SELECT id FROM environment) AND u.token = $6::text AND ($7::text IS NULL OR u.scope = $7::text)
    AND (SELECT r.finished_at FROM ${s}.runs r WHERE r.id = u.run_id) IS NULL
),
target AS MATERIALIZED (
  SELECT r.id, ${WAKES} AS wakes FROM ${s}.runs r
  WHERE r.id = ANY (ARRAY(SELECT a.id FROM addressed a)) AND (SELECT count(*) FROM addressed) = 1
    AND r.environment_id = (SELECT id FROM environment)
    AND EXISTS (SELECT FROM ${s}.lanes l WHERE l.id = r.lane_id AND l.tenant = $4::text)
    AND ($10::text IS NULL OR EXISTS (
      SELECT FROM ${s}.receipts t WHERE t.tenant = $4::text AND t.environment_id = (SELECT id FROM environment) AND t.key = $10::text AND t.nonce = $3::uuid AND t.decision IS NULL))
    AND r.status NOT IN ('completed', 'failed', 'cancelled', 'discarded')
  FOR NO KEY UPDATE OF r
),
inserted AS (
  INSERT INTO ${s}.signals (run_id, name, payload, dedup_key, created_at) SELECT t.id, $8::text, $9::jsonb, $3::uuid::text, clock.at FROM target t, clock
  ON CONFLICT (run_id, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
  RETURNING id, run_id
),
decided AS (
  UPDATE ${s}.receipts t SET decision = jsonb_build_object('signalId', i.id::text, 'runId', i.run_id)
  FROM inserted i
  WHERE $10::text IS NOT NULL AND t.tenant = $4::text AND t.environment_id = (SELECT id FROM environment) AND t.key = $10::text AND t.nonce = $3::uuid
),
woken AS (
  UPDATE ${s}.runs r
  SET signalled = true,
      status = CASE WHEN ${WAKES} THEN 'pending'::${s}.run_status ELSE r.status END,
      notable = CASE WHEN ${WAKES} THEN NULL ELSE r.notable END,
      timer_at = CASE WHEN ${WAKES} THEN NULL ELSE r.timer_at END,
      available_at = CASE WHEN ${WAKES} THEN clock.at ELSE r.available_at END,
      updated_at = CASE WHEN ${WAKES} THEN clock.at ELSE r.updated_at END,
      seq = r.seq + (${WAKES})::int
  FROM inserted i, target t, clock
  WHERE r.id = i.run_id AND t.id = i.run_id
  RETURNING r.id, t.wakes AS woke, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold
),
windowed AS (
  ${intoWindow(s, 'woken', 'x.woke AND x.hold IS NULL')}
  ON CONFLICT DO NOTHING
)
SELECT coalesce(i.id, x.id)::text AS signal_id, coalesce(i.run_id, x.run_id) AS run_id, (SELECT count(*)::int FROM addressed) AS addressed,
  coalesce((SELECT w.woke FROM woken w), false) AS woke
FROM (SELECT) one
LEFT JOIN inserted i ON true
LEFT JOIN ${s}.signals x ON i.id IS NULL AND x.run_id = ANY (ARRAY(SELECT a.id FROM addressed a)) AND x.dedup_key = $3::uuid::text
`,
  (p) => [p.now, p.environment, p.nonce, p.tenant, p.runId, p.key, p.definition, p.name, p.payload, p.receiptKey],
)

export interface ReceiptParams {
  readonly environment: string
  readonly nonce: string
  readonly tenant: string
  readonly receiptKey: string
  readonly fingerprint: string
}

/** Takes back receipts of this request on which nothing was decided: an unknown target is nothing worth remembering. */
export const forgetReceipt = defineStatement<ReceiptParams>(
  'forget_receipt',
  (s) => `
DELETE FROM ${s}.receipts t
WHERE t.tenant = $3::text AND t.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) AND t.key = $4::text AND t.nonce = $2::uuid AND t.decision IS NULL
`,
  (p) => [p.environment, p.nonce, p.tenant, p.receiptKey],
)

export const readReceipt = defineStatement<ReceiptParams>(
  'read_receipt',
  (s) => `
SELECT t.nonce = $2::uuid AS is_ours, t.fingerprint = $5::text AS matches, t.decision FROM ${s}.receipts t
WHERE t.tenant = $3::text AND t.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) AND t.key = $4::text
`,
  (p) => [p.environment, p.nonce, p.tenant, p.receiptKey, p.fingerprint],
)
