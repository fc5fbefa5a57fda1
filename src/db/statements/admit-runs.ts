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
 * A spawn that may change a run that is there, and came without an idempotency key, has a receipt of its own, so that its resend changes
 * nothing: named by this and its id, which no key of a caller can be, and kept for as long as a resend may be under way, in seconds.
 */
export const OWN_RECEIPT_PREFIX = '\u001f'
const OWN_RECEIPT_SECONDS = 600

/**
 * Writes a receipt per idempotency key, in key order; an expired one is taken over. A key that another request is writing right now
 * makes this wait for its commit, so that the next statement reads what it decided. One under which nothing was decided (what it asked for is
 * to be sent again, by who may be gone by now) is taken over by the same request: nothing was written for it, and the one who had it finds the answer.
 */
export const writeReceipts = defineStatement<WriteReceiptsParams>(
  'write_receipts',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.receipts (tenant, environment_id, key, fingerprint, nonce, created_at, expires_at)
SELECT DISTINCT ON (i.tenant, i.key) i.tenant, e.id, i.key, i.fingerprint, $3::uuid, clock.at,
  clock.at + make_interval(secs => CASE WHEN starts_with(i.key, E'\\x1f') THEN ${OWN_RECEIPT_SECONDS} ELSE $7::float8 / 1000 END)
FROM unnest($4::text[], $5::text[], $6::text[]) WITH ORDINALITY AS i(tenant, key, fingerprint, ordinal)
JOIN ${s}.environments e ON e.name = $2::text
CROSS JOIN clock
ORDER BY i.tenant, i.key, i.ordinal
ON CONFLICT (tenant, environment_id, key) DO UPDATE
  SET fingerprint = excluded.fingerprint, nonce = excluded.nonce, created_at = excluded.created_at, expires_at = excluded.expires_at, decision = NULL
  WHERE receipts.expires_at <= excluded.created_at OR receipts.decision IS NULL AND receipts.fingerprint = excluded.fingerprint
`,
  (p) => [p.now, p.environment, p.nonce, p.tenants, p.keys, p.fingerprints, p.keepMs],
)

export interface TakeKeysParams {
  readonly now: string | null
  readonly environment: string
  readonly nonce: string
  /** One entry each: a run may want two. */
  readonly ids: readonly string[]
  readonly tenants: readonly string[]
  /** Of a key the definition: a key names one run of it. */
  readonly scopes: readonly string[]
  readonly tokens: readonly string[]
  readonly keeps: readonly (number | null)[]
  /** When anybody may take it over, whatever its run does: milliseconds from now, or from an instant (epoch milliseconds) that is still to come. */
  readonly expiresMs: readonly (number | null)[]
  readonly expiresFrom: readonly (number | null)[]
  /** Until when it is reserved at least: milliseconds from now. */
  readonly reservesMs: readonly (number | null)[]
  readonly receiptKeys: readonly (string | null)[]
  /** Of children: the join that spawns them. Empty when none is a child. */
  readonly parentIds: readonly string[]
  readonly parentJoinSeqs: readonly number[]
}

const AT = 'coalesce($1::timestamptz, now())'

/** A run that no step of has begun: it may still be given another start, or another input. */
export const unstarted = (r: string) =>
  `${r}.status = 'pending' AND ${r}.visit = 1 AND ${r}.failures = 0 AND ${r}.losses = 0 AND ${r}.snoozes = 0`

/**
 * Anybody may take it over: its time is up, or it was held only until its run started. A run that cannot be seen is one that was written
 * after the snapshot, by whom this has waited for: it has not started.
 */
const free = (s: string, u: string) => `(coalesce(${u}.expires_at <= ${AT}, false)
    OR ${u}.keep & 16 <> 0 AND coalesce((SELECT NOT (${unstarted('h')}) FROM ${s}.runs h WHERE h.id = ${u}.run_id), false))`

/**
 * Takes keys and other entries, in their order; one that is held stays with its run, and is not locked (a flush that frees it must not wait
 * for a caller's transaction). Waits for a request that is taking the same. A run that exists already (a resend) takes nothing again, and
 * neither do children of a parent that this transaction did not park: they will never come to be, and nobody would free what they took.
 * What is looked up by a whole key is a value, not EXISTS, which may be answered by reading the table.
 */
export const takeKeys = defineStatement<TakeKeysParams>(
  'take_keys',
  (s) => `
INSERT INTO ${s}.uniques AS u (tenant, environment_id, scope, token, run_id, keep, expires_at, reserved_until)
SELECT DISTINCT ON (i.tenant, i.scope, i.token) i.tenant, e.id, i.scope, i.token, i.id, coalesce(i.keep, 0),
  CASE WHEN i.expires_ms IS NOT NULL THEN greatest(to_timestamp(i.expires_from / 1000), ${AT}) + make_interval(secs => i.expires_ms / 1000) END,
  ${AT} + make_interval(secs => i.reserve_ms / 1000)
FROM unnest($4::uuid[], $5::text[], $6::text[], $7::text[], $8::int[], $9::float8[], $10::float8[], $11::float8[], $12::text[], $13::uuid[], $14::int[])
  WITH ORDINALITY AS i(id, tenant, scope, token, keep, expires_ms, expires_from, reserve_ms, receipt_key, parent_id, parent_join_seq, ordinal)
JOIN ${s}.environments e ON e.name = $2::text
WHERE (i.parent_id IS NULL OR (
    SELECT true FROM ${s}.runs p WHERE p.id = i.parent_id AND p.join_seq = i.parent_join_seq AND p.status = 'waiting' AND p.xmin = pg_current_xact_id()::xid))
  AND (SELECT true FROM ${s}.runs r WHERE r.id = i.id) IS NULL
  AND (i.receipt_key IS NULL OR (
    SELECT true FROM ${s}.receipts t WHERE t.tenant = i.tenant AND t.environment_id = e.id AND t.key = i.receipt_key AND t.nonce = $3::uuid AND t.decision IS NULL))
  AND (SELECT true FROM ${s}.uniques x WHERE x.tenant = i.tenant AND x.environment_id = e.id AND x.scope = i.scope AND x.token = i.token AND NOT ${free(s, 'x')}) IS NULL
ORDER BY i.tenant, i.scope, i.token, i.ordinal
ON CONFLICT (tenant, environment_id, scope, token) DO UPDATE
  SET run_id = excluded.run_id, keep = excluded.keep, expires_at = excluded.expires_at, reserved_until = excluded.reserved_until
  WHERE ${free(s, 'u')}
`,
  (p) => [
    p.now,
    p.environment,
    p.nonce,
    p.ids,
    p.tenants,
    p.scopes,
    p.tokens,
    p.keeps,
    p.expiresMs,
    p.expiresFrom,
    p.reservesMs,
    p.receiptKeys,
    p.parentIds,
    p.parentJoinSeqs,
  ],
)

/** Frees what runs of this request took and then did not come to be, because they did not get all they wanted. */
export const dropUnborn = defineStatement<{ readonly ids: readonly string[] }>(
  'drop_unborn',
  (s) => `
DELETE FROM ${s}.uniques u
WHERE u.run_id = ANY ((SELECT $1::uuid[])::uuid[]) AND (SELECT true FROM ${s}.runs r WHERE r.id = u.run_id) IS NULL
`,
  (p) => [p.ids],
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
  /** What a run holds beside its key. */
  readonly uniqueScopes: readonly (string | null)[]
  readonly uniqueTokens: readonly (string | null)[]
  /** What is to be done to a run that is there: reschedule, debounce, batch. */
  readonly modes: readonly (string | null)[]
}

/** Each item with the run of its id, and with the other run that has its key or its entry. The parameters $1 to $11. */
export const admissions = (s: string) => `
  SELECT i.ordinal, i.id, i.tenant, i.receipt_key, i.fingerprint, i.mode, e.id AS environment_id, r.id AS own_id, r.status AS own_status,
    r.environment_id = e.id AND (SELECT l.tenant FROM ${s}.lanes l WHERE l.id = r.lane_id) = i.tenant AS own_is_visible,
    coalesce(r.nonce = $2::uuid, false) AS own_is_new, u.run_id AS occupant_id, o.status AS occupant_status, o.is_unstarted AS occupant_is_unstarted
  FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[])
    WITH ORDINALITY AS i(id, tenant, scope, key, receipt_key, fingerprint, unique_scope, unique_token, mode, ordinal)
  JOIN ${s}.environments e ON e.name = $1::text
  LEFT JOIN ${s}.runs r ON r.id = i.id
  CROSS JOIN LATERAL (SELECT coalesce(
    (SELECT x.run_id FROM ${s}.uniques x
      WHERE i.key IS NOT NULL AND x.tenant = i.tenant AND x.environment_id = e.id AND x.scope = i.scope AND x.token = i.key AND x.run_id <> i.id),
    (SELECT x.run_id FROM ${s}.uniques x
      WHERE i.unique_token IS NOT NULL AND x.tenant = i.tenant AND x.environment_id = e.id AND x.scope = i.unique_scope AND x.token = i.unique_token AND x.run_id <> i.id)
  ) AS run_id) u
  LEFT JOIN LATERAL (SELECT h.status, ${unstarted('h')} AS is_unstarted FROM ${s}.runs h WHERE h.id = u.run_id LIMIT 1) o ON true`

export const admissionParams = (p: ReadAdmissionsParams) => [
  p.environment,
  p.nonce,
  p.ids,
  p.tenants,
  p.scopes,
  p.keys,
  p.receiptKeys,
  p.fingerprints,
  p.uniqueScopes,
  p.uniqueTokens,
  p.modes,
]

/**
 * Writes on each receipt of this request what was decided, once. Each is found by its key, one probe an item, and written where it was
 * found. Nothing is decided yet of what was to be done to a run that is there and could not be: it is tried again.
 */
export const decideReceipts = defineStatement<ReadAdmissionsParams>(
  'decide_receipts',
  (s) => `
