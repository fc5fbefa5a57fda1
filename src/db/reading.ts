import type { Database, Row, Statement } from '../core/database.ts'
import { isUuid } from '../core/ids.ts'
import type { RunError } from '../core/outcome.ts'
import { STATUSES, type Status } from '../core/status.ts'
import type {
  ApiKeyRecord,
  HealthRecord,
  HistoryRecord,
  ListRunsQuery,
  Page,
  QueueRecord,
  ReadingStore,
  RunRecord,
  Scope,
  StatsRecord,
} from '../core/store.ts'
import { sendRepeatable } from './context.ts'
import { readCursor, writeCursor } from './list-cursor.ts'
import { findApiKey, insertApiKey, listApiKeys, revokeApiKey } from './statements/api-keys.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'
import { listRuns, orderOf } from './statements/list-runs.ts'
import { readHistory } from './statements/read-history.ts'
import { readRun } from './statements/read-run.ts'
import { readHealth, readStats } from './statements/read-stats.ts'

export interface ReadingContext {
  readonly database: Database
  readonly schema: string
  readonly environment: string
  /** The instant that statements take for now, as RFC 3339 text; null (and the default): the server's clock. */
  readonly now?: (() => string | null) | undefined
}

/** Keys of one installation that are listed: they are made by hand. */
const MAX_API_KEYS_LISTED = 1_000

/** Reads within one environment, and within one tenant where a scope is asked for. One request each; writes nothing but API keys. */
export function createReadingStore(context: ReadingContext): ReadingStore {
  const { database, schema, environment, now = () => null } = context
  return {
    getRun: (id, scope) => getRun(context, id, scope),
    listRuns: (query) => listPage(context, query),
    history: (id, scope, page) => readHistoryPage(context, id, scope, page),
    stats: async (scope) =>
      toStats(await database.query(readStats(schema, { now: now(), environment, tenant: scope?.tenant ?? null }))),
    health: async () => toHealth(await readOne(database, readHealth(schema, { now: now(), environment }))),
    findApiKey: async (hash) => {
      const [row] = await database.query(findApiKey(schema, { now: now(), environment, hash }))
      return row === undefined ? null : toApiKey(row)
    },
    createApiKey: async (key) => {
      const insert = insertApiKey(schema, { ...key, now: now(), environment })
      const { replies } = await sendRepeatable(database, [ensureEnvironment(schema, { environment }), insert])
      return toApiKey(required(replies[1]?.[0], insert))
    },
    listApiKeys: async (scope) => {
      const tenant = scope?.tenant ?? null
      const rows = await database.query(listApiKeys(schema, { now: now(), environment, tenant, limit: MAX_API_KEYS_LISTED }))
      return rows.map(toApiKey)
    },
    revokeApiKey: async (id, scope) => {
      if (!isUuid(id)) return false
      const { replies } = await sendRepeatable(database, [
        revokeApiKey(schema, { now: now(), environment, id, tenant: scope?.tenant ?? null }),
      ])
      return (replies[0]?.length ?? 0) > 0
    },
  }
}

async function readOne(database: Database, statement: Statement): Promise<Row> {
  const [row] = await database.query(statement)
  return required(row, statement)
}

function required(row: Row | undefined, statement: Statement): Row {
  if (row === undefined) throw new Error(`Statement ${statement.name} gave no row.`)
  return row
}

async function getRun({ database, schema, environment }: ReadingContext, id: string, scope: Scope): Promise<RunRecord | null> {
  if (!isUuid(id)) return null
  const [row] = await database.query(readRun(schema, { environment, tenant: scope.tenant, id }))
  return row === undefined ? null : toRun(row)
}

/** `input`, `state`, `result` and `headers` of listed runs are left out (null, none), and so are stack and data of errors: a page always fits. */
async function listPage({ database, schema, environment }: ReadingContext, query: ListRunsQuery): Promise<Page<RunRecord>> {
  const { tenant, definition, queue, key, tag, parent, limit } = query
  if (parent !== null && !isUuid(parent)) return { items: [], nextCursor: null }
  const order = orderOf({ parent, key, statuses: query.status })
  const after = query.cursor === null ? null : readCursor(query.cursor, order)
  const rows = await database.query(
    listRuns(schema, {
      environment,
      tenant,
      definition,
      queue,
      key,
      tag,
      parent,
      statuses: query.status,
      sinceUs: toMicroseconds(query.since),
      untilUs: toMicroseconds(query.until),
      after,
      limit,
    }),
  )
  const found = rows.filter((row) => row.id !== null)
  const items = found.slice(0, limit).map(toRun)
  const last = found[limit - 1]
  if (found.length > limit && last !== undefined)
    return { items, nextCursor: writeCursor(order, placeOf(last, 'major', 'minor')) }
  const [first] = rows
  if (first === undefined || first.frontier_major === null) return { items, nextCursor: null }
  return { items, nextCursor: writeCursor(order, placeOf(first, 'frontier_major', 'frontier_minor')) }
}

