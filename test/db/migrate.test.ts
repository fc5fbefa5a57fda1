import { readFile } from 'node:fs/promises'
import { PGlite } from '@electric-sql/pglite'
import { describe, expect, test } from 'vitest'
import { migrationsModule } from '../../scripts/migrations-module.ts'
import { SCHEMA_VERSION } from '../../src/core/build.ts'
import type { Database } from '../../src/core/database.ts'
import { isPawlError } from '../../src/core/errors.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { pglite } from '../../src/db/drivers/pglite.ts'
import { migrate } from '../../src/db/migrate.ts'
import { migrationsFor, printMigrations } from '../../src/db/migrations.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'
import { rewriting } from '../support/rewriting.ts'
import { dumpSchema } from '../support/schema-dump.ts'

/** What a migrator holds while it is its turn. */
const TURN = "SELECT pg_advisory_xact_lock(hashtextextended('pawl:migrate:pawl', 0))"

const NAMES = migrationsFor('pawl').map(({ name }) => name)

/** What a refused migrator must not have touched: everything that is in the database. */
async function everything(fresh: FreshDatabase): Promise<unknown> {
  const { rows } = await fresh.pool({ max: 1 }).query(`
    SELECT n.nspname, c.relname, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' ORDER BY 1, 2`)
  const schemas = await fresh.pool({ max: 1 }).query('SELECT nspname FROM pg_namespace ORDER BY 1')
  return { rows, schemas: schemas.rows }
}

async function withEmpty(version: 15 | 18, fn: (database: Database, fresh: FreshDatabase) => Promise<void>): Promise<void> {
  const fresh = await freshDatabase(version, { empty: true })
  const database = nodePostgres({ connectionString: fresh.connectionString, max: 2 })
  try {
    await fn(database, fresh)
  } finally {
    await database.close()
    await fresh.close()
  }
}

