/**
 * The port between the engine and a Postgres driver. Four drivers implement it; nothing above it can tell them apart.
 */

/** What a statement takes for one `$n`. Arrays are bound as one Postgres array; objects never are (bind JSON text and cast). */
export type Parameter = null | boolean | number | bigint | string | readonly (null | boolean | number | bigint | string)[]

/**
 * What a column reads back as, on every driver alike:
 * int2, int4, float4, float8, oid → `number` · int8, numeric → `bigint` when integral int8, numeric stays text ·
 * bool → `boolean` · json, jsonb → parsed value · timestamptz, timestamp → RFC 3339 text in UTC with milliseconds ·
 * arrays of the above → arrays · uuid, text, enums and everything else → text · NULL → `null`.
 */
export type Value = null | boolean | number | bigint | string | readonly Value[] | { readonly [key: string]: unknown }

export interface Row {
  readonly [column: string]: Value
}

/** One SQL statement: static text and its parameters. `name` identifies the text (prepared statements, traces, cost tests). */
export interface Statement {
  readonly name: string
  readonly text: string
  readonly params: readonly Parameter[]
  /** The parameters are made when they are first read, and can surely be bound: a driver that writes a batch in parts reads them as it writes. */
  readonly isLater?: true
}

export interface Database {
  readonly driver: 'neon-http' | 'neon-websocket' | 'node-postgres' | 'pglite'
  /** Database requests sent since this object was made: one per `query`, `batch` or statement inside `transaction`. */
  readonly requests: number
  /** Reads with one statement, in one request. Retries nothing. */
  query(statement: Statement): Promise<readonly Row[]>
  /**
   * Runs the statements as one READ COMMITTED transaction, whatever the role's default isolation is, sent whole before
   * any reply is awaited: one request. Rolls back as one. Deadlock (40P01) and serialization failure (40001) are sent
   * again, up to 5 times in all; nothing else is. Answers the rows of each statement, in order.
   */
  batch(statements: readonly Statement[]): Promise<readonly (readonly Row[])[]>
  /**
   * An interactive READ COMMITTED transaction, where the driver has one (absent over Neon HTTP). For callers who enqueue
   * inside their own transaction and for migrations; the engine itself never uses it.
   */
  readonly transaction?: <T>(fn: (tx: Transaction) => Promise<T>) => Promise<T>
  /**
   * Sends through a client that somebody else has checked out, of the kind that this driver uses, in one write behind whatever its owner
   * has sent; prepares nothing by name on it. Absent where the driver has no clients.
   */
  readonly sendThrough?: (client: object, statements: readonly Statement[]) => Promise<readonly (readonly Row[])[]>
  /** Frees what the driver itself opened (pools, files, locks). Idempotent. */
  close(): Promise<void>
}

export interface Transaction {
  query(statement: Statement): Promise<readonly Row[]>
  /** Several statements as text, without parameters (migrations). */
  execute(sql: string): Promise<void>
}

/**
 * Every failure of a driver, mapped in one place.
 * `refused`: the server answered with an SQLSTATE (see `sqlstate`, `constraint`): nothing was written.
 * `not_sent`: the statement surely never reached the server: nothing was written.
 * `lost`: it may or may not have been executed: the reply was lost.
 */
export class DatabaseError extends Error {
  override readonly name = 'DatabaseError'
  readonly fate: 'refused' | 'not_sent' | 'lost'
  readonly sqlstate: string | undefined
  readonly constraint: string | undefined
  readonly detail: string | undefined

  constructor(
    message: string,
    options: {
      fate: 'refused' | 'not_sent' | 'lost'
      sqlstate?: string | undefined
      constraint?: string | undefined
      detail?: string | undefined
      cause?: unknown
    },
  ) {
    super(message, { cause: options.cause })
    this.fate = options.fate
    this.sqlstate = options.sqlstate
    this.constraint = options.constraint
    this.detail = options.detail
  }
}

/** The server answered with an error: nothing was written, and sending the same again would end the same. */
export function isRefusal(error: unknown): boolean {
  return error instanceof DatabaseError && error.fate === 'refused'
}
