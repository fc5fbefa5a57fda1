import { CLOCK, defineStatement, epochMs } from './statement.ts'

const COLUMNS = `k.id, k.tenant, k.name, k.scopes, ${epochMs('k.created_at')} AS created_at, ${epochMs('k.expires_at')} AS expires_at, ${epochMs('k.revoked_at')} AS revoked_at`

const inEnvironment = (s: string) => `k.environment_id = (SELECT e.id FROM ${s}.environments e WHERE e.name = $2::text)`

export interface ApiKeyParams {
  readonly now: string | null
  readonly environment: string
}

/** The key with this hash that is neither revoked nor expired. */
export const findApiKey = defineStatement<ApiKeyParams & { readonly hash: string }>(
  'find_api_key',
  (s) => `
WITH ${CLOCK}
SELECT ${COLUMNS} FROM ${s}.api_keys k, clock
WHERE k.hash = $3::text AND ${inEnvironment(s)} AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock.at)
`,
  (p) => [p.now, p.environment, p.hash],
)

export interface InsertApiKeyParams extends ApiKeyParams {
  readonly id: string
  readonly tenant: string
  readonly name: string
  readonly hash: string
  readonly scopes: readonly string[]
  /** Epoch milliseconds. */
  readonly expiresAt: number | null
}

/** Needs the environment (`ensureEnvironment`, before it in the batch). Sent again with the same id it answers the key that is there. */
export const insertApiKey = defineStatement<InsertApiKeyParams>(
  'insert_api_key',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.api_keys AS k (id, tenant, environment_id, name, hash, scopes, created_at, expires_at)
SELECT $3::uuid, $4::text, e.id, $5::text, $6::text, $7::text[], clock.at, to_timestamp($8::float8 / 1000)
FROM ${s}.environments e, clock
WHERE e.name = $2::text
ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE k.hash = excluded.hash
RETURNING ${COLUMNS}
`,
  (p) => [p.now, p.environment, p.id, p.tenant, p.name, p.hash, p.scopes, p.expiresAt],
)

export interface ListApiKeysParams extends ApiKeyParams {
  /** Null: all tenants. */
  readonly tenant: string | null
  readonly limit: number
}

/** The newest keys, revoked and expired ones too. */
export const listApiKeys = defineStatement<ListApiKeysParams>(
  'list_api_keys',
  (s) => `
WITH ${CLOCK}
SELECT ${COLUMNS} FROM ${s}.api_keys k, clock
WHERE ${inEnvironment(s)} AND ($3::text IS NULL OR k.tenant = $3::text)
ORDER BY k.created_at DESC, k.id DESC
LIMIT $4::int
`,
  (p) => [p.now, p.environment, p.tenant, p.limit],
)

/** Revokes once: the first instant stays. */
export const revokeApiKey = defineStatement<ApiKeyParams & { readonly id: string; readonly tenant: string | null }>(
  'revoke_api_key',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.api_keys k SET revoked_at = coalesce(k.revoked_at, clock.at)
FROM clock
WHERE k.id = $3::uuid AND ${inEnvironment(s)} AND ($4::text IS NULL OR k.tenant = $4::text)
RETURNING k.id
`,
  (p) => [p.now, p.environment, p.id, p.tenant],
)
