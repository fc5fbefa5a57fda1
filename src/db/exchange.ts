import { DatabaseError, type Row, type Statement } from '../core/database.ts'
import { encodeParameters, type Field, RowReader } from './values.ts'
import type { WireWriter } from './wire.ts'

/**
 * One request in the extended protocol: statements in a row that end in a single Sync, and the reader of the
 * replies. After an error the server skips to the Sync, so nothing behind a failed statement runs. Prepared statements
 * are kept per connection, and so are their result descriptions: the server refuses a plan whose result type has changed,
 * therefore a remembered description cannot be wrong.
 */

/** A statement that one connection has, or may have, prepared. */
interface Prepared {
  readonly wireName: string
  /** `unknown`: its Parse was in a request that failed, and may have been executed or not. */
  state: 'absent' | 'parsing' | 'unknown' | 'ready'
  reader: RowReader | undefined
}

/** What a connection has prepared, by text. */
export type Session = Map<string, Prepared>

/** Texts are static, so there are few; a caller who makes them up must not fill the server's memory. */
const MAX_PREPARED = 500

interface Planned {
  readonly prepared: Prepared | undefined
  reader: RowReader | undefined
  readonly rows: Row[]
}

export interface EncodedStatement {
  readonly statement: Statement
  /** Absent: to be encoded as it is written. */
  readonly params?: readonly (string | null)[]
}

/** Throws a `DatabaseError` with fate `not_sent` for what cannot be bound. */
export function encode(statement: Statement): EncodedStatement {
  return statement.isLater ? { statement } : { statement, params: encodeParameters(statement) }
}

/**
 * Writes the statements and their Sync to `writer`. With a session they are prepared by name, else
 * unnamed. `ahead` is called before one is encoded that could wait.
 */
export function planStatements(
  writer: WireWriter,
  statements: readonly EncodedStatement[],
  session: Session | undefined,
  ahead: () => void = () => {},
): Plan {
  const planned: Planned[] = []
  try {
    for (const { statement, params: early } of statements) {
      if (!early) ahead()
      const params = early ?? encodeParameters(statement)
      const prepared = session && preparedFor(session, statement)
      writeStatement(writer, statement.text, params, prepared)
      planned.push({ prepared, reader: prepared?.state === 'ready' ? prepared.reader : undefined, rows: [] })
    }
  } catch (error) {
    new Plan(planned).abandon()
    writer.take()
    throw error
  }
  writer.sync()
  return new Plan(planned)
}

function preparedFor(session: Session, { name, text }: Statement): Prepared | undefined {
  const known = session.get(text)
  if (known) return known
  if (session.size >= MAX_PREPARED) return undefined
  const prepared: Prepared = { wireName: wireNameOf(name, text), state: 'absent', reader: undefined }
  session.set(text, prepared)
  return prepared
}

function writeStatement(writer: WireWriter, text: string, params: readonly (string | null)[], prepared: Prepared | undefined) {
  if (!prepared) writer.parse('', text)
  // A Close of nothing is no error, and makes room for a Parse of a name that may already be there.
  if (prepared?.state === 'unknown') writer.closeStatement(prepared.wireName)
  if (prepared?.state === 'unknown' || prepared?.state === 'absent') {
    writer.parse(prepared.wireName, text)
    prepared.state = 'parsing'
  }
  writer.bind(prepared?.wireName ?? '', params)
  if (prepared?.state !== 'ready') writer.describePortal()
  writer.execute()
}

/** Reads the replies to a planned request, in order. */
export class Plan {
  private readonly planned: readonly Planned[]
  private at = 0
  private unreadable: unknown
  /** The command tag of the statement answered last. */
  tag = ''

  constructor(planned: readonly Planned[]) {
    this.planned = planned
  }

  /** Every statement was executed, the COMMIT included, whatever happens to the connection from here on. */
  get complete(): boolean {
    return this.at === this.planned.length
  }

  get named(): boolean {
    return this.planned.some(({ prepared }) => prepared !== undefined)
  }

  describe(fields: readonly Field[]): void {
    const current = this.planned[this.at]
    if (current) current.reader = new RowReader(fields)
  }

  row(texts: readonly (string | null)[]): void {
    const current = this.planned[this.at]
    if (!current?.reader) return
    try {
      current.rows.push(current.reader.read(texts))
    } catch (error) {
      // Replies are read inside the socket's event: thrown from here it would end the process.
      this.unreadable ??= error
    }
  }

  completeStatement(tag: string): void {
    const current = this.planned[this.at]
    this.tag = tag
    this.at++
    if (!current?.prepared) return
    current.prepared.state = 'ready'
    current.prepared.reader = current.reader
  }

  /** To be called when the request failed: what was being prepared may or may not be there now. */
  abandon(): void {
    for (const { prepared } of this.planned) if (prepared?.state === 'parsing') prepared.state = 'unknown'
  }

  results(): Row[][] {
    if (this.unreadable !== undefined) {
      throw new DatabaseError('A reply of the database could not be read; the request was executed.', {
        fate: 'lost',
        cause: this.unreadable,
      })
    }
    return this.planned.map(({ rows }) => rows)
  }
}

/** Postgres cuts identifiers at 63 bytes. */
const MAX_LABEL = 30

const wireNames = new Map<string, string>()

/** Bounds the memory for callers who make up texts. */
const MAX_WIRE_NAMES = 2000

/**
 * The same text has the same name in every process and another text never has it: behind a pooler, where sessions are
 * shared, a name that was prepared by somebody else still means our statement.
 */
function wireNameOf(name: string, text: string): string {
  const known = wireNames.get(text)
  if (known !== undefined) return known
  const label = name.replace(/\W/g, '_').slice(0, MAX_LABEL)
  const wireName = `${label}_${hash53(text, 0)}${hash53(text, 0x9e3779b9)}`
  if (wireNames.size < MAX_WIRE_NAMES) wireNames.set(text, wireName)
  return wireName
}

/** A 53-bit hash (two multiplicative lanes); it need not withstand an adversary: the texts are our own. */
function hash53(text: string, seed: number): string {
  let high = 0xdeadbeef ^ seed
  let low = 0x41c6ce57 ^ seed
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    high = Math.imul(high ^ code, 2654435761)
    low = Math.imul(low ^ code, 1597334677)
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909)
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909)
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36)
}

/** Answers that mean: a prepared statement is not what we think it is (a pooler, DISCARD, changed columns). Nothing was executed. */
export function isStalePrepared(error: { sqlstate?: string | undefined; cause?: unknown }): boolean {
  if (error.sqlstate === '26000' || error.sqlstate === '42P05') return true
  // The routine, because the message ("cached plan must not change result type") is translated.
  return error.sqlstate === '0A000' && (error.cause as { routine?: unknown } | undefined)?.routine === 'RevalidateCachedQuery'
}

/** Pins the isolation level, which a role or database default may have changed. */
export const BEGIN = encode({ name: 'begin', text: 'BEGIN ISOLATION LEVEL READ COMMITTED', params: [] })
export const COMMIT = encode({ name: 'commit', text: 'COMMIT', params: [] })
