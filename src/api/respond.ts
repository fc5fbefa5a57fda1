import type { Context } from 'hono'
import { sha256Hex } from '../core/canonical.ts'

type Fields = Readonly<Record<string, string | undefined>>

/** A JSON answer. Not stored by anybody unless a header says otherwise. */
export function json(status: number, body: unknown, fields: Fields = {}): Response {
  return new Response(JSON.stringify(body), { status, headers: toHeaders({ 'content-type': 'application/json', ...fields }) })
}

function toHeaders(fields: Fields): Headers {
  const headers = new Headers({ 'cache-control': 'no-store' })
  for (const [name, value] of Object.entries(fields)) if (value !== undefined) headers.set(name, value)
  return headers
}

/** Enough of the digest that two versions of a run never share a tag, in hexadecimal digits. */
const TAG_LENGTH = 32

/** The JSON with a tag of its bytes, or 304 when the caller has these very bytes. */
export async function jsonWithTag(http: Context, body: unknown, fields: Fields): Promise<Response> {
  const text = JSON.stringify(body)
  const tag = `"${(await sha256Hex(text)).slice(0, TAG_LENGTH)}"`
  const headers = toHeaders({ ...fields, etag: tag })
  if (isKnown(http.req.header('if-none-match'), tag)) return new Response(null, { status: 304, headers })
  headers.set('content-type', 'application/json')
  return new Response(text, { status: 200, headers })
}

/** Weak comparison, as RFC 9110 asks for If-None-Match. */
function isKnown(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false
  return header.split(',').some((part) => part.trim() === '*' || part.trim().replace(/^W\//, '') === tag)
}