forEachVersion('migrate', (version) => {
  test('C220 makes the schema once, and does nothing the second time', async () => {
    await withEmpty(version, async (database, fresh) => {
      expect(await migrate(database)).toEqual({ from: 0, to: SCHEMA_VERSION, applied: NAMES })
      expect(await migrate(database)).toEqual({ from: SCHEMA_VERSION, to: SCHEMA_VERSION, applied: [] })
      const { rows } = await fresh.pool().query('SELECT product, schema_version, min_build FROM pawl.meta')
      expect(rows).toEqual([
        { product: 'pawl', schema_version: SCHEMA_VERSION, min_build: migrationsFor('pawl').at(-1)?.minBuild },
      ])
    })
  })

  test('C220 eight migrators at once: each migration is applied by one of them, and all succeed', async () => {
    await withEmpty(version, async (_, fresh) => {
      const databases = Array.from({ length: 8 }, () => nodePostgres({ connectionString: fresh.connectionString, max: 1 }))
      const reports = await Promise.all(databases.map((database) => migrate(database)))
      await Promise.all(databases.map((database) => database.close()))
      expect(reports.map(({ to }) => to)).toEqual(databases.map(() => SCHEMA_VERSION))
      expect(reports.flatMap(({ applied }) => applied).sort()).toEqual(NAMES)
    })
  })

  test('C220 waits for the migrator before it and then looks again', async () => {
    await withEmpty(version, async (database, fresh) => {
      const first = await holdRowLock(fresh.connectionString, TURN)
      const second = migrate(database)
      await untilBlocked(fresh.connectionString, { blockedBy: first.pid })
      await fresh.pool().query('CREATE SCHEMA pawl; CREATE TABLE pawl.orders (id int)')
      const [refused] = await Promise.allSettled([second, first.release()])
      expect(refused).toMatchObject({ status: 'rejected', reason: { code: 'schema_foreign' } })
    })
  })

  test('C220 a migration that fails at its end leaves nothing behind, and can be run again', async () => {
    await withEmpty(version, async (database, fresh) => {
      const before = await everything(fresh)
      const broken = rewriting(database, (sql) => (sql.includes('CREATE TABLE') ? `${sql}\nSELECT 1 / 0;` : sql))
      await expect(migrate(broken)).rejects.toMatchObject({ sqlstate: '22012' })
      expect(await everything(fresh)).toEqual(before)
      expect((await migrate(database)).applied).toEqual(NAMES)
    })
  })

  test('C221 the printed SQL makes the same schema, and refuses to run twice', async () => {
    await withEmpty(version, async (database, fresh) => {
      const pool = fresh.pool({ max: 1 })
      await migrate(database)
      const migrated = await dumpSchema(pool)
      await pool.query('DROP SCHEMA pawl CASCADE')
      await pool.query(printMigrations())
      expect(await dumpSchema(pool)).toBe(migrated)
      expect(await migrate(database)).toEqual({ from: SCHEMA_VERSION, to: SCHEMA_VERSION, applied: [] })
      await expect(pool.query(printMigrations())).rejects.toThrow()
      await pool.query('ROLLBACK')
      expect(printMigrations({ from: SCHEMA_VERSION })).toBe('')
    })
  })

  test('C222 refuses a schema of a newer build, and changes nothing', async () => {
    await withEmpty(version, async (database, fresh) => {
      await migrate(database)
      const pool = fresh.pool()
      await pool.query('UPDATE pawl.meta SET schema_version = $1', [SCHEMA_VERSION + 1])
      const before = await everything(fresh)
      await expect(migrate(database)).rejects.toSatisfy((error) => isPawlError(error, 'schema_newer'))
      expect(await everything(fresh)).toEqual(before)
      const { rows } = await pool.query('SELECT schema_version FROM pawl.meta')
      expect(rows).toEqual([{ schema_version: SCHEMA_VERSION + 1 }])
    })
  })

  test.each([
    ['tables of others', 'CREATE TABLE pawl.orders (id int)'],
    ['a type of others', "CREATE TYPE pawl.colour AS ENUM ('red')"],
    ['a function of others', "CREATE FUNCTION pawl.one() RETURNS int LANGUAGE sql AS 'SELECT 1'"],
    ['a meta of others', 'CREATE TABLE pawl.meta (key text, value text)'],
    [
      'a meta that says it is of others',
      "CREATE TABLE pawl.meta (singleton bool, product text, schema_version int, min_build int); INSERT INTO pawl.meta VALUES (true, 'other', 1, 1)",
    ],
    ['a meta without a row', 'CREATE TABLE pawl.meta (singleton bool, product text, schema_version int, min_build int)'],
  ])('C222 refuses a schema with %s, and changes nothing', async (_, sql) => {
    await withEmpty(version, async (database, fresh) => {
      await fresh.pool().query(`CREATE SCHEMA pawl; ${sql}`)
      const before = await everything(fresh)
      await expect(migrate(database)).rejects.toSatisfy((error) => isPawlError(error, 'schema_foreign'))
      expect(await everything(fresh)).toEqual(before)
    })
  })

  test('fills a schema that an administrator made and left empty', async () => {
    await withEmpty(version, async (database, fresh) => {
      const role = `owner_${fresh.name}`
      await fresh
        .pool()
        .query(
          `CREATE ROLE ${role} LOGIN; CREATE SCHEMA pawl AUTHORIZATION ${role}; REVOKE CREATE ON DATABASE ${fresh.name} FROM PUBLIC`,
        )
      const asOwner = nodePostgres({ connectionString: fresh.connectionString.replace('//postgres@', `//${role}@`), max: 1 })
      expect((await migrate(asOwner)).applied).toEqual(NAMES)
      await asOwner.close()
      await expect(migrate(database)).resolves.toMatchObject({ applied: [] })
      await fresh.pool().query(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`)
    })
  })

  test('C223 two schemas of one database hold the same and know nothing of each other', async () => {
    await withEmpty(version, async (database, fresh) => {
      await Promise.all([migrate(database), migrate(database, { schema: 'jobs_2' })])
      const pool = fresh.pool()
      const [first, second] = [await dumpSchema(pool), await dumpSchema(pool, 'jobs_2')]
      expect(second).not.toContain('pawl.')
      expect(second.replaceAll('jobs_2', 'pawl')).toBe(first)
      await pool.query("INSERT INTO jobs_2.environments (name) VALUES ('production')")
      const { rows } = await pool.query('SELECT count(*)::int AS n FROM pawl.environments')
      expect(rows).toEqual([{ n: 0 }])
      await pool.query('DROP SCHEMA jobs_2 CASCADE')
      expect(await dumpSchema(pool)).toBe(first)
    })
  })

  test('C220 gives up when its turn does not come, says so, and can be asked again', async () => {
    await withEmpty(version, async (database, fresh) => {
      const other = await holdRowLock(fresh.connectionString, TURN)
      const impatient = rewriting(database, (sql) => sql.replace("'10min'", "'1ms'"))
      await expect(migrate(impatient)).rejects.toMatchObject({ code: 'database_busy', retryAfterMs: 5_000 })
      await other.release()
      expect((await migrate(database)).applied).toEqual(NAMES)
    })
  })
})

describe('migrate', () => {
  test('works on the embedded database', async () => {
    const instance = await PGlite.create()
    const database = pglite(instance)
    expect((await migrate(database, { schema: 'mine' })).applied).toEqual(NAMES)
    await database.close()
    await instance.close()
  })

  test('says over which driver it can run, where a driver has no transactions', async () => {
    const overHttp = { driver: 'neon-http', requests: 0 } as Database
    await expect(migrate(overHttp)).rejects.toMatchObject({ code: 'invalid_configuration', got: 'neon-http' })
    await expect(migrate(overHttp)).rejects.toThrow(/WebSocket.*TCP/)
  })

  test.each(['', 'pg_mine', 'Pawl', 'my-schema', 'a"b', 'public', 'information_schema', '1a', 'a'.repeat(64), "x'; DROP"])(
    'refuses the schema name %j',
    async (schema) => {
      const database = { driver: 'pglite', requests: 0 } as Database
      await expect(migrate(database, { schema })).rejects.toMatchObject({ code: 'invalid_configuration', field: 'schema' })
    },
  )

  test('the module with the migrations is what drizzle/ holds (npm run db:generate)', async () => {
    const module = await readFile(new URL('../../src/db/migrations.generated.ts', import.meta.url), 'utf8')
    expect(module === migrationsModule(), 'src/db/migrations.generated.ts is stale').toBe(true)
  })

  test('no statement names the schema otherwise than the migrator can replace', () => {
    for (const { statements } of migrationsFor('elsewhere')) expect(statements.join('\n')).not.toMatch(/\bpawl\b(?!')/)
  })
})
