import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Database, Transaction } from '../../src/core/database.ts'
import { neonHttpSubject, neonWebsocketSubject, nodePostgresSubject, pgliteSubject, type Subject, sql } from './subjects.ts'

const drivers = [
  { driver: 'node-postgres', open: nodePostgresSubject },
  { driver: 'neon-websocket', open: neonWebsocketSubject },
  { driver: 'pglite', open: pgliteSubject },
] as const

describe.each(drivers)('transaction of $driver', ({ open }) => {
  let subject: Subject
  let database: Database
  beforeAll(async () => {
    subject = await open()
    database = subject.database
    await database.batch([sql('CREATE TABLE entries (id int PRIMARY KEY)')])
  })
  afterAll(() => subject.close())

  const run = <T>(fn: (tx: Transaction) => Promise<T>): Promise<T> => {
    if (!database.transaction) throw new Error('this driver has transactions')
    return database.transaction(fn)
  }
  const insert = (id: number) => sql('INSERT INTO entries VALUES ($1::int) RETURNING id', id)
  const ids = async () => (await database.query(sql('SELECT id FROM entries ORDER BY id'))).map(({ id }) => id)

  test('commits what was done in it, and answers what the function answers', async () => {
    const result = await run(async (tx) => {
      const [row] = await tx.query(insert(1))
      return row?.id
    })
    expect(result).toBe(1)
    expect(await ids()).toEqual([1])
  })

  test('is READ COMMITTED, whatever the role’s default', async () => {
    const rows = await run((tx) => tx.query(sql("SELECT current_setting('transaction_isolation') AS level")))
    expect(rows).toEqual([{ level: 'read committed' }])
  })

  test('rolls back when the function throws, and throws the same', async () => {
    const reason = new Error('the caller’s own')
    const work = run(async (tx) => {
      await tx.query(insert(2))
      throw reason
    })
    await expect(work).rejects.toBe(reason)
    expect(await ids()).toEqual([1])
  })

  test('rolls back when a statement is refused', async () => {
    const work = run(async (tx) => {
      await tx.query(insert(3))
      await tx.query(insert(1))
    })
    await expect(work).rejects.toMatchObject({ fate: 'refused', sqlstate: '23505', constraint: 'entries_pkey' })
    expect(await ids()).toEqual([1])
  })

  test('does not pretend to have committed when the function swallows a failed statement', async () => {
    const work = run(async (tx) => {
      await tx.query(insert(4))
      await tx.query(insert(1)).catch(() => undefined)
    })
    await expect(work).rejects.toMatchObject({ fate: 'refused', sqlstate: '25P02' })
    expect(await ids()).toEqual([1])
  })

  test('rolls back when a parameter cannot be sent, and the connection goes on', async () => {
    const work = run(async (tx) => {
      await tx.query(insert(5))
      await tx.query(sql('SELECT $1::text', '\0'))
    })
    await expect(work).rejects.toMatchObject({ fate: 'not_sent' })
    expect(await ids()).toEqual([1])
  })

  test('executes several statements as one text', async () => {
    await run((tx) => tx.execute("CREATE TABLE made (note text); INSERT INTO made VALUES ('a;b'); INSERT INTO made VALUES ('c')"))
    expect(await database.query(sql('SELECT note FROM made ORDER BY note'))).toEqual([{ note: 'a;b' }, { note: 'c' }])
    await expect(run((tx) => tx.execute('CREATE TABLE half (id int); SELECT 1 / 0'))).rejects.toMatchObject({ sqlstate: '22012' })
    expect(await database.query(sql("SELECT to_regclass('half') AS half"))).toEqual([{ half: null }])
  })

  test('counts the statements in it as requests', async () => {
    const before = database.requests
    await run(async (tx) => {
      await tx.query(sql('SELECT 1'))
      await tx.execute('SELECT 1; SELECT 2')
    })
    expect(database.requests).toBe(before + 2)
  })

  test('runs statements that are asked for at once, one after the other', async () => {
    const rows = await run((tx) => Promise.all([1, 2, 3].map((n) => tx.query(sql('SELECT $1::int AS n', n)))))
    expect(rows).toEqual([[{ n: 1 }], [{ n: 2 }], [{ n: 3 }]])
  })

  test('takes no statement after its end', async () => {
    const leaked = await run(async (tx) => tx)
    await expect(leaked.query(insert(9))).rejects.toMatchObject({ fate: 'not_sent' })
    await expect(leaked.execute('SELECT 1')).rejects.toMatchObject({ fate: 'not_sent' })
    expect(await ids()).toEqual([1])
  })
})

test('Neon HTTP has no transaction', async () => {
  const { database, close } = await neonHttpSubject()
  expect(database.transaction).toBeUndefined()
  await close()
})
