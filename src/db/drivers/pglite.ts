import { type Database, DatabaseError, type Row, type Statement, type Transaction } from '../../core/database.ts'
import { sendWithRetries, toDatabaseError } from '../errors.ts'
import { type EncodedStatement, encode, isStalePrepared, type Plan, planStatements, type Session } from '../exchange.ts'
import { encodeParameters, type Field, RowReader } from '../values.ts'
import { WireWriter } from '../wire.ts'
import { type FolderLock, lockFolder } from './pglite-lock.ts'

/** A message of the server as PGlite hands it on. */
interface BackendMessage {
  readonly name: string
}

interface Queries {
  query(text: string, params: (string | null)[], options: object): Promise<{ rows: unknown[]; fields: readonly Field[] }>
  exec(sql: string): Promise<unknown>
}

/** What is used of a PGlite instance. */
export interface PgliteInstance extends Queries {
  readonly closed: boolean
  /** By type; the array types of the database are added when it opens. */
  readonly parsers: object
  readonly serializers: object
  transaction<T>(callback: (tx: Queries) => Promise<T>): Promise<T>
  runExclusive<T>(run: () => Promise<T>): Promise<T>
  execProtocol(
    message: Uint8Array,
    options: { throwOnError: boolean; syncToFs: boolean },
  ): Promise<{ messages: BackendMessage[] }>
  close(): Promise<void>
}

/**
 * A `Database` inside this process: PGlite in the folder, in memory (`'memory'`), or an instance the caller made and closes.
 * `@electric-sql/pglite` is an optional peer dependency, loaded at the first request, which also opens the database: one to
 * three seconds for a new one, a fraction of a second for an existing folder.
 *
 * A folder belongs to one process at a time: a second one gets a `DatabaseError` with fate `not_sent` that names the
 * process. A lock left by a process that died is taken over. There is one connection; batches, queries and transactions wait
 * for each other, and a query inside `transaction(fn)` that is not made through `tx` waits for ever.
 */
export function pglite(target: 'memory' | (string & {}) | PgliteInstance): Database {
  return new PgliteDatabase(target)
}

interface Opened {
  readonly instance: PgliteInstance
  readonly session: Session
}

const sessions = new WeakMap<PgliteInstance, Session>()

/** The transaction is begun by PGlite, which knows no isolation level; this comes before its first snapshot. */
const PIN_ISOLATION = encode({
  name: 'pin_isolation',
  text: 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED',
  params: [],
})

const rawText = (text: unknown) => text

/** Raw text for every type, in and out: it is parsed in one place for all drivers. PGlite copies these, so each type is listed. */
function rawOptions({ parsers, serializers }: PgliteInstance) {
  return { rowMode: 'array', parsers: identities(parsers), serializers: identities(serializers) }
}

function identities(byType: object): Record<string, typeof rawText> {
  return Object.fromEntries(Object.keys(byType).map((type) => [type, rawText]))
}

class PgliteDatabase implements Database {
  readonly driver = 'pglite'
  requests = 0
  private readonly target: string | PgliteInstance
  private readonly writer = new WireWriter()
  private opened: Promise<Opened> | undefined
  private lock: FolderLock | undefined
  private prepare = true
  private closed = false

  constructor(target: string | PgliteInstance) {
    this.target = target
  }

  async query(statement: Statement): Promise<readonly Row[]> {
    const params = encodeParameters(statement)
    const { instance } = await this.open()
    this.requests++
    return runQuery(instance, instance, statement.text, params).catch((error) => this.fail(instance, error))
  }

  async batch(statements: readonly Statement[]): Promise<readonly (readonly Row[])[]> {
    if (statements.length === 0) return []
    const encoded = [PIN_ISOLATION, ...statements.map(encode)]
    const opened = await this.open()
    const results = await sendWithRetries(() => this.send(opened, encoded))
    return results.slice(1)
  }

