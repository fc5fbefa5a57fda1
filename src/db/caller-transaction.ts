/** A caller's own transaction, of whichever driver, as a `Database` that the parts of the store work with. */
import type { Database, DatabaseError, Row, Statement } from '../core/database.ts'
import { explainDatabaseError } from '../core/database-errors.ts'
import { describe, notAllowed, PawlError } from '../core/errors.ts'
import type { StoreContext } from './context.ts'
import { toDatabaseError } from './errors.ts'
import { checkTransaction, REFUSAL, requireTransaction } from './statements/check-transaction.ts'
import { encodeParameters, type Field, RowReader, TYPE_OIDS } from './values.ts'

type Send = (statements: readonly Statement[]) => Promise<readonly (readonly Row[])[]>

/**
 * Sends in the caller's transaction, each batch behind the checks. Its failures are PawlErrors, so that nothing is sent again: after one
 * Postgres lets the transaction only roll back. What it wrote before is gone with it, also when the reply was lost: COMMIT is the
 * caller's, and has not been sent.
 */
export function callersDatabase({ schema, database, lanes }: StoreContext, tx: unknown): Database {
  const send = senderOf(tx, database)
  let requests = 0
  const guarded: Send = async (statements) => {
    requests += 1
    const checks = [requireTransaction(schema, {}), checkTransaction(schema, { place: lanes.place })]
    try {
      return (await send([...checks, ...statements])).slice(checks.length)
    } catch (error) {
      throw explain(toDatabaseError(error, 'sent'), schema)
    }
  }
  return {
    driver: database.driver,
    get requests() {
      return requests
    },
    query: async (statement) => (await guarded([statement]))[0] ?? [],
    batch: guarded,
    close: async () => {},
  }
}

/** The shapes that are asked about. */
interface Shape {
  readonly query?: unknown
  readonly execute?: unknown
  readonly exec?: unknown
  readonly rollback?: unknown
  readonly session?: { readonly client?: unknown } | null
  readonly connection?: { readonly stream?: unknown } | null
}

function senderOf(tx: unknown, database: Database): Send {
  if (typeof tx !== 'object' || tx === null) throw noTransaction(tx)
  const shape = tx as Shape
  // drizzle's: its session holds what it was made over
  if (typeof shape.session === 'object' && shape.session !== null) return senderOf(shape.session.client, database)
  if (typeof shape.query !== 'function') throw noTransaction(tx)
  if (typeof shape.connection === 'object' && typeof shape.connection?.stream === 'object') {
    const { sendThrough } = database
    return sendThrough ? (statements) => sendThrough(tx, statements) : sendOneByOne(readerOfClient(tx as ClientQueries))
  }
  if (typeof shape.exec === 'function' && typeof shape.rollback === 'function')
    return sendOneByOne(readerOfPglite(tx as PgliteQueries))
  if (typeof shape.execute === 'function') return sendOneByOne((statement) => (tx as PawlQueries).query(statement))
  throw noTransaction(tx)
}

function noTransaction(got: unknown): PawlError {
  const allowed =
    'a client of node-postgres or of Neon’s WebSocket pool in BEGIN, or what transaction() over them or over PGlite hands out (over Neon HTTP: pawl.statements)'
  return notAllowed('invalid_request', { field: 'tx', got: isPool(got) ? 'a pool' : got, allowed })
}

function isPool(got: unknown): boolean {
  return typeof got === 'object' && got !== null && 'totalCount' in got
}

function sendOneByOne(query: (statement: Statement) => Promise<readonly Row[]>): Send {
  return async (statements) => {
    const replies: (readonly Row[])[] = []
    for (const statement of statements) replies.push(await query(statement))
    return replies
  }
}

interface PawlQueries {
  query(statement: Statement): Promise<readonly Row[]>
}

interface ClientQueries {
  query(request: object): Promise<{ rows: unknown[]; fields: readonly Field[] }>
}

/** Over a driver of pawl's that has no such clients: one statement after the other. */
function readerOfClient(client: ClientQueries) {
  return async (statement: Statement): Promise<readonly Row[]> => {
    const values = encodeParameters(statement)
    const types = { getTypeParser: () => rawText }
    return readRows(await client.query({ text: statement.text, values, rowMode: 'array', types }))
  }
}

function readRows({ rows, fields }: { readonly rows: unknown[]; readonly fields: readonly Field[] }): readonly Row[] {
  const reader = new RowReader(fields)
  // in array mode without parsers a row is its texts
  return (rows as (string | null)[][]).map((texts) => reader.read(texts))
}

interface PgliteQueries {
  query(text: string, params: (string | null)[], options: object): Promise<{ rows: unknown[]; fields: readonly Field[] }>
}

