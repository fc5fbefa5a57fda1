import { type NeonQueryFunction, neon, neonConfig } from '@neondatabase/serverless'
import { type Database, DatabaseError, type Row, type Statement } from '../../core/database.ts'
import { sendWithRetries, sqlstateOf, toDatabaseError } from '../errors.ts'
import { encodeParameters, type Field, RowReader } from '../values.ts'

type NeonSql = NeonQueryFunction<boolean, boolean>

export interface NeonHttpOptions {
  /**
   * URL of an HTTP endpoint to use instead of Neon's, such as the local one: `http://127.0.0.1:4444/sql`. It holds for the
   * host and port of the connection string, in the whole process. Needs a connection string, not a query function.
   */
  readonly endpoint?: string
  /** Options for every `fetch`. */
  readonly fetchOptions?: Record<string, unknown>
}

/** A reply as Neon gives it in array mode with full results. */
interface Reply {
  readonly fields: readonly Field[]
  readonly rows: readonly (readonly (string | null)[])[]
}

/** Raw text for every type: it is parsed in one place for all drivers. */
const rawText = { getTypeParser: () => (text: string) => text }

/**
 * A `Database` over Neon's HTTP driver: a connection string, or what `neon()` gave. Each query and each batch is one
 * fetch; there is no interactive transaction. Runs wherever `fetch` does, Workers included. `close` has nothing to free;
 * requests after it are refused, as by the other drivers.
 *
 * A connect that failed and an endpoint that turned the request away give `not_sent`; any other broken or odd reply gives
 * `lost`. Workers do not tell a connect that failed from a connection that broke: there it is `lost`, too. Throws
 * `not_sent` at once for a connection string that is no URL.
 */
export function neonHttp(target: string | NeonSql, options: NeonHttpOptions = {}): Database {
  return new NeonHttpDatabase(typeof target === 'string' ? openSql(target, options) : target, options)
}

function openSql(connectionString: string, { endpoint }: NeonHttpOptions): NeonSql {
  if (!URL.canParse(connectionString)) {
    throw new DatabaseError('The connection string is no URL of the form postgresql://user:password@host/database.', {
      fate: 'not_sent',
    })
  }
  if (endpoint !== undefined) routeToEndpoint(connectionString, endpoint)
  return neon(connectionString)
}

class NeonHttpDatabase implements Database {
  readonly driver = 'neon-http'
  requests = 0
  private readonly sql: NeonSql
  private readonly fetchOptions: Record<string, unknown>
  private closed = false

  constructor(sql: NeonSql, { fetchOptions = {} }: NeonHttpOptions) {
    this.sql = sql
    this.fetchOptions = fetchOptions
  }

  async query(statement: Statement): Promise<readonly Row[]> {
    const prepared = this.prepare(statement)
    return readRows(await this.send<Reply>(() => prepared))
  }

  async batch(statements: readonly Statement[]): Promise<readonly (readonly Row[])[]> {
    if (statements.length === 0) return []
    const { sql, fetchOptions } = this
    return sendWithRetries(async () => {
      const queries = statements.map((statement) => this.prepare(statement))
      const replies = await this.send<Reply[]>(() => sql.transaction(queries, { isolationLevel: 'ReadCommitted', fetchOptions }))
      return replies.map(readRows)
    })
  }

  async close(): Promise<void> {
    this.closed = true
  }

  /** A query that is sent when it is awaited, or by the transaction it is given to. */
  private prepare(statement: Statement) {
    const options = { arrayMode: true, fullResults: true, types: rawText, fetchOptions: this.fetchOptions }
    return this.sql.query(statement.text, encodeParameters(statement), options)
  }

  private async send<Replies>(run: () => PromiseLike<unknown>): Promise<Replies> {
    if (this.closed) throw new DatabaseError('The database was closed.', { fate: 'not_sent' })
    this.requests++
    try {
      // The cast: the options of `prepare` fix the shape of the replies.
      return (await run()) as Replies
    } catch (error) {
      throw toHttpError(error)
    }
  }
}

function readRows(reply: Reply): Row[] {
  const reader = new RowReader(reply.fields)
  return reply.rows.map((texts) => reader.read(texts))
}

/** Statuses with which an endpoint turns a request away before looking at its statements. */
const TURNED_AWAY = /\(HTTP status (401|403|404|405|413|429)\)/

function toHttpError(error: unknown): DatabaseError {
  const turnedAway = error instanceof Error && sqlstateOf(error) === undefined && TURNED_AWAY.test(error.message)
  return toDatabaseError(error, turnedAway ? 'connecting' : 'sent')
}

/** Host and port of a connection string → the endpoint to use for it. Neon's setting is one for the whole process. */
const endpoints = new Map<string, string>()

let otherEndpoint = neonConfig.fetchEndpoint

function routeToEndpoint(connectionString: string, endpoint: string): void {
  const { hostname, port } = new URL(connectionString)
  endpoints.set(`${hostname}:${port}`, endpoint)
  if (neonConfig.fetchEndpoint === selectEndpoint) return
  otherEndpoint = neonConfig.fetchEndpoint
  neonConfig.fetchEndpoint = selectEndpoint
}

const selectEndpoint: typeof neonConfig.fetchEndpoint = (host, port, options) => {
  const endpoint = endpoints.get(`${host}:${port}`)
  if (endpoint !== undefined) return endpoint
  return typeof otherEndpoint === 'function' ? otherEndpoint(host, port, options) : otherEndpoint
}
