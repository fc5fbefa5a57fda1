import { PGlite } from '@electric-sql/pglite'
import { neon, neonConfig } from '@neondatabase/serverless'
import type { Database, Statement } from '../../src/core/database.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { neonWebsocket } from '../../src/db/drivers/neon-websocket.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { pglite } from '../../src/db/drivers/pglite.ts'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import type { Faults } from '../../src/testing/faults.ts'
import { startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'

/** A driver on an empty database whose sessions have an odd time zone and a stricter default isolation level. */
export interface Subject {
  /** One connection, so that what a test does to the session is seen by the next request. */
  readonly database: Database
  readonly close: () => Promise<void>
}

/** A driver with a network between it and its server. */
export interface NetworkSubject extends Subject {
  readonly faults: Faults
  /** The server, past the faults. */
  readonly fresh: FreshDatabase
  /** Another object of the same driver, closed with the subject. */
  readonly connect: () => Database
}

const ODD_SESSION = { timezone: 'Asia/Kathmandu', default_transaction_isolation: 'repeatable read' }

export async function nodePostgresSubject(): Promise<NetworkSubject> {
  const fresh = await oddDatabase()
  const { connectionString, faults, close } = await startFaultProxy(fresh.connectionString)
  return networkSubject(fresh, faults, close, () => nodePostgres({ connectionString, max: 1 }))
}

export async function neonHttpSubject(): Promise<NetworkSubject> {
  const fresh = await oddDatabase()
  const endpoint = await startNeonEndpoint({ target: fresh.connectionString })
  const open = () => neonHttp(endpoint.connectionString, { endpoint: endpoint.httpUrl })
  return networkSubject(fresh, endpoint.faults, endpoint.close, open)
}

/** The same over what Neon's own package makes: it proves that the endpoint and our requests speak as that package does. */
export async function neonPackageSubject(): Promise<NetworkSubject> {
  const fresh = await oddDatabase()
  const endpoint = await startNeonEndpoint({ target: fresh.connectionString })
  const { host } = new URL(endpoint.connectionString)
  packageEndpoints.set(host, endpoint.httpUrl)
  neonConfig.fetchEndpoint = (hostname, port) => packageEndpoints.get(`${hostname}:${port}`) ?? ''
  return networkSubject(fresh, endpoint.faults, endpoint.close, () => neonHttp(neon(endpoint.connectionString)))
}

/** Neon's setting is one for the whole process. */
const packageEndpoints = new Map<string, string>()

export async function neonWebsocketSubject(): Promise<NetworkSubject> {
  const fresh = await oddDatabase()
  const endpoint = await startNeonEndpoint({ target: fresh.connectionString })
  const open = () => neonWebsocket(endpoint.connectionString, { proxy: endpoint.websocketUrl, max: 1 })
  return networkSubject(fresh, endpoint.faults, endpoint.close, open)
}

export async function pgliteSubject(): Promise<Subject> {
  const instance = await PGlite.create()
  for (const [name, value] of Object.entries(ODD_SESSION)) await instance.exec(`SET ${name} = '${value}'`)
  const database = pglite(instance)
  return {
    database,
    close: async () => {
      await database.close()
      await instance.close()
    },
  }
}

/** The three drivers at a port where nobody listens. */
export async function absentDatabases(): Promise<Database[]> {
  const proxy = await startFaultProxy('postgres://postgres@127.0.0.1:1/postgres')
  await proxy.close()
  const { port, connectionString } = proxy
  return [
    nodePostgres({ connectionString }),
    neonHttp(connectionString, { endpoint: `http://127.0.0.1:${port}/sql` }),
    neonWebsocket(connectionString, { proxy: `ws://127.0.0.1:${port}/v2` }),
  ]
}

/** The settings hold for this database alone: the role is shared by every test on the server. */
async function oddDatabase(): Promise<FreshDatabase> {
  const fresh = await freshDatabase(18, { empty: true })
  const admin = fresh.pool({ max: 1 })
  for (const [name, value] of Object.entries(ODD_SESSION)) {
    await admin.query(`ALTER ROLE postgres IN DATABASE ${fresh.name} SET ${name} = '${value}'`)
  }
  return fresh
}

function networkSubject(
  fresh: FreshDatabase,
  faults: Faults,
  closeWay: () => Promise<void>,
  open: () => Database,
): NetworkSubject {
  const opened: Database[] = []
  const connect = () => {
    const database = open()
    opened.push(database)
    return database
  }
  return {
    database: connect(),
    faults,
    fresh,
    connect,
    close: async () => {
      await Promise.all(opened.map((database) => database.close()))
      await closeWay()
      await fresh.close()
    },
  }
}

/** A statement named by its text, for tests. */
export function sql(text: string, ...params: Statement['params']): Statement {
  return { name: text.slice(0, 20), text, params }
}