WITH admissions AS (${admissions(s)})
UPDATE ${s}.receipts t
SET decision = CASE
  WHEN NOT a.own_is_visible THEN jsonb_build_object('taken', true)
  WHEN a.own_is_new THEN jsonb_build_object('id', a.own_id, 'status', 'pending', 'created', true)
  WHEN a.own_id IS NOT NULL THEN jsonb_build_object('id', a.own_id, 'status', a.own_status, 'created', false)
  WHEN a.mode IN ('debounce', 'batch') OR a.mode = 'reschedule' AND a.occupant_is_unstarted THEN NULL
  WHEN a.occupant_id IS NOT NULL THEN jsonb_build_object('id', a.occupant_id, 'status', a.occupant_status, 'created', false)
END
FROM admissions a
WHERE t.ctid = ANY (ARRAY(SELECT x.place FROM admissions b CROSS JOIN LATERAL (
    SELECT y.ctid AS place FROM ${s}.receipts y WHERE y.tenant = b.tenant AND y.environment_id = b.environment_id AND y.key = b.receipt_key LIMIT 1) x))
  AND t.tenant = a.tenant AND t.environment_id = a.environment_id AND t.key = a.receipt_key AND t.nonce = $2::uuid AND t.decision IS NULL
`,
  admissionParams,
)

/**
 * What became of each item, in order, read with a fresh snapshot after the writes: `own_status` when the run exists, the run that has
 * its key or its entry when another does, and the receipt with its decision.
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
  admissionParams,
)
