import { CLOCK, defineStatement } from './statement.ts'

/** Items of one admission that bear an idempotency key, or hold a business key. The arrays are parallel. */
export interface WriteReceiptsParams {
  readonly now: string | null
  readonly environment: string
  /** Marks the receipts that this request wrote: only they are acted upon. A resend bears the same. */
  readonly nonce: string
  readonly tenants: readonly string[]
  readonly keys: readonly string[]
  readonly fingerprints: readonly string[]
  readonly keepMs: number
}

/**
 * Writes a receipt per idempotency key, in key order; an expired one is taken over. A key that another request is writing right now
 * makes this wait for its commit, so that the next statement reads what it decided.
 */
export const writeReceipts = defineStatement<WriteReceiptsParams>(
  'write_receipts',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.receipts (tenant, environment_id, key, fingerprint, nonce, created_at, expires_at)
SELECT DISTINCT ON (i.tenant, i.key) i.tenant, e.id, i.key, i.fingerprint, $3::uuid, clock.at, clock.at + make_interval(secs => $7::float8 / 1000)
FROM unnest($4::text[], $5::text[], $6::text[]) WITH ORDINALITY AS i(tenant, key, fingerprint, ordinal)
JOIN ${s}.environments e ON e.name = $2::text
CROSS JOIN clock
ORDER BY i.tenant, i.key, i.ordinal
ON CONFLICT (tenant, environment_id, key) DO UPDATE
  SET fingerprint = excluded.fingerprint, nonce = excluded.nonce, created_at = excluded.created_at, expires_at = excluded.expires_at, decision = NULL
  WHERE receipts.expires_at <= excluded.created_at
`,
  (p) => [p.now, p.environment, p.nonce, p.tenants, p.keys, p.fingerprints, p.keepMs],
)

export interface TakeKeysParams {
  readonly environment: string
  readonly nonce: string
  readonly ids: readonly string[]
  readonly tenants: readonly string[]
  /** The definition: a key names one run of it. */
  readonly scopes: readonly string[]
  readonly keys: readonly string[]
  readonly receiptKeys: readonly (string | null)[]
  /** Of children: the join that spawns them. Empty when none is a child. */
  readonly parentIds: readonly string[]
  readonly parentJoinSeqs: readonly number[]
}

/**
 * Takes business keys in key order; a taken one stays with its run. Waits for a request that is taking or freeing the same key. A run
 * that exists already (a resend) takes nothing again, and neither do children of a parent that this transaction did not park: they will
 * never come to be, and nobody would free their keys. What is looked up by a whole key is a value, not EXISTS, which may be answered by
 * reading the table.
 */
export const takeKeys = defineStatement<TakeKeysParams>(
  'take_keys',
  (s) => `
INSERT INTO ${s}.uniques (tenant, environment_id, scope, token, run_id)
SELECT DISTINCT ON (i.tenant, i.scope, i.key) i.tenant, e.id, i.scope, i.key, i.id
FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::int[])
  WITH ORDINALITY AS i(id, tenant, scope, key, receipt_key, parent_id, parent_join_seq, ordinal)
JOIN ${s}.environments e ON e.name = $1::text
WHERE (i.parent_id IS NULL OR (
    SELECT true FROM ${s}.runs p WHERE p.id = i.parent_id AND p.join_seq = i.parent_join_seq AND p.status = 'waiting' AND p.xmin = pg_current_xact_id()::xid))
  AND (SELECT true FROM ${s}.runs r WHERE r.id = i.id) IS NULL
  AND (i.receipt_key IS NULL OR (
    SELECT true FROM ${s}.receipts t WHERE t.tenant = i.tenant AND t.environment_id = e.id AND t.key = i.receipt_key AND t.nonce = $2::uuid))