// int8 columns
function placeOf(row: Row, major: string, minor: string) {
  return { major: row[major] as bigint, minor: row[minor] as bigint }
}

/** No run is older than 1970, and Postgres takes no instant before 4713 BC. */
function toMicroseconds(ms: number | null): bigint | null {
  return ms === null ? null : BigInt(Math.max(0, Math.trunc(ms))) * 1_000n
}

async function readHistoryPage(
  { database, schema, environment }: ReadingContext,
  id: string,
  { tenant }: Scope,
  page: { readonly limit: number; readonly cursor: string | null },
): Promise<Page<HistoryRecord> | null> {
  const afterSeq = page.cursor === null ? -1 : Number(readCursor(page.cursor, 'history').major)
  if (!isUuid(id)) return null
  const rows = await database.query(readHistory(schema, { environment, tenant, id, afterSeq, limit: page.limit + 1 }))
  if (rows.length === 0) return null
  const items = rows.filter((row) => row.seq !== null).map(toHistory)
  const shown = items.slice(0, page.limit)
  const last = shown.at(-1)
  const more = items.length > shown.length && last !== undefined
  return { items: shown, nextCursor: more ? writeCursor('history', { major: BigInt(last.seq), minor: 0n }) : null }
}

/** The casts below are where rows enter: each names the type that its column has in the statement. */
function toRun(row: Row): RunRecord {
  return {
    id: row.id as string,
    tenant: row.tenant as string,
    definition: row.definition as string,
    version: row.version as number,
    queue: row.queue as string,
    status: row.status as Status,
    hold: row.hold as string | null,
    holdDetail: row.hold_detail,
    step: row.step as string,
    seq: row.seq as number,
    visit: row.visit as number,
    attempt: row.attempt as number,
    maxAttempts: row.max_attempts as number,
    snoozes: row.snoozes as number,
    losses: row.losses as number,
    priority: row.priority as number,
    input: row.input,
    state: row.state,
    result: row.result,
    error: row.error as RunError | null,
    uncertainty: row.uncertainty ?? null,
    awaits: row.awaits as readonly string[] | null,
    joinRemaining: row.join_remaining as number | null,
    timedOut: row.timed_out as boolean,
    blockedOn: row.blocked_on as string | null,
    key: row.key as string | null,
    tags: (row.tags as readonly string[] | null) ?? [],
    headers: (row.headers as Readonly<Record<string, string>> | null) ?? {},
    origin: row.origin,
    parentId: row.parent_id as string | null,
    createdAt: row.created_at as number,
    updatedAt: row.updated_at as number,
    scheduledFor: row.scheduled_for as number | null,
    availableAt: row.available_at as number | null,
    finishedAt: row.finished_at as number | null,
    cancelRequestedAt: row.cancel_requested_at as number | null,
    cancellation: row.cancellation as RunError | null,
    position: row.position as bigint,
  }
}

function toHistory(row: Row): HistoryRecord {
  return {
    seq: row.seq as number,
    visit: row.visit as number,
    attempt: row.attempt as number,
    step: row.step as string,
    outcome: row.outcome as string,
    startedAt: row.started_at as number,
    finishedAt: row.finished_at as number,
    error: row.error as RunError | null,
  }
}

function toApiKey(row: Row): ApiKeyRecord {
  return {
    id: row.id as string,
    tenant: row.tenant as string,
    name: row.name as string,
    scopes: row.scopes as readonly string[],
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number | null,
    revokedAt: row.revoked_at as number | null,
  }
}

function toHealth(row: Row): HealthRecord {
  return {
    now: row.now as number,
    schemaVersion: row.schema_version as number,
    minBuild: row.min_build as number,
    lastTickAt: row.last_tick_at as number | null,
    lastTickSource: row.last_tick_source as string | null,
    oldestDueAt: row.oldest_due_at as number | null,
    oldestSlotAt: row.oldest_slot_at as number | null,
  }
}

function toStats(rows: readonly Row[]): StatsRecord {
  const byStatus = Object.fromEntries(STATUSES.map((status) => [status, 0])) as Record<Status, number>
  const named = rows.filter((row) => row.name !== null)
  for (const row of named) {
    byStatus.pending += (row.ready as number) + (row.held as number) + (row.delayed as number) + (row.blocked as number)
    for (const status of STATUSES) if (status !== 'pending') byStatus[status] += row[status] as number
  }
  return { now: rows[0]?.now as number, exact: rows[0]?.exact !== false, byStatus, queues: named.map(toQueue) }
}

function toQueue(row: Row): QueueRecord {
  return {
    name: row.name as string,
    paused: row.paused as boolean,
    ready: row.ready as number,
    delayed: row.delayed as number,
    waiting: row.waiting as number,
    running: row.running as number,
    blocked: row.blocked as number,
    held: row.held as number,
    due: row.due as number,
    oldestDueAt: row.oldest_due_at as number | null,
  }
}
