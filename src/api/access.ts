import type { Context } from 'hono'
import { DEFAULT_TENANT } from '../core/bounds.ts'
import { sha256Hex } from '../core/canonical.ts'
import { PawlError } from '../core/errors.ts'
import { checkName } from '../core/names.ts'
import type { ApiKeyRecord } from '../core/store.ts'
import type { Access, ApiContext } from './api-context.ts'
import { type ApiScope, hashApiKey, looksLikeApiKey } from './api-key.ts'
import { TimedCache } from './timed-cache.ts'

/** How long a key that was looked up is believed, in milliseconds. A revoked key works that long in other instances. */
const KEY_TTL_MS = 30_000
const MAX_KEYS_CACHED = 1_000

/** What is remembered of keys between requests of one instance. */
export class AccessCache {
  readonly keys = new TimedCache<ApiKeyRecord | null>({ ttlMs: KEY_TTL_MS, maxEntries: MAX_KEYS_CACHED })
  readonly hasKeys = new TimedCache<boolean>({ ttlMs: KEY_TTL_MS, maxEntries: 1 })

  forget(keyId: string): void {
    this.keys.drop((record) => record?.id === keyId)
  }
}

const ANY: readonly string[] = []

/**
 * Who calls. Costs no request for the root key and the cron secret, one for a stored key that was not seen for 30 s.
 * @throws PawlError `unauthorized` (401), `forbidden` (403, a tenant that is not the key's), `not_configured` (503).
 */
export async function authenticate(http: Context, api: ApiContext, cache: AccessCache): Promise<Access> {
  const token = readBearer(http)
  if (token === undefined) {
    if (api.access.open === true && isOwnMachine(http)) return rootAccess(http, 'dev')
    throw (await isConfigured(api, cache)) ? unauthorized('bears no key') : notConfigured()
  }
  if (await equals(token, api.access.rootKey)) return rootAccess(http, 'root')
  if (await equals(token, api.access.cronSecret)) {
    return { kind: 'cron', tenant: DEFAULT_TENANT, tenantIsNamed: false, scopes: ['tick'], by: 'cron' }
  }
  const record = await findKey(token, api, cache)
  if (record !== null) return keyAccess(http, record)
  throw (await isConfigured(api, cache)) ? unauthorized('bears a key that is not known, or no longer') : notConfigured()
}

/** @throws PawlError `forbidden` (403) unless the caller has one of the scopes. */
export function requireScope(access: Access, scopes: readonly ApiScope[]): void {
  if (access.kind === 'root' || scopes.some((scope) => access.scopes.includes(scope))) return
  if (access.scopes.includes('admin') && !scopes.includes('tick')) return
  const allowed = scopes.join(' or ')
  throw new PawlError('forbidden', `The key may not do this: it needs the scope ${allowed}.`, { field: 'scope', allowed })
}

/** Of a 401 and a 403, as RFC 6750 asks. */
export function challenge(error: PawlError): Readonly<Record<string, string>> {
  if (error.code === 'unauthorized') return { 'www-authenticate': 'Bearer realm="pawl"' }
  if (error.code === 'forbidden') return { 'www-authenticate': 'Bearer realm="pawl", error="insufficient_scope"' }
  return {}
}

function readBearer(http: Context): string | undefined {
  const header = http.req.header('authorization')
  if (header === undefined) return undefined
  const token = /^Bearer +(\S+) *$/i.exec(header)?.[1]
  if (token === undefined) throw unauthorized('bears an Authorization header that is not "Bearer <key>"')
  return token
}

/** Compares digests, so that the time it takes says nothing about the secret. An empty secret equals nothing. */
async function equals(token: string, secret: string | undefined): Promise<boolean> {
  if (secret === undefined || secret === '') return false
  const [left, right] = await Promise.all([sha256Hex(token), sha256Hex(secret)])
  let difference = 0
  for (let index = 0; index < left.length; index += 1) difference |= left.charCodeAt(index) ^ right.charCodeAt(index)
  return difference === 0
}

async function findKey(token: string, api: ApiContext, cache: AccessCache): Promise<ApiKeyRecord | null> {
  if (!looksLikeApiKey(token)) return null
  const now = nowOf(api)
  const hash = await hashApiKey(token)
  const record = await cache.keys.get(hash, now, () => api.store.findApiKey(hash))
  return record === null || (record.expiresAt !== null && record.expiresAt <= now) ? null : record
}

function isConfigured(api: ApiContext, cache: AccessCache): Promise<boolean> {
  if (api.access.rootKey || api.access.open === true) return Promise.resolve(true)
  return cache.hasKeys.get('', nowOf(api), async () => (await api.store.listApiKeys(null)).length > 0)
}

export function nowOf(api: ApiContext): number {
  return api.now?.() ?? Date.now()
}

function rootAccess(http: Context, by: string): Access {
  const named = readTenant(http)
  return { kind: 'root', tenant: named ?? DEFAULT_TENANT, tenantIsNamed: named !== undefined, scopes: ANY, by }
}

function keyAccess(http: Context, record: ApiKeyRecord): Access {
  const named = readTenant(http)
  if (named !== undefined && named !== record.tenant) {
    throw new PawlError('forbidden', 'The key belongs to another tenant than Pawl-Tenant names.', { field: 'Pawl-Tenant' })
  }
  return { kind: 'key', tenant: record.tenant, tenantIsNamed: true, scopes: record.scopes, by: `key:${record.id}` }
}

function readTenant(http: Context): string | undefined {
  const header = http.req.header('pawl-tenant')
  return header === undefined ? undefined : checkName(header, { field: 'Pawl-Tenant', code: 'invalid_request' })
}

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/

/** A page of another origin, or a name that was made to point at this machine, must not get in where no key is asked for. */
function isOwnMachine(http: Context): boolean {
  const url = new URL(http.req.url)
  if (!LOOPBACK.test(url.hostname)) return false
  const origin = http.req.header('origin')
  const site = http.req.header('sec-fetch-site')
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return false
  return origin === undefined || origin === url.origin
}

function unauthorized(why: string): PawlError {
  return new PawlError('unauthorized', `The request ${why}. Send "Authorization: Bearer <key>".`)
}

function notConfigured(): PawlError {
  const detail = 'No key is configured, so nobody may call. Set the root key of the host, or make a key with "pawl keys create".'
  return new PawlError('not_configured', detail, { field: 'rootKey' })
}