const rawText = (text: unknown) => text
const identities = Object.fromEntries(TYPE_OIDS.map((oid) => [oid, rawText]))
/** Raw text for every type, in and out: it is parsed in one place for all drivers. */
const RAW = { rowMode: 'array', parsers: identities, serializers: identities }

function readerOfPglite(tx: PgliteQueries) {
  return async (statement: Statement): Promise<readonly Row[]> => {
    return readRows(await tx.query(statement.text, encodeParameters(statement), RAW))
  }
}

/** No such table or schema. */
const NOT_OURS = /^(42P01|3F000)$/
const NO_TRANSACTION_BLOCK = '25P01'
const FAILED_TRANSACTION = '25P02'
const INVALID_TEXT = '22P02'
/** Deadlock, serialization failure. */
const SEND_AGAIN = /^40/

function explain(error: DatabaseError, schema: string): unknown {
  const { sqlstate = '' } = error
  const refusal = sqlstate === INVALID_TEXT ? readRefusal(error.message) : undefined
  if (refusal) return refused(refusal, schema, error)
  if (NOT_OURS.test(sqlstate))
    return refused({ what: 'wrong_database', got: `no tables of pawl in schema "${schema}"` }, schema, error)
  if (sqlstate === NO_TRANSACTION_BLOCK) {
    return refusedField({ field: 'tx', got: 'a connection without a transaction', allowed: 'one in BEGIN' }, error)
  }
  if (sqlstate === FAILED_TRANSACTION) {
    return refusedField({ field: 'tx', got: 'a transaction that has failed', allowed: 'one in which nothing has failed' }, error)
  }
  if (SEND_AGAIN.test(sqlstate)) {
    const detail = 'The transaction met others and was ended by Postgres. Nothing of it was written: run it again from its BEGIN.'
    return new PawlError('database_busy', detail, { retryAfterMs: 0, cause: error })
  }
  return explainDatabaseError(error, { asked: 'Writing in the transaction', writes: false })
}

/** The PawlError of a batch of the caller's that statements of ours have failed; any other error as it is. */
export function explainBatch(thrown: unknown, schema: string): unknown {
  const error = toDatabaseError(thrown, 'sent')
  const { sqlstate = '' } = error
  const isOurs = (sqlstate === INVALID_TEXT && readRefusal(error.message) !== undefined) || sqlstate === NO_TRANSACTION_BLOCK
  return isOurs ? explain(error, schema) : thrown
}

interface Refusal {
  readonly what: string
  readonly got: string
}

/** The quotes around it are those of the server's language. */
const REFUSED = new RegExp(`${REFUSAL}(\\w+):([^"»“”]*)`)

function readRefusal(message: string): Refusal | undefined {
  const [, what, got = ''] = REFUSED.exec(message) ?? []
  return what === undefined ? undefined : { what, got: got.trim() }
}

function refused({ what, got }: Refusal, schema: string, cause: DatabaseError): PawlError {
  switch (what) {
    case 'isolation':
      return refusedField({ field: 'isolation', got: got.toUpperCase(), allowed: 'READ COMMITTED' }, cause)
    case 'access':
      return refusedField({ field: 'tx', got: 'a transaction that is READ ONLY', allowed: 'one that may write' }, cause)
    case 'wrong_database': {
      const detail = `The transaction is one of another database than pawl's: got ${got}, allowed is the one with its schema "${schema}". Nothing was written.`
      return new PawlError('wrong_database', detail, { field: 'tx', got, allowed: 'the database of pawl', cause })
    }
    default:
      return refusedCall({ what, got }, cause)
  }
}

/** What the calls say of themselves where somebody reads their answer. */
function refusedCall({ what, got }: Refusal, cause: DatabaseError): PawlError {
  switch (what) {
    case 'idempotency_mismatch':
      return new PawlError(what, `The idempotency key ${describe(got)} was used for another request. Nothing was written.`, {
        field: 'idempotencyKey',
        got,
        cause,
      })
    case 'id_taken':
      return new PawlError('conflict', `The id ${got} belongs to another run. Nothing was written.`, { field: 'id', got, cause })
    case 'ambiguous':
      return new PawlError('conflict', `Several live runs have the key ${describe(got)}: say the definition.`, {
        field: 'to.definition',
        cause,
      })
    case 'no_target':
      return new PawlError('no_target', `No live run has the id or key ${describe(got)}. Nothing was written.`, {
        field: 'to',
        got,
        cause,
      })
    default:
      return new PawlError(
        'database_busy',
        `Run ${got} met another that was just ending. Nothing was written: send the batch again.`,
        {
          retryAfterMs: 0,
          cause,
        },
      )
  }
}

function refusedField(params: { field: string; got: string; allowed: string }, cause: DatabaseError): PawlError {
  const { field, got, allowed } = params
  const detail = `${field}: got ${got}, allowed is ${allowed}. Nothing was written.`
  return new PawlError('invalid_request', detail, { field, got, allowed, cause })
}
