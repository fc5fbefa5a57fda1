import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Database, DatabaseError } from '../../src/core/database.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import {
  absentDatabases,
  type NetworkSubject,
  neonHttpSubject,
  neonPackageSubject,
  neonWebsocketSubject,
  nodePostgresSubject,
  sql,
} from './subjects.ts'

const drivers = [
  { driver: 'node-postgres', open: nodePostgresSubject },
  { driver: 'neon-http', open: neonHttpSubject },
  { driver: 'neon-http over the package', open: neonPackageSubject },
  { driver: 'neon-websocket', open: neonWebsocketSubject },
] as const

const failure = async (work: Promise<unknown>): Promise<DatabaseError> => {
  const error = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(DatabaseError)
  return error as DatabaseError
}

describe.each(drivers)('driver $driver over a network', ({ open }) => {
  let subject: NetworkSubject
  let database: Database
  beforeAll(async () => {
    subject = await open()
    database = subject.database
    await database.batch([sql('CREATE TABLE notes (id int PRIMARY KEY)'), sql('CREATE TABLE locked AS SELECT 1 AS id')])
  })
  afterAll(() => subject.close())

  const insert = (id: number) => [sql('INSERT INTO notes VALUES ($1::int)', id)]
  /** Read past the faults. */
  const has = async (id: number): Promise<boolean> => {
    const { rowCount } = await subject.fresh.pool({ max: 1 }).query('SELECT 1 FROM notes WHERE id = $1', [id])
    return rowCount === 1
  }
  const goesOn = async () => expect(await database.query(sql('SELECT 1 AS one'))).toEqual([{ one: 1 }])

  test('a request whose connection breaks before it is executed is lost', async () => {
    await goesOn()
    subject.faults.dropRequest()
    expect(await failure(database.batch(insert(1)))).toMatchObject({ fate: 'lost', sqlstate: undefined })
    expect(await has(1)).toBe(false)
    await goesOn()
  })

  test('a request whose reply is lost is lost, and written', async () => {
    await goesOn()
    subject.faults.dropReply()
    expect(await failure(database.batch(insert(2)))).toMatchObject({ fate: 'lost', sqlstate: undefined })
    expect(await has(2)).toBe(true)
    await goesOn()
  })

  test('a lost request is sent once', async () => {
    await goesOn()
    const before = database.requests
    subject.faults.dropReply()
    await failure(database.batch(insert(3)))
    expect(database.requests).toBe(before + 1)
  })

  test('a lost read is lost too', async () => {
    await goesOn()
    subject.faults.dropReply()
    expect(await failure(database.query(sql('SELECT 1')))).toMatchObject({ fate: 'lost' })
    await goesOn()
  })

  test('a database that is slow to wake is waited for', async () => {
    const stall = subject.faults.stall()
    let settled = false
    const work = database.batch(insert(4)).finally(() => {
      settled = true
    })
    await stall.reached
    expect(await has(4)).toBe(false)
    expect(settled).toBe(false)
    stall.release()
    await work
    expect(await has(4)).toBe(true)
  })

  test('a new connection to a database that is away is not sent, and works when it is back', async () => {
    await goesOn()
    await subject.faults.refuse()
    const another = subject.connect()
    // The first request of a kept HTTP connection may still find it open; what is asserted is the connect that follows.
    await database.query(sql('SELECT 1')).catch(() => undefined)
    expect(await failure(another.batch(insert(5)))).toMatchObject({ fate: 'not_sent' })
    await subject.faults.accept()
    await another.batch(insert(5))
    expect(await has(5)).toBe(true)
  })

  test('a session that the server ends in the middle of a batch is lost, and nothing is written', async () => {
    const lock = await holdRowLock(subject.fresh.connectionString, 'SELECT FROM locked FOR UPDATE')
    const work = failure(database.batch([...insert(6), sql('UPDATE locked SET id = 2')]))
    const [blocked] = await untilBlocked(subject.fresh.connectionString, { blockedBy: lock.pid })
    await subject.fresh.pool({ max: 1 }).query('SELECT pg_terminate_backend($1)', [blocked!.pid])
    expect(await work).toMatchObject({ fate: 'lost', sqlstate: '57P01' })
    await lock.release()
    expect(await has(6)).toBe(false)
    await goesOn()
  })

  test('a deadlock is won in the end', async () => {
    await database.batch([sql('INSERT INTO notes VALUES (11), (12)')])
    const { connectionString } = subject.fresh
    const gate = await holdRowLock(connectionString, 'SELECT pg_advisory_xact_lock(1)')
    const rival = await subject.fresh.pool({ max: 1 }).connect()
    // Only the batch may find the deadlock.
    await rival.query("SET deadlock_timeout = '1h'")
    await rival.query('BEGIN')
    await rival.query('UPDATE notes SET id = id WHERE id = 12')
    const before = database.requests
    const work = database.batch([
      sql("SELECT set_config('deadlock_timeout', '10ms', true)"),
      sql('UPDATE notes SET id = id WHERE id = 11'),
      sql('SELECT pg_advisory_xact_lock(1)'),
      sql('UPDATE notes SET id = id WHERE id = 12 RETURNING id'),
    ])
    await untilBlocked(connectionString, { blockedBy: gate.pid })
    const rivalUpdate = rival.query('UPDATE notes SET id = id WHERE id = 11')
    await untilBlocked(connectionString, { queryMatches: /id = 11/ })
    await gate.release()
    await rivalUpdate
    await rival.query('COMMIT')
    rival.release()
    expect((await work)[3]).toEqual([{ id: 12 }])
    expect(database.requests).toBeGreaterThanOrEqual(before + 2)
  })
})

describe('a port where nobody listens', () => {
  let databases: Database[]
  beforeAll(async () => {
    databases = await absentDatabases()
  })
  afterAll(() => Promise.all(databases.map((database) => database.close())))

  test('is a request that was not sent', async () => {
    for (const database of databases) {
      expect(await failure(database.query(sql('SELECT 1'))), database.driver).toMatchObject({ fate: 'not_sent' })
      expect(await failure(database.batch([sql('SELECT 1')])), database.driver).toMatchObject({ fate: 'not_sent' })
    }
  })
})
