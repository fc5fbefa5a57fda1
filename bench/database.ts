import pg from 'pg'

export async function withClient<T>(url: string, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.end()
  }
}

/** The same server, another database. */
export function urlOf(serverUrl: string, database: string): string {
  const url = new URL(serverUrl)
  url.pathname = `/${database}`
  return url.href
}

export async function createDatabase(serverUrl: string, name: string, template?: string): Promise<void> {
  await withClient(serverUrl, async (client) => {
    await client.query(`DROP DATABASE IF EXISTS "${name}" WITH (FORCE)`)
    await client.query(`CREATE DATABASE "${name}" ${template ? `TEMPLATE "${template}" STRATEGY file_copy` : ''}`)
  })
}

export async function dropDatabase(serverUrl: string, name: string): Promise<void> {
  await withClient(serverUrl, (client) => client.query(`DROP DATABASE IF EXISTS "${name}" WITH (FORCE)`))
}

export interface MultiplyRow {
  readonly table: string
  readonly count: number
  readonly where: string
  /** SQL by column for what must differ; `g` is the number of the copy. */
  readonly columns: Readonly<Record<string, string>>
}

/** Copies one row of a table many times: what a queue would hold after as many runs, without running them. */
export async function multiplyRow(client: pg.Client, { table, count, where, columns }: MultiplyRow): Promise<void> {
  const { rows } = await client.query<{ name: string; identity: string }>(
    `SELECT attname AS name, attidentity AS identity FROM pg_attribute
     WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum`,
    [table],
  )
  const names = rows.filter(({ identity, name }) => identity === '' || name in columns).map(({ name }) => name)
  const values = names.map((name) => columns[name] ?? `x."${name}"`)
  await client.query(
    `INSERT INTO ${table} (${names.map((name) => `"${name}"`).join(', ')})
     SELECT ${values.join(', ')} FROM (SELECT * FROM ${table} WHERE ${where} LIMIT 1) x, generate_series(1, ${count}) g`,
  )
}

/** What the server has counted, for one database where it counts by database. */
export interface Counters {
  readonly transactions: number
  readonly statements: number
  readonly walBytes: number
  readonly fullPageImages: number
}

/** Read while nobody is connected to the database: sessions report their counts when they end. */
export async function readCounters(serverUrl: string, database: string): Promise<Counters> {
  return withClient(serverUrl, async (client) => {
    await untilNobody(client, database)
    const { rows } = await client.query<Counters>(
      `SELECT (SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = $1) AS transactions,
        (SELECT coalesce(sum(calls), 0)::float8 FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1) AS statements,
        (pg_current_wal_insert_lsn() - '0/0')::float8 AS "walBytes", (SELECT wal_fpi::float8 FROM pg_stat_wal) AS "fullPageImages"`,
      [database],
    )
    return rows[0] as Counters
  })
}

async function untilNobody(client: pg.Client, database: string): Promise<void> {
  for (;;) {
    const { rows } = await client.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend' LIMIT 1`,
      [database],
    )
    if (rows.length === 0) return
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
