import { type Database, DatabaseError, type Row, type Statement } from '../../core/database.ts'
import { sendWithRetries, sqlstateOf, toDatabaseError } from '../errors.ts'
import { type NeonQuery, type NeonReply, openNeon, sendNeonBatch, sendNeonQuery } from '../neon-wire.ts'
import { encodeParameters, RowReader } from '../values.ts'

/** What is used of that which `neon()` of `@neondatabase/serverless` gives: neither the package nor its declarations are needed. */
export interface NeonSql {
  query(text: string, params: unknown[], options: object): PromiseLike<unknown>
  /** Of its own queries, whose type the package keeps to itself. */
  transaction(queries: never[], options: object): PromiseLike<unknown>
}

export interface NeonHttpOptions {
  /**
   * URL of an HTTP endpoint to use instead of Neon's, such as the local one: `http://127.0.0.1:4444/sql`. Needs a connection string, not
   * a query function.
   */
  readonly endpoint?: string
  /** Options for every `fetch`. */
  readonly fetchOptions?: Record<string, unknown>
}

/** Raw text for every type: it is parsed in one place for all drivers. */
const rawText = { getTypeParser: () => (text: string) => text }

/**
 * A `Database` over Neon's SQL over HTTP: from a connection string, for which no package is needed, or over what `neon()` of
 * `@neondatabase/serverless` gave, with whatever it was set to. Each query and each batch is one fetch; there is no interactive
 * transaction. Runs wherever `fetch` does, Workers included. `close` has nothing to free; requests after it are refused, as by the
 * other drivers.
 *
 * A connect that failed and an endpoint that turned the request away give `not_sent`; any other broken or odd reply gives
 * `lost`. Workers do not tell a connect that failed from a connection that broke: there it is `lost`, too. Throws
 * `not_sent` at once for a connection string that is no URL.
 */
export function neonHttp(target: string | NeonSql, options: NeonHttpOptions = {}): Database {
  const { endpoint, fetchOptions = {} } = options
  if (typeof target !== 'string') return new NeonHttpDatabase(senderOver(target, fetchOptions))
  const connection = openNeon({ connectionString: target, endpoint, fetchOptions })
  return new NeonHttpDatabase({
    query: (query) => sendNeonQuery(connection, query),
    batch: (queries) => sendNeonBatch(connection, queries),
  })
}

/** The two requests there are. */
interface Sender {
  query(query: NeonQuery): Promise<NeonReply>
  batch(queries: readonly NeonQuery[]): Promise<readonly NeonReply[]>
}

function toQuery(statement: Statement): NeonQuery {
  return { query: statement.text, params: encodeParameters(statement) }
}

function senderOver(sql: NeonSql, fetchOptions: Record<string, unknown>): Sender {
  const options = { arrayMode: true, fullResults: true, types: rawText, fetchOptions }
  // A query of the package is sent when it is awaited, or by the transaction it is given to.
  const prepare = ({ query, params }: NeonQuery) => sql.query(query, [...params], options)
  const transactionOptions = { isolationLevel: 'ReadCommitted' as const, fetchOptions }
  return {
    // The casts: the options fix the shape of the replies.
    query: async (query) => (await prepare(query)) as unknown as NeonReply,
    batch: async (queries) =>
      (await sql.transaction(queries.map(prepare) as never[], transactionOptions)) as unknown as readonly NeonReply[],
  }
}

class NeonHttpDatabase implements Database {
  readonly driver = 'neon-http'
  requests = 0
  private readonly sender: Sender
  private closed = false

  constructor(sender: Sender) {
    this.sender = sender
  }

  async query(statement: Statement): Promise<readonly Row[]> {
    const query = toQuery(statement)
    return readRows(await this.send(() => this.sender.query(query)))
  }

  async batch(statements: readonly Statement[]): Promise<readonly (readonly Row[])[]> {
    if (statements.length === 0) return []
    const queries = statements.map(toQuery)
    return sendWithRetries(async () => (await this.send(() => this.sender.batch(queries))).map(readRows))
  }

  async close(): Promise<void> {
    this.closed = true
  }

  private async send<Replies>(run: () => Promise<Replies>): Promise<Replies> {
    if (this.closed) throw new DatabaseError('The database was closed.', { fate: 'not_sent' })
    this.requests++
    try {
      return await run()
    } catch (error) {
      throw toHttpError(error)
    }
  }
}

function readRows(reply: NeonReply): Row[] {
  const reader = new RowReader(reply.fields)
  return reply.rows.map((texts) => reader.read(texts))
}

/** Statuses with which an endpoint turns a request away before looking at its statements. */
const TURNED_AWAY = /\(HTTP status (401|403|404|405|413|429)\)/

function toHttpError(error: unknown): DatabaseError {
  const turnedAway = error instanceof Error && sqlstateOf(error) === undefined && TURNED_AWAY.test(error.message)
  return toDatabaseError(error, turnedAway ? 'connecting' : 'sent')
}
