import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import type { Database, Statement } from '../../src/core/database.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { neonWebsocket } from '../../src/db/drivers/neon-websocket.ts'

interface EdgeDatabase {
  readonly neon: { readonly connectionString: string; readonly httpUrl: string; readonly websocketUrl: string }
}

const sql = (text: string, ...params: Statement['params']): Statement => ({ name: text.slice(0, 20), text, params })

const drivers: readonly (readonly [driver: string, open: (address: EdgeDatabase['neon']) => Database])[] = [
  ['neon-http', ({ connectionString, httpUrl }) => neonHttp(connectionString, { endpoint: httpUrl })],
  ['neon-websocket', ({ connectionString, websocketUrl }) => neonWebsocket(connectionString, { proxy: websocketUrl })],
]

describe.each(drivers)('driver %s in workerd', (_driver, open) => {
  let database: Database
  beforeAll(async () => {
    const response = await fetch(inject('edgeDatabases'), { method: 'POST' })
    const { neon } = await response.json<EdgeDatabase>()
    database = open(neon)
    await database.batch([sql('CREATE TABLE items (id int PRIMARY KEY, body jsonb, at timestamptz)')])
  })
  afterAll(() => database.close())

  test('writes and reads every type as it does in Node', async () => {
    const texts = ['"', '\\', 'a,b', '', 'NULL', 'žluťoučký 🐎 漢字', 'x'.repeat(200)]
    const results = await database.batch([
      sql("INSERT INTO items VALUES ($1::int, $2::jsonb, '2026-11-30 12:00:00.5+02')", 1, JSON.stringify({ texts })),
      sql(
        'SELECT id, body, at, $1::text[] AS texts, $2::int8 AS big, $3::bool AS yes, NULL AS nothing FROM items',
        texts,
        2n ** 60n,
        true,
      ),
    ])
    const row = { id: 1, body: { texts }, at: '2026-11-30T10:00:00.500Z', texts, big: 2n ** 60n, yes: true, nothing: null }
    expect(results).toEqual([[], [row]])
    expect(await database.query(sql('SELECT count(*) AS n FROM items'))).toEqual([{ n: 1n }])
  })

  test('rolls a batch back as one, and goes on', async () => {
    const insert = (id: number) => sql('INSERT INTO items (id) VALUES ($1::int)', id)
    await expect(database.batch([insert(7), insert(7)])).rejects.toMatchObject({
      name: 'DatabaseError',
      fate: 'refused',
      sqlstate: '23505',
      constraint: 'items_pkey',
    })
    expect(await database.query(sql('SELECT id FROM items WHERE id = 7'))).toEqual([])
  })

  test('runs a batch in one READ COMMITTED request', async () => {
    const before = database.requests
    const level = sql("SELECT current_setting('transaction_isolation') AS level")
    expect((await database.batch([level, level]))[1]).toEqual([{ level: 'read committed' }])
    expect(database.requests).toBe(before + 1)
  })

  test('refuses what Postgres cannot hold before it is sent', async () => {
    await expect(database.query(sql('SELECT $1::text', 'a\0'))).rejects.toMatchObject({ fate: 'not_sent' })
    await expect(database.query(sql('SELECT $1::text', '\udc00'))).rejects.toMatchObject({ fate: 'not_sent' })
  })
})
