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

/** The casts are where rows enter: each names the type that its column has in the statement. */
function toExplainRecord(row: Row): ExplainRecord {
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
    timerAt: row.timer_at as number | null,
    availableAt: row.available_at as number,
    updatedAt: row.updated_at as number,
    finishedAt: row.finished_at as number | null,
    blockedOn: row.blocked_on as string | null,
    awaits: row.awaits as readonly string[] | null,
    topics: (row.topics as readonly string[] | null) ?? [],
    join: row.children as ExplainRecord['join'],
    circle: row.circle as readonly string[] | null,
    uncertainty: row.uncertainty,
    leaseUntil: row.lease_until as number | null,
    pauses: (row.pauses as ExplainRecord['pauses'] | null) ?? [],
    gate: row.gate as ExplainRecord['gate'],
    ahead: row.ahead as number | null,
    lastTickAt: row.last_tick_at as number | null,
    lastTickSource: row.last_tick_source as string | null,
  }
}
