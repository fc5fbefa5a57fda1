import { BUILD, SCHEMA_VERSION } from '../../core/build.ts'
import type { Database } from '../../core/database.ts'
import { fromMs } from '../../core/duration.ts'
import type { HealthRecord } from '../../core/store.ts'
import { checkSchemaName, DEFAULT_SCHEMA } from '../../db/migrations.ts'
import { readPartitions } from '../../db/partition-state.ts'
import { endOf } from '../../db/periods.ts'
import { createStore } from '../../db/store.ts'
import { type Command, type CommandCall, UsageError } from '../command.ts'
import { apiUrl } from '../with-api.ts'
import { DATABASE_OPTIONS, ENVIRONMENT_OPTION, withDatabase } from '../with-database.ts'

/** Ticks come with writes, alarms and the platform's cron, which on Vercel's free plan is daily: later is nowhere meant. */
const LATE_TICK_MS = 25 * 3_600_000
/** Work that is due for longer is worked on by nobody. */
const LATE_WORK_MS = 15 * 60_000

export const doctorCommand: Command = {
  name: 'doctor',
  does: 'looks whether database, schema and engine are well; exit code 1 when something is not',
  options: {
    ...DATABASE_OPTIONS,
    ...ENVIRONMENT_OPTION,
    api: { kind: 'text', does: 'look at this API as well. Default: PAWL_URL, if it is set' },
  },
  run: async (call) => {
    if (!namesDatabase(call) && !namesApi(call))
      throw new UsageError('nothing to look at: give --url or --api, or set DATABASE_URL or PAWL_URL')
    const findings = [nodeFinding(), ...(await databaseFindings(call)), ...(await apiFindings(call))]
    for (const { isWell, text } of findings) call.terminal.print(`${isWell ? 'ok  ' : 'FAIL'}  ${text}`)
    return findings.every(({ isWell }) => isWell) ? 0 : 1
  },
}

interface Finding {
  readonly isWell: boolean
  readonly text: string
}

function nodeFinding(): Finding {
  return {
    isWell: Number(process.versions.node.split('.')[0]) >= 20,
    text: `Node ${process.versions.node} (20.11 or newer is needed)`,
  }
}

const namesDatabase = ({ text, env }: CommandCall): boolean => (text('url') ?? env.DATABASE_URL) !== undefined
const namesApi = ({ text, env }: CommandCall): boolean => (text('api') ?? env.PAWL_URL) !== undefined

async function databaseFindings(call: CommandCall): Promise<readonly Finding[]> {
  if (!namesDatabase(call)) return []
  try {
    return await withDatabase(call, (database) => examine(call, database))
  } catch (error) {
    return [{ isWell: false, text: `database: ${error instanceof Error ? error.message : String(error)}` }]
  }
}

async function examine(call: CommandCall, database: Database): Promise<readonly Finding[]> {
  const [row] = await database.query({
    name: 'server_version',
    text: "SELECT current_setting('server_version') AS version",
    params: [],
  })
  const reached = { isWell: true, text: `database: reached over ${database.driver}, PostgreSQL ${row?.version}` }
  try {
    const store = createStore({ database, schema: call.text('schema'), environment: call.text('environment') })
    return [reached, ...healthFindings(await store.health()), ...(await partitionFindings(call, database))]
  } catch (error) {
    return [
      reached,
      { isWell: false, text: `schema: ${error instanceof Error ? error.message : String(error)} (has it been migrated?)` },
    ]
  }
}

function healthFindings({
  now,
  schemaVersion,
  minBuild,
  lastTickAt,
  lastTickSource,
  oldestDueAt,
}: HealthRecord): readonly Finding[] {
  const ago = (ms: number): string => fromMs(Math.max(0, Math.round((now - ms) / 1_000) * 1_000))
  return [
    {
      isWell: schemaVersion >= SCHEMA_VERSION && minBuild <= BUILD,
      text: `schema: version ${schemaVersion}, this build needs ${SCHEMA_VERSION}${schemaVersion < SCHEMA_VERSION ? ': migrate' : ''}`,
    },
    {
      // in its first minute an environment has had no tick that left its mark, and that is well unless work waits for one
      isWell: lastTickAt === null ? oldestDueAt === null : now - lastTickAt < LATE_TICK_MS,
      text:
        lastTickAt === null
          ? 'engine: no tick has left its mark yet'
          : `engine: last tick ${ago(lastTickAt)} ago, by ${lastTickSource}`,
    },
    {
      isWell: oldestDueAt === null || now - oldestDueAt < LATE_WORK_MS,
      text: oldestDueAt === null ? 'work: nothing is due' : `work: the oldest due run has waited for ${ago(oldestDueAt)}`,
    },
  ]
}

/** Where the tables are partitioned: runs of a time without a partition lie among the others, and are deleted singly. */
async function partitionFindings(call: CommandCall, database: Database): Promise<readonly Finding[]> {
  const { period, nowMs, partitions } = await readPartitions(database, checkSchemaName(call.text('schema') ?? DEFAULT_SCHEMA))
  if (period === null) return []
  const until = Math.max(0, ...partitions.map(({ to }) => to))
  return [
    {
      isWell: until > endOf(period, nowMs),
      text: `partitions: by ${period}, made until ${new Date(until).toISOString().slice(0, 10)} (pawl partitions makes more, and drops those that are over)`,
    },
  ]
}

async function apiFindings(call: CommandCall): Promise<readonly Finding[]> {
  if (!namesApi(call)) return []
  const url = `${apiUrl(call).replace(/\/+$/, '')}/healthz`
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(10_000) })
    return [{ isWell: response.ok, text: `API: ${url} answers ${response.status}` }]
  } catch (error) {
    return [{ isWell: false, text: `API: ${url} cannot be reached (${error instanceof Error ? error.message : String(error)})` }]
  }
}
