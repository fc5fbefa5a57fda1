import { toHex } from './canonical.ts'
import { PawlError } from './errors.ts'
import { type Json, parseJson } from './json.ts'
import { checkKey } from './names.ts'
import type { Delivery, SignatureScheme, WebhookTrigger } from './trigger.ts'

type Bytes = Uint8Array<ArrayBuffer>

export interface VerifyDeliveryParams {
  readonly headers: Headers
  /** Exactly as received: signatures cover bytes. */
  readonly rawBody: Bytes
  readonly trigger: WebhookTrigger<unknown>
  /** As `trigger.secrets(env)` gives them. */
  readonly secrets: readonly string[]
  readonly now: Date
}

/**
 * The delivery, after its signature, age and id were checked. Comparison takes the same time whatever differs.
 * The body is the parsed JSON, an object of texts for a form, else text; `trigger.body` is not applied yet.
 * @throws PawlError `bad_signature` (401), `malformed` (400), `not_configured` (503) when there is no secret.
 */
export async function verifyDelivery(params: VerifyDeliveryParams): Promise<Delivery> {
  const { headers, rawBody, trigger, now } = params
  const secrets = params.secrets.filter((secret) => typeof secret === 'string' && secret !== '')
  if (secrets.length === 0)
    throw new PawlError('not_configured', `The webhook "${trigger.name}" has no secret.`, { field: 'secret' })
  const claim = readClaim(trigger.scheme, headers, rawBody, now)
  if (!(await anyMatches(secrets, claim))) throw badSignature('no signature matches')
  const deliveryId = checkKey(claim.deliveryId ?? (await hashId(rawBody)), { field: 'delivery id', code: 'malformed' })
  return { deliveryId, headers: Object.fromEntries(headers), body: readBody(headers, rawBody) }
}

interface Claim {
  readonly signatures: readonly Bytes[]
  readonly signed: Bytes
  readonly deliveryId: string | undefined
}

function badSignature(reason: string): PawlError {
  return new PawlError('bad_signature', `The delivery is refused: ${reason}.`)
}

/** More are not looked at: each costs an HMAC. */
const MAX_SIGNATURES = 8

function readClaim(scheme: SignatureScheme, headers: Headers, rawBody: Bytes, now: Date): Claim {
  switch (scheme.kind) {
    case 'standard':
      return readStandard(scheme.toleranceMs, headers, rawBody, now)
    case 'github':
      return {
        signatures: [decode(requireHeader(headers, 'x-hub-signature-256'), 'hex', 'sha256=')],
        signed: rawBody,
        deliveryId: requireHeader(headers, 'x-github-delivery'),
      }
    case 'hmac':
      return {
        signatures: [decode(requireHeader(headers, scheme.header), scheme.encoding, scheme.prefix)],
        signed: rawBody,
        deliveryId: scheme.idHeader === undefined ? undefined : requireHeader(headers, scheme.idHeader),
      }
  }
}

function readStandard(toleranceMs: number, headers: Headers, rawBody: Bytes, now: Date): Claim {
  const id = requireHeader(headers, 'webhook-id')
  const timestamp = requireHeader(headers, 'webhook-timestamp')
  if (!/^\d{1,12}$/.test(timestamp)) throw badSignature('webhook-timestamp is not in seconds')
  if (Math.abs(now.getTime() - Number(timestamp) * 1_000) > toleranceMs) throw badSignature('it is too old or from the future')
  const signatures = requireHeader(headers, 'webhook-signature')
    .split(' ')
    .filter((signature) => signature.startsWith('v1,'))
    .slice(0, MAX_SIGNATURES)
    .map((signature) => decode(signature, 'base64', 'v1,'))
  return { signatures, signed: standardContent(id, timestamp, rawBody), deliveryId: id }
}

function standardContent(id: string, timestamp: string, rawBody: Bytes): Bytes {
  const head = new TextEncoder().encode(`${id}.${timestamp}.`)
  const content = new Uint8Array(head.length + rawBody.length)
  content.set(head)
  content.set(rawBody, head.length)
  return content
}

function requireHeader(headers: Headers, name: string): string {
  const value = headers.get(name)
  if (value === null || value === '') throw badSignature(`the header ${name} is missing`)
  return value
}

/** The bytes of a signature, or none (which matches nothing) when the text is not one. */
function decode(text: string, encoding: 'hex' | 'base64', prefix: string): Bytes {
  if (!text.startsWith(prefix)) return new Uint8Array(0)
  const encoded = text.slice(prefix.length)
  return (encoding === 'hex' ? fromHex(encoded) : fromBase64(encoded)) ?? new Uint8Array(0)
}

function fromHex(text: string): Bytes | undefined {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]{0,512}$/.test(text)) return undefined
  return Uint8Array.from({ length: text.length / 2 }, (_, index) => Number.parseInt(text.slice(index * 2, index * 2 + 2), 16))
}

function fromBase64(text: string): Bytes | undefined {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
  } catch {
    return undefined
  }
}

async function importSecret(secret: string): Promise<CryptoKey> {
  const bytes = secret.startsWith('whsec_') ? fromBase64(secret.slice(6)) : new TextEncoder().encode(secret)
  if (!bytes || bytes.length === 0)
    throw new PawlError('not_configured', 'A webhook secret starts with whsec_ but is not base64.')
  return crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify'])
}

/** `subtle.verify` compares in constant time. */
async function anyMatches(secrets: readonly string[], claim: Claim): Promise<boolean> {
  for (const secret of secrets) {
    const key = await importSecret(secret)
    for (const signature of claim.signatures) {
      if (await crypto.subtle.verify('HMAC', key, signature, claim.signed)) return true
    }
  }
  return false
}

async function hashId(rawBody: Bytes): Promise<string> {
  return `sha256:${toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', rawBody)))}`
}

function readBody(headers: Headers, rawBody: Bytes): Json {
  const text = readText(rawBody)
  const type = (headers.get('content-type') ?? 'application/json').split(';')[0]?.trim().toLowerCase() ?? ''
  if (type === 'application/x-www-form-urlencoded') return Object.fromEntries(new URLSearchParams(text))
  if (type !== 'application/json' && !type.endsWith('+json')) return text
  return text === '' ? null : parseJson(text)
}

function readText(rawBody: Bytes): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(rawBody)
  } catch (cause) {
    throw new PawlError('malformed', 'body: not UTF-8.', { field: 'body', cause })
  }
}

export interface SignDeliveryParams {
  readonly deliveryId: string
  readonly rawBody: Bytes
  readonly secret: string
  readonly now: Date
  /** Default `standard`. */
  readonly scheme?: 'standard' | 'github' | undefined
}

/** The headers of a signed delivery: for tests of receivers, the demo, and whatever pawl sends itself. */
export async function signDelivery(params: SignDeliveryParams): Promise<Readonly<Record<string, string>>> {
  const { deliveryId, rawBody, secret, now, scheme = 'standard' } = params
  const key = await importSecret(secret)
  if (scheme === 'github') {
    const signature = new Uint8Array(await crypto.subtle.sign('HMAC', key, rawBody))
    return { 'x-github-delivery': deliveryId, 'x-hub-signature-256': `sha256=${toHex(signature)}` }
  }
  const timestamp = String(Math.floor(now.getTime() / 1_000))
  const signature = new Uint8Array(await crypto.subtle.sign('HMAC', key, standardContent(deliveryId, timestamp, rawBody)))
  const encoded = btoa(String.fromCharCode(...signature))
  return { 'webhook-id': deliveryId, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${encoded}` }
}
