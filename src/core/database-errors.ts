/** What a failed database request means to who asked: the one place where SQLSTATEs become codes of ours. */
import { DatabaseError } from './database.ts'
import { type ErrorCode, PawlError } from './errors.ts'

/** When a database that was away or busy may be asked again, in milliseconds: a suspended one needs a second or two to start. */
const RETRY_AFTER_MS = 2_000

export interface ExplainDatabaseErrorOptions {
  /** What was asked, in words that go on "…: the reply was lost": `spawn 0190…`. */
  readonly asked: string
  /** False: nothing was to be written, so a lost reply is only a database that cannot be reached. Default true. */
  readonly writes?: boolean
  /** How the caller finds out, or asks again without harm. For lost replies to writes. */
  readonly remedy?: string
}

/** The PawlError of a DatabaseError; anything else is given back as it is. */
export function explainDatabaseError(error: unknown, options: ExplainDatabaseErrorOptions): unknown {
  if (!(error instanceof DatabaseError)) return error
  const { asked, writes = true, remedy = 'Look before asking again.' } = options
  if (error.fate === 'lost' && writes) {
    return new PawlError('unknown_outcome', `${asked}: the reply was lost, so it may or may not have happened. ${remedy}`, {
      retryAfterMs: RETRY_AFTER_MS,
      cause: error,
    })
  }
  const code = codeOf(error)
  const detail = `${asked}: ${SENTENCES[code] ?? error.message}`
  const again = code === 'database_busy' || code === 'database_unreachable'
  return new PawlError(code, detail, { retryAfterMs: again ? RETRY_AFTER_MS : undefined, cause: error })
}

const SENTENCES: Partial<Record<ErrorCode, string>> = {
  schema_outdated: 'the database has no schema that this build can use. Run "pawl migrate", and check the name of the schema.',
  database_busy: 'the database is too busy. Nothing was written.',
  database_unreachable: 'the database cannot be reached. Nothing was written.',
  not_configured: 'the database refuses this role, or there is no database of that name. Nothing was written.',
}

/** Undefined table, schema, column, function or type. */
const NO_SCHEMA = /^(42P01|3F000|42703|42883|42704)$/
/** No resources, too many connections, not accepting, cancelled by a timeout, a lock not to be had, deadlock, serialization. */
const BUSY = /^(53...|57P03|57014|55P03|40P01|40001)$/
/** A role or password that is not accepted, no such database, no right to a table. */
const NOT_ADMITTED = /^(28...|3D000|42501)$/
/** A read-only standby after a failover: the writable one is elsewhere for the moment. */
const READ_ONLY = '25006'

/** What refuses runs in a partition that is about to be dropped: none comes to life again. If it is not dropped after all, that is over in seconds. */
export const CLOSING_CONSTRAINT = 'pawl_partition_closing'

function codeOf({ fate, sqlstate, constraint }: DatabaseError): ErrorCode {
  if (constraint === CLOSING_CONSTRAINT) return 'database_busy'
  if (sqlstate === undefined) return fate === 'refused' ? 'internal' : 'database_unreachable'
  if (BUSY.test(sqlstate)) return 'database_busy'
  if (NO_SCHEMA.test(sqlstate)) return 'schema_outdated'
  if (NOT_ADMITTED.test(sqlstate)) return 'not_configured'
  return fate === 'refused' && sqlstate !== READ_ONLY ? 'internal' : 'database_unreachable'
}
