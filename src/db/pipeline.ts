import { type Database, DatabaseError, type Row, type Statement, type Transaction } from '../core/database.ts'
import { sendWithRetries, sqlstateOf, toDatabaseError } from './errors.ts'
import {
  BEGIN,
  COMMIT,
  type EncodedStatement,
  encode,
  isStalePrepared,
  type Plan,
  planStatements,
  type Session,
} from './exchange.ts'
import type { Field } from './values.ts'
import { WireWriter } from './wire.ts'

/**
 * A `Database` over a pool with the interface of node-postgres, which Neon's WebSocket pool shares. A batch is written in one
 * go, COMMIT included, before any reply is read: however busy the event loop is, the server never waits for it with row locks in
 * hand. A large one leaves in parts, so that the server works on the first while the next is encoded.
 */

interface PipelineConnection {
  readonly stream: { readonly writable: boolean; write(bytes: Uint8Array): unknown; destroy?(): unknown }
  sendCopyFail?(message: string): void
}

/** What is used of a checked-out client. */
interface PipelineClient {
  readonly connection?: PipelineConnection
  pipeline?: boolean
  on(event: 'error', listener: (error: Error) => void): unknown
  query(request: Request): unknown
  query(text: string, callback: (error: Error | null) => void): unknown
}

type Release = (error?: Error | boolean) => void

/** What is used of a pool; `pg.Pool` and the `Pool` of `@neondatabase/serverless` have it. */
export interface PipelinePool {
  connect(callback: (error: Error | undefined, client: never, release: (release?: never) => void) => void): unknown
  end(): Promise<void>
}

export interface PipelinedDatabaseOptions {
  readonly driver: Database['driver']
  /** Called once, at the first request. */
  readonly open: () => PipelinePool | Promise<PipelinePool>
  /** Whether `close` ends the pool. */
  readonly owned: boolean
  /** Whether statements are prepared by name. Falls back to unnamed for good when the server does not know them. */
  readonly prepare: boolean
}

/** Keyed by client, not by database object: two objects over one pool share its connections. */
const sessions = new WeakMap<PipelineClient, Session>()

export function pipelinedDatabase(options: PipelinedDatabaseOptions): Database {
  return new PipelinedDatabase(options)
}

class PipelinedDatabase implements Database {
  readonly driver: Database['driver']
  requests = 0
  readonly sendThrough = sendThrough
  private readonly options: PipelinedDatabaseOptions
  private readonly writer = new WireWriter()
  private pool: PipelinePool | Promise<PipelinePool> | undefined
  private prepare: boolean
  private closed = false

  constructor(options: PipelinedDatabaseOptions) {
    this.options = options
    this.driver = options.driver
    this.prepare = options.prepare
  }

  async query(statement: Statement): Promise<readonly Row[]> {
    const [rows = []] = await this.send([encode(statement)], false)
    return rows
  }

  async batch(statements: readonly Statement[]): Promise<readonly (readonly Row[])[]> {
    if (statements.length === 0) return []
    const encoded = [BEGIN, ...statements.map(encode), COMMIT]
    const results = await sendWithRetries(() => this.send(encoded, true))
    return results.slice(1, -1)
  }

  async transaction<T>(fn: (tx: Transaction) => Promise<T>): Promise<T> {
    const { client, release } = await this.checkOut()
    let failure: DatabaseError | undefined
    try {
      return await runTransaction(fn, {
        send: (statement) => exchange({ client, writer: this.writer }, [statement], undefined),
        execute: (sql) => execute(client, sql),
        count: () => {
          this.requests++
        },
      })
    } catch (error) {
      failure = error instanceof DatabaseError && error.fate === 'lost' ? error : await rollBack(client)
      throw error
    } finally {
      release(failure)
    }
  }

  async close(): Promise<void> {
    if (this.closed) return
    this.closed = true
    if (this.options.owned && this.pool) await (await this.pool).end()
  }

  private async send(statements: readonly EncodedStatement[], inTransaction: boolean): Promise<Row[][]> {
    const { client, release } = await this.checkOut()
    let failure: DatabaseError | undefined
    try {
      this.requests++
      const plan = await exchange({ client, writer: this.writer }, statements, this.prepare ? sessionOf(client) : undefined)
      return plan.results()
    } catch (error) {
      const mapped = toDatabaseError(error, 'sent')
      failure = sqlstateOf(mapped.cause) === undefined ? mapped : undefined
      if (inTransaction && !failure) failure = await rollBack(client)
      if (!this.prepare || !isStalePrepared(mapped)) throw mapped
    } finally {
      release(failure)
    }
    this.prepare = false
    return this.send(statements, inTransaction)
  }

  private async checkOut(): Promise<{ client: PipelineClient; release: Release }> {
    if (this.closed) throw new DatabaseError('The database was closed.', { fate: 'not_sent' })
    try {
      this.pool ??= this.options.open()
      const pool = this.pool instanceof Promise ? await this.pool : this.pool
      return await connect(pool)
    } catch (error) {
      throw toDatabaseError(error, 'connecting')
    }
  }
}

interface Way {
  readonly client: PipelineClient
  readonly writer: WireWriter
}

function exchange({ client, writer }: Way, statements: readonly EncodedStatement[], session: Session | undefined): Promise<Plan> {
  return new Promise((resolve, reject) => {
    const settle = (error: unknown) => {
      const { plan, sent } = request
      if (error === null || plan?.complete) return resolve(plan as Plan)
      plan?.abandon()
      reject(toDatabaseError(error, sent ? 'sent' : 'connecting'))
    }
    const request = new Request(writer, statements, session, settle)
    submit(client, request)
  })
}

