import { execFile } from 'node:child_process'
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { forEachVersion, freshDatabase } from '../support/database.ts'
import { dumpSchema } from '../support/schema-dump.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))

forEachVersion('the schema', (version) => {
  test('that the migrations make is the one in drizzle/schema.snapshot.sql (npm run db:snapshot)', async () => {
    const database = await freshDatabase(version)
    const dump = await dumpSchema(database.pool())
    await database.close()
    expect(dump).toBe(await readFile(join(root, 'drizzle/schema.snapshot.sql'), 'utf8'))
  })

  test('shows a changed default, a dropped index and a looser check', async () => {
    const database = await freshDatabase(version, { empty: true })
    const pool = database.pool()
    await pool.query(
      'CREATE SCHEMA pawl; CREATE TABLE pawl.t (a int DEFAULT 1 CONSTRAINT small CHECK (a < 5)); CREATE INDEX t_a ON pawl.t (a)',
    )
    const before = (await dumpSchema(pool)).split('\n')
    await pool.query(`
      ALTER TABLE pawl.t ALTER a SET DEFAULT 2, DROP CONSTRAINT small, ADD CONSTRAINT small CHECK (a < 6);
      DROP INDEX pawl.t_a`)
    const after = new Set((await dumpSchema(pool)).split('\n'))
    await database.close()
    expect(before.filter((line) => !after.has(line))).toEqual([
      '  a integer DEFAULT 1',
      't: small CHECK ((a < 5))',
      '-- indexes',
      'CREATE INDEX t_a ON pawl.t USING btree (a)',
    ])
  })
})

test('the migrations hold everything that src/db/schema*.ts says (npm run db:generate)', async () => {
  const copy = await mkdtemp(join(tmpdir(), 'pawl-drizzle-'))
  try {
    await cp(join(root, 'drizzle'), copy, { recursive: true })
    // drizzle-kit takes no absolute path, and ends with 0 also when it failed: what it says is what counts.
    const args = ['generate', '--dialect', 'postgresql', '--schema', './src/db/schema*.ts', '--out', relative(root, copy)]
    const { stdout } = await promisify(execFile)(join(root, 'node_modules/.bin/drizzle-kit'), args, { cwd: root })
    expect(stdout).toContain('No schema changes, nothing to migrate')
  } finally {
    await rm(copy, { recursive: true, force: true })
  }
})
