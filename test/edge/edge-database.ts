import { inject } from 'vitest'
import type { Database } from '../../src/core/database.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'

export interface EdgeEnv {
  readonly DATABASE_URL: string
  readonly NEON_ENDPOINT: string
}

/** A fresh database, as a Worker's bindings name it. */
export async function freshEdgeEnv(): Promise<EdgeEnv> {
  const response = await fetch(inject('edgeDatabases'), { method: 'POST' })
  const { neon } = await response.json<{ neon: { connectionString: string; httpUrl: string } }>()
  return { DATABASE_URL: neon.connectionString, NEON_ENDPOINT: neon.httpUrl }
}

export function openEdgeDatabase(env: EdgeEnv): Database {
  return neonHttp(env.DATABASE_URL, { endpoint: env.NEON_ENDPOINT })
}

/** Every database that was opened through it, so that a test can count what an invocation asked. */
export class OpenedDatabases {
  readonly all: Database[] = []

  open(env: EdgeEnv): Database {
    const database = openEdgeDatabase(env)
    this.all.push(database)
    return database
  }

  /** Requests of each invocation since the last call. */
  take(): readonly number[] {
    return this.all.splice(0).map(({ requests }) => requests)
  }
}
