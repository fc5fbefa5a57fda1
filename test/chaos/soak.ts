/**
 * The full form of the kill test: `npm run soak` kills engines 200 times over 5,000 runs on a PostgreSQL of its own.
 * `PAWL_SOAK_KILLS`, `PAWL_SOAK_RUNS` and `PAWL_SOAK_DATABASE` (a migrated, empty database) change that.
 */
import pg from 'pg'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'
import { createStore } from '../../src/db/store.ts'
import { startPostgres } from '../support/postgres-server.ts'
import { soak } from './soak-run.ts'

const kills = Number(process.env.PAWL_SOAK_KILLS ?? 200)
const runs = Number(process.env.PAWL_SOAK_RUNS ?? 5_000)
const server = process.env.PAWL_SOAK_DATABASE ? undefined : await startPostgres(18)
const connectionString = process.env.PAWL_SOAK_DATABASE ?? server?.connectionString ?? ''
const database = nodePostgres({ connectionString, max: 4 })
const pool = new pg.Pool({ connectionString, max: 2 })
pool.on('error', () => {})
await migrate(database)

const startedAt = Date.now()
const store = createStore({ database })
const report = await soak({
  connectionString,
  store,
  pool,
  runs,
  kills,
  processes: 2,
  killWithinMs: 2_000,
  log: (line) => process.stdout.write(`${line}\n`),
})
const seconds = Math.round((Date.now() - startedAt) / 1000)
process.stdout.write(
  `${report.runs} runs, ${report.kills} kills, ${report.losses} claims lost on the way, ${report.effects} effects, ${seconds} s\n`,
)
for (const violation of report.violations.slice(0, 50)) process.stdout.write(`VIOLATION ${violation}\n`)
process.stdout.write(`${report.violations.length === 0 ? 1 : 0} passed, ${report.violations.length} failed\n`)
await pool.end()
await database.close()
await server?.stop()
process.exitCode = report.violations.length === 0 ? 0 : 1