/** Within the caller's own transaction, behind whatever has been sent. */
async function sendThrough(client: object, statements: readonly Statement[]): Promise<readonly (readonly Row[])[]> {
  // told by its shape, where it was handed in
  const way = { client: client as PipelineClient, writer: new WireWriter() }
  return (await exchange(way, statements.map(encode), undefined)).results()
}

/** What node-postgres calls a Submittable: its client hands it the connection, then the replies. */
class Request {
  sent = false
  plan: Plan | undefined
  /** A property, because the clients wrap it to time a query out. */
  callback: (error: unknown) => void
  private readonly writer: WireWriter
  private readonly statements: readonly EncodedStatement[]
  private readonly session: Session | undefined

  constructor(
    writer: WireWriter,
    statements: readonly EncodedStatement[],
    session: Session | undefined,
    callback: (error: unknown) => void,
  ) {
    this.writer = writer
    this.statements = statements
    this.session = session
    this.callback = callback
  }

  submit({ stream }: PipelineConnection): Error | null {
    if (!stream.writable) return new Error('The connection to the database is closed.')
    const { writer, statements, session } = this
    const leave = () => {
      this.sent = true
      stream.write(writer.take())
    }
    try {
      this.plan = planStatements(writer, statements, session, leave)
    } catch (error) {
      // what has left is a transaction without its COMMIT: it ends with the connection
      if (this.sent) stream.destroy?.()
      return error as Error
    }
    leave()
    return null
  }

  handleRowDescription(message: { fields: readonly Field[] }): void {
    this.plan?.describe(message.fields)
  }

  handleDataRow(message: { fields: readonly (string | null)[] }): void {
    this.plan?.row(message.fields)
  }

  handleCommandComplete(message: { text: string }): void {
    this.plan?.completeStatement(message.text)
  }

  handleEmptyQuery(): void {
    this.plan?.completeStatement('')
  }

  handleReadyForQuery(): void {
    this.callback(null)
  }

  handleError(error: unknown): void {
    this.callback(error)
  }

  handlePortalSuspended(): void {}

  handleCopyInResponse(connection: PipelineConnection): void {
    connection.sendCopyFail?.('COPY is not supported')
  }

  handleCopyData(): void {}
}

function ignoreError(): void {}

function sessionOf(client: PipelineClient): Session {
  const known = sessions.get(client)
  if (known) return known
  const session: Session = new Map()
  sessions.set(client, session)
  return session
}

function connect(pool: PipelinePool): Promise<{ client: PipelineClient; release: Release }> {
  return new Promise((resolve, reject) => {
    // The casts: the two pools declare clients of their own, and this is the part of them that is used.
    pool.connect((error, checkedOut, done) => {
      const client = checkedOut as PipelineClient | undefined
      if (!client) return reject(error)
      if (!client.connection) return reject(new Error('pg-native is not supported: hand in a pool of the JavaScript client.'))
      if (!listening.has(client)) {
        // While it is checked out nobody else listens, and an error event without a listener ends the process.
        client.on('error', ignoreError)
        listening.add(client)
      }
      resolve({ client, release: done as Release })
    })
  })
}

const listening = new WeakSet<PipelineClient>()

/** A client in `pg`'s own pipeline mode refuses foreign requests; while it is checked out it is ours alone, so the mode can be off. */
function submit(client: PipelineClient, request: Request): void {
  if (!client.pipeline) {
    client.query(request)
    return
  }
  client.pipeline = false
  client.query(request)
  client.pipeline = true
}

/** Ends the failed transaction; answers the reason for which the connection cannot be used again, if there is one. */
async function rollBack(client: PipelineClient): Promise<DatabaseError | undefined> {
  try {
    await execute(client, 'ROLLBACK')
    return undefined
  } catch (error) {
    return toDatabaseError(error, 'sent')
  }
}

function execute(client: PipelineClient, sql: string): Promise<void> {
  return new Promise((resolve, reject) => {
    client.query(sql, (error) => (error ? reject(toDatabaseError(error, 'sent')) : resolve()))
  })
}

interface TransactionPort {
  send(statement: EncodedStatement): Promise<Plan>
  execute(sql: string): Promise<void>
  count(): void
}

/** BEGIN, the caller's statements one after the other, COMMIT. Throws what `fn` throws; the caller rolls back. */
async function runTransaction<T>(fn: (tx: Transaction) => Promise<T>, port: TransactionPort): Promise<T> {
  let open = true
  let last: Promise<unknown> = port.send(BEGIN)
  const inOrder = <R>(run: () => Promise<R>): Promise<R> => {
    if (!open) throw new DatabaseError('The transaction has ended.', { fate: 'not_sent' })
    port.count()
    const result = last.then(run, run)
    last = result
    return result
  }
  await last
  try {
    const result = await fn({
      query: async (statement) => {
        const encoded = encode(statement)
        return (await inOrder(() => port.send(encoded))).results()[0] ?? []
      },
      execute: async (sql) => inOrder(() => port.execute(sql)),
    })
    // A failed statement that `fn` has caught shows in the tag of the COMMIT.
    await last.catch(ignoreError)
    open = false
    const { tag } = await port.send(COMMIT)
    if (tag !== 'ROLLBACK') return result
    throw new DatabaseError('The transaction was rolled back: a statement in it had failed.', {
      fate: 'refused',
      sqlstate: '25P02',
    })
  } finally {
    open = false
  }
}
