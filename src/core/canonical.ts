import type { Json } from './json.ts'

/** Stored beside every hash: a change of `canonical` or of the digest gets the next number, and old hashes stay comparable. */
export const HASH_VERSION = 1

/**
 * The one text that equal JSON values share (RFC 8785): members sorted by UTF-16 code units, no white space, numbers and
 * strings as ECMAScript writes them. Members that are `undefined` are left out. The value must have passed `toStored`.
 */
export function canonical(value: Json): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map((item: Json) => canonical(item)).join(',')}]`
  const members: string[] = []
  for (const [key, member] of Object.entries(value).sort(byCodeUnits)) {
    if (member !== undefined) members.push(`${JSON.stringify(key)}:${canonical(member as Json)}`)
  }
  return `{${members.join(',')}}`
}

function byCodeUnits(left: readonly [string, unknown], right: readonly [string, unknown]): number {
  return left[0] < right[0] ? -1 : 1
}

/** SHA-256 of the UTF-8 text, as 64 lower-case hexadecimal digits. */
export async function sha256Hex(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return toHex(new Uint8Array(digest))
}

export function toHex(bytes: Uint8Array): string {
  let text = ''
  for (const byte of bytes) text += byte.toString(16).padStart(2, '0')
  return text
}
