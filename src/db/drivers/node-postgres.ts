import { type Database, DatabaseError } from '../../core/database.ts'
import { type PipelinePool, pipelinedDatabase } from '../pipeline.ts'

export interface NodePostgresOptions {
  readonly connectionString: string
  /** Connections at most. Default 10. */
  readonly max?: number
  /** How long to wait for a connection. Default 0: for ever. */
  readonly connectionTimeoutMs?: number
  /** How long an unused connection is kept. Default 10,000. */
  readonly idleTimeoutMs?: number
  /** Default: what the connection string says. */
  readonly ssl?: boolean | object
  /** Prepared statements by name. Default true; turned off by itself for good when the server or a pooler does not know them. */
  readonly prepare?: boolean
}

/** The shape by which a handed-in pool is told from options. */
function isPool(target: PipelinePool | NodePostgresOptions): target is PipelinePool {
  return 'connect' in target
}

/**
 * A `Database` over node-postgres (`pg` 8), an optional peer dependency that is loaded at the first request, or over a
 * pool that the caller made (and ends: `close` ends only a pool made here). Connects at the first request.
 *
 * A batch is written whole, BEGIN and COMMIT included, before a reply is read. Errors are `DatabaseError`s: a server that
 * is away gives `not_sent`, a connection that broke after sending gives `lost`, an answer of the server gives `refused`.
 */
export function nodePostgres(target: PipelinePool | NodePostgresOptions): Database {
  if (isPool(target)) return pipelinedDatabase({ driver: 'node-postgres', open: () => target, owned: false, prepare: true })
  return pipelinedDatabase({
    driver: 'node-postgres',
    open: () => openPool(target),
    owned: true,
    prepare: target.prepare ?? true,
  })
}

async function openPool(options: NodePostgresOptions): Promise<PipelinePool> {
  const { connectionString, max = 10, connectionTimeoutMs = 0, idleTimeoutMs = 10_000, ssl } = options
  const pg = await loadPg()
  const pool = new pg.default.Pool({
    connectionString,
    max,
    connectionTimeoutMillis: connectionTimeoutMs,
    idleTimeoutMillis: idleTimeoutMs,
    ...(ssl === undefined ? {} : { ssl }),
  })
  // An idle connection that breaks is replaced at the next request; unheard, the event would end the process.
  pool.on('error', () => {})
  return pool
}

async function loadPg() {
  // Within try a bundler takes a missing optional dependency for a warning, not an error.
  try {
    return await import('pg')
  } catch (cause) {
    throw new DatabaseError('The package pg is not installed: add it, or hand in a pool.', { fate: 'not_sent', cause })
  }
}
