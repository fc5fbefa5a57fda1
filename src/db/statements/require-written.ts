import { admissionParams, admissions, type ReadAdmissionsParams } from './admit-runs.ts'
import { REFUSAL } from './check-transaction.ts'
import type { DeliverSignalParams } from './deliver-signals.ts'
import { defineStatement } from './statement.ts'

/**
 * Fails the batch (22P02) unless every run of it exists, was found under its key, or was decided on before: in a batch of the caller's
 * own nobody is there to send it again, and the rest of it would be committed.
 */
export const requireAdmitted = defineStatement<ReadAdmissionsParams>(
  'require_admitted',
  (s) => `
WITH admissions AS (${admissions(s)})
SELECT (CASE
  WHEN t.fingerprint <> a.fingerprint THEN '${REFUSAL}idempotency_mismatch:' || a.receipt_key
  WHEN t.decision ? 'taken' THEN '${REFUSAL}id_taken:' || a.id
  WHEN t.decision IS NOT NULL THEN '0'
  WHEN a.receipt_key IS NOT NULL THEN '${REFUSAL}not_admitted:' || a.id
  WHEN NOT a.own_is_visible THEN '${REFUSAL}id_taken:' || a.id
  WHEN a.own_id IS NULL AND a.occupant_id IS NULL THEN '${REFUSAL}not_admitted:' || a.id
  ELSE '0' END)::int AS admitted
FROM admissions a
LEFT JOIN LATERAL (
  SELECT x.* FROM ${s}.receipts x WHERE a.receipt_key IS NOT NULL AND x.tenant = a.tenant AND x.environment_id = a.environment_id AND x.key = a.receipt_key LIMIT 1
) t ON true
`,
  admissionParams,
)

export interface RequireDeliveredParams extends Omit<DeliverSignalParams, 'now' | 'name' | 'payload'> {
  readonly fingerprint: string | null
}

/** Fails the batch (22P02) unless the signal is in the inbox of its run, or had been sent before under its idempotency key. */
export const requireDelivered = defineStatement<RequireDeliveredParams>(
  'require_delivered',
  (s) => `
WITH environment AS (SELECT id FROM ${s}.environments WHERE name = $1::text),
receipt AS (
  SELECT t.fingerprint, t.decision FROM ${s}.receipts t
  WHERE $7::text IS NOT NULL AND t.tenant = $3::text AND t.environment_id = (SELECT id FROM environment) AND t.key = $7::text
),
addressed AS (
  SELECT $4::uuid AS id WHERE $4::uuid IS NOT NULL
  UNION ALL
  SELECT u.run_id FROM ${s}.uniques u
  WHERE $4::uuid IS NULL AND u.tenant = $3::text AND u.environment_id = (SELECT id FROM environment) AND u.token = $5::text AND ($6::text IS NULL OR u.scope = $6::text)
)
SELECT (CASE
  WHEN (SELECT r.fingerprint FROM receipt r) <> $8::text THEN '${REFUSAL}idempotency_mismatch:' || $7::text
  WHEN (SELECT r.decision FROM receipt r) IS NOT NULL THEN '0'
  WHEN EXISTS (SELECT FROM addressed a CROSS JOIN LATERAL (
    SELECT g.id FROM ${s}.signals g WHERE g.run_id = a.id AND g.dedup_key = $2::uuid::text LIMIT 1) x) THEN '0'
  WHEN (SELECT count(*) FROM addressed) > 1 THEN '${REFUSAL}ambiguous:' || $5::text
  ELSE '${REFUSAL}no_target:' || coalesce($4::uuid::text, $5::text) END)::int AS delivered
`,
  (p) => [p.environment, p.nonce, p.tenant, p.runId, p.key, p.definition, p.receiptKey, p.fingerprint],
)
