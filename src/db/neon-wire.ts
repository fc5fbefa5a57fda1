/** Neon's wire format for SQL over HTTP, as its own package speaks it: one `fetch` for a query, or for a transaction of several. */
import { DatabaseError } from '../core/database.ts'
import type { Field } from './values.ts'

/** A query or its parameters as text. */
export interface NeonQuery {
  readonly query: string
  readonly params: readonly (string | null)[]
}

/** A reply in array mode, every value as text. */
export interface NeonReply {
  readonly fields: readonly Field[]
  readonly rows: readonly (readonly (string | null)[])[]
}

export interface NeonConnection {
  readonly connectionString: string
  readonly endpoint: string
  /** Options for every `fetch`. */
  readonly fetchOptions: Readonly<Record<string, unknown>>
}

export interface OpenNeonParams {
  readonly connectionString: string
  /** Default: Neon's, beside the host of the connection string. */
  readonly endpoint: string | undefined
  readonly fetchOptions: Readonly<Record<string, unknown>>
}

/** Throws a `DatabaseError` with fate `not_sent` for a connection string that cannot be used. Its text is in no message: it holds a password. */
export function openNeon({ connectionString, endpoint, fetchOptions }: OpenNeonParams): NeonConnection {
  const url = URL.canParse(connectionString) ? new URL(connectionString) : undefined
  if (!url || !/^postgres(ql)?:$/.test(url.protocol) || url.hostname === '' || url.username === '' || url.pathname.length < 2) {
    throw new DatabaseError('The connection string is no URL of the form postgresql://user:password@host/database.', {
      fate: 'not_sent',
    })
  }
  return { connectionString, endpoint: endpoint ?? endpointOf(url.hostname), fetchOptions }
}

/** Neon serves SQL at the host `api` of the same region: `ep-name-1.region.aws.neon.tech` → `api.region.aws.neon.tech`. */
function endpointOf(hostname: string): string {
  return `https://${hostname.replace(/^[^.]+\./, 'api.')}/sql`
}

export async function sendNeonQuery(connection: NeonConnection, query: NeonQuery): Promise<NeonReply> {
  // the endpoint answers in this shape, or with another status
  return (await post(connection, query, {})) as NeonReply
}

/** One READ COMMITTED transaction. */
export async function sendNeonBatch(connection: NeonConnection, queries: readonly NeonQuery[]): Promise<readonly NeonReply[]> {
  const answer = await post(connection, { queries }, { 'Neon-Batch-Isolation-Level': 'ReadCommitted' })
  const { results } = answer as { readonly results?: readonly NeonReply[] }
  if (!Array.isArray(results)) throw new Error('The endpoint answered a batch with something else.')
  return results
}

async function post(
  { connectionString, endpoint, fetchOptions }: NeonConnection,
  body: unknown,
  headers: Record<string, string>,
) {
  const response = await fetch(endpoint, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: {
      'Neon-Connection-String': connectionString,
      'Neon-Raw-Text-Output': 'true',
      'Neon-Array-Mode': 'true',
      ...headers,
    },
    ...fetchOptions,
  })
  if (response.ok) return (await response.json()) as unknown
  if (response.status === 400) throw refusalOf(await response.json())
  throw new Error(`Server error (HTTP status ${response.status}): ${(await response.text()).slice(0, 500)}`)
}

/** What the server said, with its fields (`code`, `severity`, `constraint`, …). */
function refusalOf(answer: unknown): Error {
  const fields = typeof answer === 'object' && answer !== null ? answer : {}
  const { message, ...rest } = fields as { readonly message?: unknown }
  return Object.assign(new Error(String(message)), rest)
}
