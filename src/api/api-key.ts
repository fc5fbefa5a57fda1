import { sha256Hex } from '../core/canonical.ts'

/** What a key may be allowed. `admin`: everything of its tenant but `tick`, which spans all tenants. */
export const SCOPES = ['runs:write', 'runs:read', 'signals:write', 'ops', 'tick', 'admin'] as const
export type ApiScope = (typeof SCOPES)[number]

/** Bytes of a secret: too many to guess, so a plain hash of it is enough. */
const SECRET_BYTES = 32
const SECRET = /^pawl_[A-Za-z0-9_-]{43}$/

/** A new secret, `pawl_` and 43 characters: shown once, then known only by its hash. */
export function mintApiKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(SECRET_BYTES))
  return `pawl_${btoa(String.fromCharCode(...bytes))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/=+$/, '')}`
}

/** Anything else is not worth a request to the database. */
export function looksLikeApiKey(text: string): boolean {
  return SECRET.test(text)
}

/** The hash under which a key is stored: SHA-256, hexadecimal. */
export function hashApiKey(secret: string): Promise<string> {
  return sha256Hex(secret)
}