  async transaction<T>(fn: (tx: Transaction) => Promise<T>): Promise<T> {
    const { instance } = await this.open()
    let open = true
    const count = () => {
      if (!open) throw new DatabaseError('The transaction has ended.', { fate: 'not_sent' })
      this.requests++
    }
    return instance
      .transaction(async (tx) => {
        await tx.exec(PIN_ISOLATION.statement.text)
        try {
          return await fn({
            query: async (statement) => {
              const params = encodeParameters(statement)
              count()
              return runQuery(instance, tx, statement.text, params).catch((error) => this.fail(instance, error))
            },
            execute: async (sql) => {
              count()
              await tx.exec(sql).catch((error) => this.fail(instance, error))
            },
          })
        } catch (error) {
          // What the caller's own code throws comes out as it is, not as a failure of the database.
          throw new CallerFailure(error)
        } finally {
          open = false
        }
      })
      .catch((error) => {
        if (error instanceof CallerFailure) throw error.thrown
        return this.fail(instance, error)
      })
  }

  async close(): Promise<void> {
    if (this.closed) return
    this.closed = true
    const opened = await this.opened?.catch(() => undefined)
    if (opened && typeof this.target === 'string') await opened.instance.close()
    this.lock?.release()
  }

  private open(): Promise<Opened> {
    if (this.closed) throw new DatabaseError('The database was closed.', { fate: 'not_sent' })
    this.opened ??= this.openTarget().catch((error) => {
      this.opened = undefined
      this.lock?.release()
      this.lock = undefined
      throw toDatabaseError(error, 'connecting')
    })
    return this.opened
  }

  private async openTarget(): Promise<Opened> {
    if (typeof this.target !== 'string') return withSession(this.target)
    const { PGlite } = await loadPglite()
    if (this.target === 'memory') return withSession(await PGlite.create())
    this.lock = lockFolder(this.target)
    return withSession(await PGlite.create(this.target))
  }

  private async send(opened: Opened, statements: readonly EncodedStatement[]): Promise<Row[][]> {
    const { instance, session } = opened
    let plan: Plan | undefined
    try {
      this.requests++
      await instance.transaction(async () => {
        plan = planStatements(this.writer, statements, this.prepare ? session : undefined)
        const bytes = this.writer.take()
        // Durability is the COMMIT's, which the end of the transaction sends.
        const { messages } = await instance.runExclusive(() =>
          instance.execProtocol(bytes, { throwOnError: false, syncToFs: false }),
        )
        for (const message of messages) readMessage(plan, message)
      })
      return (plan as unknown as Plan).results()
    } catch (error) {
      plan?.abandon()
      const mapped = this.map(instance, error)
      if (!this.prepare || !isStalePrepared(mapped)) throw mapped
    }
    this.prepare = false
    return this.send(opened, statements)
  }

  private fail(instance: PgliteInstance, error: unknown): never {
    throw this.map(instance, error)
  }

  private map(instance: PgliteInstance, error: unknown): DatabaseError {
    return toDatabaseError(error, instance.closed ? 'connecting' : 'sent')
  }
}

class CallerFailure extends Error {
  readonly thrown: unknown

  constructor(thrown: unknown) {
    super('The function given to transaction() failed.')
    this.thrown = thrown
  }
}

function withSession(instance: PgliteInstance): Opened {
  const session = sessions.get(instance) ?? new Map()
  sessions.set(instance, session)
  return { instance, session }
}

async function runQuery(instance: PgliteInstance, queries: Queries, text: string, params: (string | null)[]): Promise<Row[]> {
  const { rows, fields } = await queries.query(text, params, rawOptions(instance))
  const reader = new RowReader(fields)
  // The cast: in array mode with identity parsers a row is its texts.
  return (rows as (string | null)[][]).map((texts) => reader.read(texts))
}

/** Throws the server's error, so that PGlite rolls the transaction back. */
function readMessage(plan: Plan, message: BackendMessage): void {
  // The casts: PGlite's messages are told apart by their name.
  if (message.name === 'dataRow') plan.row((message as unknown as { fields: readonly (string | null)[] }).fields)
  else if (message.name === 'rowDescription') plan.describe((message as unknown as { fields: readonly Field[] }).fields)
  else if (message.name === 'commandComplete') plan.completeStatement((message as unknown as { text: string }).text)
  else if (message.name === 'emptyQuery') plan.completeStatement('')
  else if (message.name === 'error') throw message
}

async function loadPglite(): Promise<{ PGlite: { create(folder?: string): Promise<PgliteInstance> } }> {
  // Within try a bundler takes a missing optional dependency for a warning, not an error.
  try {
    return await import('@electric-sql/pglite')
  } catch (cause) {
    throw new DatabaseError('The package @electric-sql/pglite is not installed: add it to use an embedded database.', {
      fate: 'not_sent',
      cause,
    })
  }
}