ORDER BY i.tenant, i.scope, i.key, i.ordinal
ON CONFLICT DO NOTHING
`,
  (p) => [p.environment, p.nonce, p.ids, p.tenants, p.scopes, p.keys, p.receiptKeys, p.parentIds, p.parentJoinSeqs],
)

export interface ReadAdmissionsParams {
  readonly environment: string
  readonly nonce: string
  readonly ids: readonly string[]
  readonly tenants: readonly string[]
  readonly scopes: readonly string[]
  readonly keys: readonly (string | null)[]
  readonly receiptKeys: readonly (string | null)[]
  readonly fingerprints: readonly (string | null)[]
}

const admissions = (s: string) => `
  SELECT i.ordinal, i.id, i.tenant, i.receipt_key, i.fingerprint, e.id AS environment_id, r.id AS own_id, r.status AS own_status,
    r.environment_id = e.id AND (SELECT l.tenant FROM ${s}.lanes l WHERE l.id = r.lane_id) = i.tenant AS own_is_visible,
    coalesce(r.nonce = $2::uuid, false) AS own_is_new, u.run_id AS occupant_id,
    (SELECT o.status FROM ${s}.runs o WHERE o.id = u.run_id) AS occupant_status
  FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) WITH ORDINALITY AS i(id, tenant, scope, key, receipt_key, fingerprint, ordinal)
  JOIN ${s}.environments e ON e.name = $1::text
  LEFT JOIN ${s}.runs r ON r.id = i.id
  LEFT JOIN LATERAL (
    SELECT x.run_id FROM ${s}.uniques x WHERE i.key IS NOT NULL AND x.tenant = i.tenant AND x.environment_id = e.id AND x.scope = i.scope AND x.token = i.key LIMIT 1
  ) u ON true`

/** Writes on each receipt of this request what was decided, once. Each is found by its key, one probe an item, and written where it was found. */
export const decideReceipts = defineStatement<ReadAdmissionsParams>(
  'decide_receipts',
  (s) => `
WITH admissions AS (${admissions(s)})
UPDATE ${s}.receipts t
SET decision = CASE
  WHEN NOT a.own_is_visible THEN jsonb_build_object('taken', true)
  WHEN a.own_is_new THEN jsonb_build_object('id', a.own_id, 'status', 'pending', 'created', true)
  WHEN a.own_id IS NOT NULL THEN jsonb_build_object('id', a.own_id, 'status', a.own_status, 'created', false)
  WHEN a.occupant_id IS NOT NULL THEN jsonb_build_object('id', a.occupant_id, 'status', a.occupant_status, 'created', false)
END
FROM admissions a
WHERE t.ctid = ANY (ARRAY(SELECT x.place FROM admissions b CROSS JOIN LATERAL (
    SELECT y.ctid AS place FROM ${s}.receipts y WHERE y.tenant = b.tenant AND y.environment_id = b.environment_id AND y.key = b.receipt_key LIMIT 1) x))
  AND t.tenant = a.tenant AND t.environment_id = a.environment_id AND t.key = a.receipt_key AND t.nonce = $2::uuid AND t.decision IS NULL
`,
  (p) => [p.environment, p.nonce, p.ids, p.tenants, p.scopes, p.keys, p.receiptKeys, p.fingerprints],
)

/**
 * What became of each item, in order, read with a fresh snapshot after the writes: `own_status` when the run exists, the occupant of
 * its key when another has it, and the receipt with its decision.
 */
export const readAdmissions = defineStatement<ReadAdmissionsParams>(
  'read_admissions',
  (s) => `
WITH admissions AS (${admissions(s)})
SELECT a.own_id, a.own_status, a.own_is_visible, a.own_is_new, a.occupant_id, a.occupant_status, t.nonce = $2::uuid AS receipt_is_ours, t.fingerprint = a.fingerprint AS receipt_matches, t.decision
FROM admissions a
LEFT JOIN LATERAL (
  SELECT * FROM ${s}.receipts x WHERE a.receipt_key IS NOT NULL AND x.tenant = a.tenant AND x.environment_id = a.environment_id AND x.key = a.receipt_key LIMIT 1
) t ON true
ORDER BY a.ordinal
`,
  (p) => [p.environment, p.nonce, p.ids, p.tenants, p.scopes, p.keys, p.receiptKeys, p.fingerprints],
)
