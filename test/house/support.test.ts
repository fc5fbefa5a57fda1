import pg from 'pg'
import { expect, test } from 'vitest'
import { forEachVersion, freshDatabase } from '../support/database.ts'
import { startPostgres } from '../support/postgres-server.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'

forEachVersion('the test servers', (version) => {
  test('answer with their own version, and two databases do not see each other', async () => {
    const [one, other] = await Promise.all([freshDatabase(version), freshDatabase(version)])
    const pool = one.pool()
    await pool.query('CREATE TABLE public.only_here (id int)')
    const { rows } = await pool.query<{ version: string }>("SELECT current_setting('server_version') AS version")
    expect(rows[0]?.version).toMatch(new RegExp(`^${version}\\.`))
    const seen = await other.pool().query("SELECT to_regclass('public.only_here') AS found")
    expect(seen.rows).toEqual([{ found: null }])
    await Promise.all([one.close(), other.close()])
  })

  test('a held row lock is seen to block the other session, which goes on when it is released', async () => {
    const database = await freshDatabase(version)
    const pool = database.pool()
    await pool.query('CREATE TABLE public.row (id int, value int); INSERT INTO public.row VALUES (1, 0)')
    const lock = await holdRowLock(database.connectionString, 'UPDATE public.row SET value = 5 WHERE id = $1', [1])
    const update = pool.query('UPDATE public.row SET value = value + 1 WHERE id = 1 RETURNING value')
    const [blocked] = await untilBlocked(database.connectionString, { blockedBy: lock.pid })
    expect(blocked?.query).toContain('value + 1')
    await lock.release()
    expect((await update).rows).toEqual([{ value: 6 }])
    await database.close()
  })
})

test('a server of its own keeps committed rows over a crash', async () => {
  const server = await startPostgres(18)
  const before = new pg.Client({ connectionString: server!.connectionString })
  before.on('error', () => {})
  await before.connect()
  await before.query('CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)')
  await server!.halt('immediate')
  await server!.resume()
  const after = new pg.Client({ connectionString: server!.connectionString })
  await after.connect()
  expect((await after.query('SELECT id FROM kept')).rows).toEqual([{ id: 7 }])
  await after.end()
  await server!.stop()
})
