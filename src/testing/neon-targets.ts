import type { ClientBase, Pool, PoolConfig } from 'pg'

/** A statement as Neon's HTTP driver sends it. */
export interface NeonQuery {
  readonly query: string
  readonly params: readonly unknown[]
}

/** What Neon answers for one statement: raw text in arrays. */
export interface NeonResult {
  readonly command: string
  readonly rowCount: number | null
  readonly rowAsArray: true
  readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[]
  readonly rows: readonly unknown[]
}

export interface NeonBatchOptions {
  readonly isolationLevel: string
  readonly readOnly: boolean
  readonly deferrable: boolean
}

/** The database behind the endpoint. */
export interface NeonTarget {
  query(credentials: URL, query: NeonQuery): Promise<NeonResult>
  batch(credentials: URL, queries: readonly NeonQuery[], options: NeonBatchOptions): Promise<NeonResult[]>
  close(): Promise<void>
}

/** What is used of a PGlite instance. */
export interface PgliteTarget {
  readonly parsers: object
  readonly serializers: object
  query(text: string, params: unknown[], options: object): Promise<PgliteResult>
  transaction<T>(run: (tx: { query: PgliteTarget['query']; exec(sql: string): Promise<unknown> }) => Promise<T>): Promise<T>
}

interface PgliteResult {
  readonly rows: unknown[]
  readonly fields: { name: string; dataTypeID: number }[]
  readonly command?: string
  readonly affectedRows?: number
}

const rawText = (text: unknown) => text

/** A real server, by host and port; user, password and database come with each request. */
export async function postgresTarget(host: string, port: number): Promise<NeonTarget> {
  const { default: pg } = await import('pg')
  const pools = new Map<string, Pool>()
  const poolFor = (credentials: URL): Pool => {
    const known = pools.get(credentials.href)
    if (known) return known
    const pool = new pg.Pool({ ...loginOf(credentials), host, port, max: 20 })
    // A database that is dropped, or a server that stops, ends idle connections.
    pool.on('error', () => {})
    pools.set(credentials.href, pool)
    return pool
  }
  return {
    query: async (credentials, query) => withClient(poolFor(credentials), (client) => runOn(client, query)),
    batch: async (credentials, queries, options) =>
      withClient(poolFor(credentials), async (client) => {
        await client.query(`BEGIN ${transactionModes(options)}`)
        try {
          const results: NeonResult[] = []
          for (const query of queries) results.push(await runOn(client, query))
          await client.query('COMMIT')
          return results
        } catch (error) {
          // The session may be gone; what is to be told is why.
          await client.query('ROLLBACK').catch(() => undefined)
          throw error
        }
      }),
    close: async () => {
      await Promise.all([...pools.values()].map((pool) => pool.end()))
    },
  }
}

async function withClient<T>(pool: Pool, run: (client: ClientBase) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  let failure: Error | undefined
  const onError = (error: Error) => {
    failure = error
  }
  client.on('error', onError)
  try {
    return await run(client)
  } finally {
    client.removeListener('error', onError)
    client.release(failure)
  }
}

async function runOn(client: ClientBase, { query, params }: NeonQuery): Promise<NeonResult> {
  const request = {
    text: query,
    values: [...params],
    rowMode: 'array' as const,
    // Neon has no simple protocol over HTTP: several statements in one text are a syntax error (42601).
    queryMode: 'extended',
    types: { getTypeParser: () => rawText },
  }
  const { command, rowCount, fields, rows } = await client.query(request)
  return { command, rowCount, rowAsArray: true, fields: fields ?? [], rows }
}

function loginOf(credentials: URL): PoolConfig {
  return {
    user: decodeURIComponent(credentials.username) || 'postgres',
    password: decodeURIComponent(credentials.password),
    database: decodeURIComponent(credentials.pathname.slice(1)) || 'postgres',
  }
}

/** An embedded database; whoever asks, it is the same one. */
export function pgliteTarget(database: PgliteTarget): NeonTarget {
  const run = async (queries: Pick<PgliteTarget, 'query'>, { query, params }: NeonQuery): Promise<NeonResult> => {
    const options = { rowMode: 'array', parsers: identities(database.parsers), serializers: identities(database.serializers) }
    const { command = '', affectedRows, fields, rows } = await queries.query(query, [...params], options)
    return { command, rowCount: affectedRows || rows.length, rowAsArray: true, fields, rows }
  }
  return {
    query: (_credentials, query) => run(database, query),
    batch: (_credentials, queries, batchOptions) =>
      database.transaction(async (tx) => {
        await tx.exec(`SET TRANSACTION ${transactionModes(batchOptions)}`)
        const results: NeonResult[] = []
        for (const query of queries) results.push(await run(tx, query))
        return results
      }),
    close: async () => {},
  }
}

/** PGlite copies its options, so each type is listed. */
function identities(byType: object): Record<string, typeof rawText> {
  return Object.fromEntries(Object.keys(byType).map((type) => [type, rawText]))
}

const ISOLATION_LEVELS: Readonly<Record<string, string>> = {
  ReadUncommitted: 'READ UNCOMMITTED',
  ReadCommitted: 'READ COMMITTED',
  RepeatableRead: 'REPEATABLE READ',
  Serializable: 'SERIALIZABLE',
}

/** Neon's own default is Read Committed, whatever the role's is. */
function transactionModes({ isolationLevel, readOnly, deferrable }: NeonBatchOptions): string {
  const level = ISOLATION_LEVELS[isolationLevel] ?? 'READ COMMITTED'
  return `ISOLATION LEVEL ${level}${readOnly ? ' READ ONLY' : ''}${deferrable ? ' DEFERRABLE' : ''}`
}
