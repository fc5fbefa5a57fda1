import { startPostgres } from '../test/support/postgres-server.ts'
import { readParent } from './cpu.ts'
import { withClient } from './database.ts'

export interface BenchServer {
  /** Of the database `postgres`, as a superuser. */
  readonly url: string
  /** Its process, where it runs on this machine: to tell its CPU time from everybody else's. */
  readonly postmaster: number | undefined
  stop(): Promise<void>
}

/** What durability costs is in every number: fsync and full_page_writes are on. No checkpoint falls into a measurement. */
const SETTINGS = {
  fsync: 'on',
  full_page_writes: 'on',
  synchronous_commit: 'on',
  shared_buffers: '256MB',
  max_wal_size: '8GB',
  checkpoint_timeout: '1h',
  'pg_stat_statements.track': 'top',
}

/** The server that `BENCH_PGHOST` (with `BENCH_PGPORT`, `BENCH_PGUSER`, `BENCH_PGPASSWORD`) names, else a PostgreSQL 15 of its own. */
export async function openServer(env: NodeJS.ProcessEnv): Promise<BenchServer> {
  const {
    BENCH_PGHOST: host,
    BENCH_PGPORT: port = '5432',
    BENCH_PGUSER: user = 'postgres',
    BENCH_PGPASSWORD: password = '',
  } = env
  const server = host === undefined ? await startOwn() : await findServer({ host, port, user, password })
  await withClient(server.url, (client) => client.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements'))
  return server
}

async function findServer({
  host,
  port,
  user,
  password,
}: Readonly<Record<'host' | 'port' | 'user' | 'password', string>>): Promise<BenchServer> {
  const url = new URL(`postgres://${host}:${port}/postgres`)
  url.username = user
  url.password = password
  return { url: url.href, postmaster: await findPostmaster(url.href), stop: async () => {} }
}

async function startOwn(): Promise<BenchServer> {
  const server = await startPostgres(15, { fsync: true, settings: SETTINGS })
  if (server === undefined) throw new Error('No PostgreSQL 15 on this machine: set PG15_BIN to its bin folder, or BENCH_PGHOST.')
  return { url: server.connectionString, postmaster: server.pid(), stop: server.stop }
}

/** The parent of our own session's process; nothing when the server is elsewhere. */
async function findPostmaster(url: string): Promise<number | undefined> {
  return withClient(url, async (client) => {
    const { rows } = await client.query<{ pid: number; local: boolean }>(
      `SELECT pg_backend_pid() AS pid, inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8' AS local`,
    )
    return rows[0]?.local ? readParent(rows[0].pid) : undefined
  })
}

/** What of the server's settings matters for the numbers. */
export async function readSettings(url: string): Promise<Readonly<Record<string, string>>> {
  const names = [...Object.keys(SETTINGS), 'autovacuum', 'wal_compression', 'jit', 'max_connections', 'server_version']
  return withClient(url, async (client) => {
    const { rows } = await client.query<{ name: string; value: string }>(
      'SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY ($1::text[]) ORDER BY name',
      [names],
    )
    return Object.fromEntries(rows.map(({ name, value }) => [name, value]))
  })
}
