import type { Row } from '../core/database.ts'
import type { ExplainRecord } from '../core/explain.ts'
import { isUuid } from '../core/ids.ts'
import type { Status } from '../core/status.ts'
import type { Scope } from '../core/store.ts'
import type { ReadingContext } from './reading.ts'
import { explainRun } from './statements/explain-run.ts'

export async function explain(context: ReadingContext, id: string, { tenant }: Scope): Promise<ExplainRecord | null> {
  if (!isUuid(id)) return null
  const { database, schema, environment, now = () => null } = context
  const [row] = await database.query(explainRun(schema, { now: now(), environment, tenant, id }))
  return row === undefined ? null : toExplainRecord(row)
}

/** Whole milliseconds: what has been since then had begun by then, and what lasts until then is over by then. */
const since = (at: unknown) => (at === null ? null : Math.floor(at as number))
const until = (at: unknown) => (at === null ? null : Math.ceil(at as number))

/** The casts are where rows enter: each names the type that its column has in the statement. */
function toExplainRecord(row: Row): ExplainRecord {
  const gate = row.gate as ExplainRecord['gate']
  return {
    now: row.now as number,
    status: row.status as Status,
    definition: row.definition as string,
    version: row.version as number,
    queue: row.queue as string,
    hold: row.hold as string | null,
    holdDetail: row.hold_detail as ExplainRecord['holdDetail'],
    step: row.step as string,
    losses: row.losses as number,
    timerAt: until(row.timer_at),
    availableAt: Math.floor(row.available_at as number),
    updatedAt: Math.floor(row.updated_at as number),
    finishedAt: since(row.finished_at),
    blockedOn: row.blocked_on as string | null,
    awaits: row.awaits as readonly string[] | null,
    topics: (row.topics as readonly string[] | null) ?? [],
    join: row.children as ExplainRecord['join'],
    circle: row.circle as readonly string[] | null,
    uncertainty: row.uncertainty,
    leaseUntil: until(row.lease_until),
    pauses: ((row.pauses as ExplainRecord['pauses'] | null) ?? []).map((pause) => ({ ...pause, since: Math.floor(pause.since) })),
    gate: gate && { ...gate, dueAt: until(gate.dueAt) },
    ahead: row.ahead as number | null,
    lastTickAt: since(row.last_tick_at),
    lastTickSource: row.last_tick_source as string | null,
  }
}
