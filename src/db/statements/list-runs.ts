import type { Parameter, Statement } from '../../core/database.ts'
import type { Status } from '../../core/status.ts'
import { LISTED_RUN_COLUMNS } from './read-run.ts'
import { quoteIdentifier } from './statement.ts'

export interface ListRunsParams {
  readonly environment: string
  readonly tenant: string
  readonly definition: string | null
  readonly queue: string | null
  readonly key: string | null
  readonly tag: string | null
  readonly parent: string | null
  readonly statuses: readonly Status[] | null
  /** Epoch microseconds. */
  readonly sinceUs: bigint | null
  readonly untilUs: bigint | null
  /** The place in the order up to which everything was shown. */
  readonly after: ListPlace | null
  readonly limit: number
}

/** (created_at in epoch microseconds, position), or (join, place among the children) in a list of children. */
export interface ListPlace {
  readonly major: bigint
  readonly minor: bigint
}

/** The index that gives a list its order. */
export type ListOrder = 'parent' | 'key' | 'notable' | 'lane'

/** Statuses that `runs_notable_idx` finds. */
const NOTABLE: readonly Status[] = ['waiting', 'failed', 'cancelled', 'discarded', 'uncertain']

/** Rows that one page looks at when not every row of the order belongs to it: some milliseconds. */
const MAX_ROWS_WALKED = 4_000
/** Rows that the other way in may give: it is worth its cost only where it finds few. */
const MAX_ROWS_FOUND = 5_000

export function orderOf(params: Pick<ListRunsParams, 'parent' | 'key' | 'statuses'>): ListOrder {
  if (params.parent !== null) return 'parent'
  if (params.key !== null) return 'key'
  return params.statuses?.every((status) => NOTABLE.includes(status)) ? 'notable' : 'lane'
}

/** Numbers the parameters of a text that is made of parts. */
class Parameters {
  readonly values: Parameter[] = []

  bind(value: Parameter, type: string): string {
    this.values.push(value)
    return `$${this.values.length}::${type}`
  }
}

interface Parts {
  readonly s: string
  readonly order: ListOrder
  readonly params: ListRunsParams
  readonly bound: Parameters
  /** What a row must be besides lying in the order, as SQL over `r`; `true` when nothing. */
  readonly matches: string
  readonly within: string
}

/**
 * One page of runs, newest first. The order comes from an index: per lane (merged), per status and lane, per key or per parent. Each
 * of these streams is read up to a bound; when a bounded stream ends the page early, `frontier` says up to where everything was
 * looked at, and the next page goes on there. So a page costs the same whatever the table holds; it may have fewer items than asked.
 *
 * A walk that finds too few tries the other way in once: the rows that have the tag (`runs_tags_idx`), or those that are not at rest
 * (`ready`, `runs_timer_idx`, `runs_blocked_idx`, `claims`, `runs_notable_idx`), if these are few. Rows are fetched by id behind
 * OFFSET 0, so that no estimate turns that into a scan of the table.
 */
export function listRuns(schema: string, params: ListRunsParams): Statement {
  const s = quoteIdentifier(schema)
  const order = orderOf(params)
  const bound = new Parameters()
  const head = headOf(s, params, order === 'parent' ? null : startOf(params), bound)
  const matches = matchesOf(order, params, bound)
  const parts: Parts = { s, order, params, bound, matches, within: withinOf(order) }
  const otherWay = otherWayOf(parts)
  const text = `
WITH ${head},
${streamsOf(parts)},
${walkOf(parts, bound.bind(matches === 'true' ? 0 : MAX_ROWS_WALKED, 'int'))},
${pageOf(parts, otherWay)}
SELECT p.major, p.minor, (SELECT f.major FROM frontier f WHERE NOT (SELECT yes FROM turned)) AS frontier_major,
  (SELECT f.minor FROM frontier f WHERE NOT (SELECT yes FROM turned)) AS frontier_minor, ${LISTED_RUN_COLUMNS}
FROM (SELECT) one
LEFT JOIN page p ON true
LEFT JOIN LATERAL (SELECT * FROM ${s}.runs x WHERE x.id = p.id OFFSET 0) r ON true
LEFT JOIN ${s}.lanes l ON l.id = r.lane_id
ORDER BY p.major DESC, p.minor DESC`
  return { name: nameOf(order, params, otherWay !== undefined), text: text.trim(), params: bound.values }
}

/** Every text has its name: what varies the text is in it. */
function nameOf(order: ListOrder, params: ListRunsParams, turns: boolean): string {
  const statuses = turns && params.tag === null ? [...(params.statuses ?? [])].sort().join('_') : params.statuses && 'status'
  return ['list_runs', order, params.tag === null ? '' : 'tag', statuses ?? ''].filter(Boolean).join('_')
}

/**
 * Where a list by time begins: behind the place, or before `until`. One bound of the index, not two: given both, a scan begins at
 * either of them and reads its way to the other. Positions begin at 1.
 */
function startOf({ after, untilUs }: ListRunsParams): ListPlace | null {
  if (untilUs === null || (after !== null && after.major < untilUs)) return after
  return { major: untilUs, minor: 0n }
}

/** $1–$9, in every text: scope, filters on lanes, bounds in time, the place, the size of the page. */
function headOf(s: string, params: ListRunsParams, before: ListPlace | null, bound: Parameters): string {
  const instant = (us: bigint | null, otherwise: string) =>
    `coalesce(timestamptz 'epoch' + ${bound.bind(us, 'bigint')} * interval '1 microsecond', '${otherwise}')`
  const definition = bound.bind(params.definition, 'text')
  const queue = bound.bind(params.queue, 'text')
  return `
environment AS (SELECT e.id FROM ${s}.environments e WHERE e.name = ${bound.bind(params.environment, 'text')}),
lane AS MATERIALIZED (
  SELECT l.id FROM ${s}.lanes l
  WHERE l.tenant = ${bound.bind(params.tenant, 'text')}
    AND l.environment_id = (SELECT id FROM environment)
    AND (${definition} IS NULL OR l.definition = ${definition})
    AND (${queue} IS NULL OR l.queue = ${queue})
),
bounds AS (
  SELECT ${instant(params.sinceUs, '-infinity')} AS since_at, ${instant(params.untilUs, 'infinity')} AS until_at,
    ${instant(before?.major ?? null, 'infinity')} AS before_at,
    coalesce(${bound.bind(before?.minor ?? null, 'bigint')}, 9223372036854775807) AS before_position
),
size AS (SELECT ${bound.bind(params.limit, 'int')} + 1 AS n)`.trim()
}

/** Tag and status, and what only an order by lane guarantees: that the run is of the tenant. */
function matchesOf(order: ListOrder, params: ListRunsParams, bound: Parameters): string {
  const conditions: string[] = []
  if (order === 'parent' || order === 'key') conditions.push('r.lane_id IN (SELECT x.id FROM lane x)')
  if (order === 'parent')
    conditions.push('r.created_at >= (SELECT since_at FROM bounds) AND r.created_at < (SELECT until_at FROM bounds)')
  if (order === 'parent' && params.key !== null)
    conditions.push(`r.key IS NOT NULL AND r.key = ${bound.bind(params.key, 'text')}`)
  if (params.tag !== null) conditions.push(`r.tags IS NOT NULL AND r.tags @> ARRAY[${bound.bind(params.tag, 'text')}]`)
  if (params.statuses !== null && order !== 'notable') {
    conditions.push(`r.status::text = ANY (${bound.bind(params.statuses, 'text[]')})`)
  }
  return conditions.length === 0 ? 'true' : conditions.join(' AND ')
}

const WITHIN_TIME = `r.created_at >= (SELECT since_at FROM bounds)
      AND (r.created_at, r.position) < ((SELECT before_at FROM bounds), (SELECT before_position FROM bounds))`

function withinOf(order: ListOrder): string {
  if (order !== 'parent') return WITHIN_TIME
  return `(r.parent_join_seq, r.child_index) < ((SELECT before_join FROM place), (SELECT before_child FROM place))`
}

/** The streams that are merged: each is one range of one index. */
function streamsOf({ s, order, params, bound }: Parts): string {
  if (order === 'lane') return 'stream AS MATERIALIZED (SELECT l.id AS lane_id FROM lane l)'
  if (order === 'notable') {
    const statuses = `unnest(${bound.bind(params.statuses ?? [], 'text[]')})`
    return `stream AS MATERIALIZED (SELECT l.id AS lane_id, n.status::${s}.run_status AS status FROM lane l CROSS JOIN ${statuses} AS n(status))`
  }
  if (order === 'key') return `stream AS MATERIALIZED (SELECT ${bound.bind(params.key, 'text')} AS key)`
  // an int4 beyond all joins stands for "from the start"
  const major = bound.bind(params.after === null ? null : Number(params.after.major), 'int')
  const minor = bound.bind(params.after === null ? null : Number(params.after.minor), 'int')
  return `place AS (SELECT coalesce(${major}, 2147483647) AS before_join, coalesce(${minor}, 2147483647) AS before_child),
stream AS MATERIALIZED (SELECT ${bound.bind(params.parent, 'uuid')} AS parent_id)`
}

const RANGE: Readonly<Record<ListOrder, string>> = {
  lane: 'r.lane_id = t.lane_id',
  notable: 'r.notable IS NOT NULL AND r.notable = t.status AND r.lane_id = t.lane_id',
  key: 'r.key IS NOT NULL AND r.key = t.key',
  parent: 'r.parent_id IS NOT NULL AND r.parent_id = t.parent_id',
}

const BY_TIME = 'r.created_at DESC, r.position DESC'
const BY_CHILD = 'r.parent_join_seq DESC, r.child_index DESC'
const PLACE_IN_TIME = '(extract(epoch FROM r.created_at) * 1000000)::bigint AS major, r.position AS minor'
const PLACE_AS_CHILD = 'r.parent_join_seq::bigint AS major, r.child_index::bigint AS minor'

function walkOf({ s, order, matches, within }: Parts, scan: string): string {
  const sort = order === 'parent' ? BY_CHILD : BY_TIME
  const place = order === 'parent' ? PLACE_AS_CHILD : PLACE_IN_TIME
  return `
share AS (SELECT greatest((SELECT n FROM size), ${scan} / greatest((SELECT count(*) FROM stream), 1))::int AS n),
walked AS MATERIALIZED (
  SELECT w.* FROM stream t
  CROSS JOIN LATERAL (
    SELECT r.id, ${place}, (${matches}) AS matches, row_number() OVER (ORDER BY ${sort}) AS step
    FROM ${s}.runs r
    WHERE ${RANGE[order]}
      AND ${within}
    ORDER BY ${sort}
    LIMIT (SELECT n FROM share)
  ) w
),
frontier AS MATERIALIZED (
  SELECT w.major, w.minor FROM walked w WHERE w.step = (SELECT n FROM share) ORDER BY w.major DESC, w.minor DESC LIMIT 1
),
seen AS MATERIALIZED (
  SELECT w.id, w.major, w.minor FROM walked w
  WHERE w.matches AND ((SELECT count(*) FROM frontier) = 0 OR (w.major, w.minor) >= ((SELECT major FROM frontier), (SELECT minor FROM frontier)))
  ORDER BY w.major DESC, w.minor DESC
  LIMIT (SELECT n FROM size)
)`.trim()
}

/** The page: what was seen, or all there is by the other way in when the walk ended early and that way is short enough. */
function pageOf({ s, matches }: Parts, candidates: string | undefined): string {
  if (candidates === undefined) return `turned AS (SELECT false AS yes),\npage AS (SELECT * FROM seen)`
  return `
short AS MATERIALIZED (SELECT (SELECT count(*) FROM frontier) > 0 AND (SELECT count(*) FROM seen) < (SELECT n FROM size) AS yes),
candidates AS MATERIALIZED (${candidates}
  LIMIT ${MAX_ROWS_FOUND + 1}
),
turned AS MATERIALIZED (SELECT (SELECT yes FROM short) AND (SELECT count(*) FROM candidates) <= ${MAX_ROWS_FOUND} AS yes),
found AS MATERIALIZED (
  SELECT f.* FROM (SELECT DISTINCT c.id FROM candidates c WHERE (SELECT yes FROM turned)) c
  CROSS JOIN LATERAL (
    SELECT r.id, ${PLACE_IN_TIME} FROM (SELECT * FROM ${s}.runs x WHERE x.id = c.id OFFSET 0) r
    WHERE r.lane_id IN (SELECT x.id FROM lane x) AND ${WITHIN_TIME} AND ${matches}
  ) f
  ORDER BY f.major DESC, f.minor DESC
  LIMIT (SELECT n FROM size)
),
page AS (
  SELECT * FROM seen WHERE NOT (SELECT yes FROM turned)
  UNION ALL
  SELECT * FROM found WHERE (SELECT yes FROM turned)
)`.trim()
}

function otherWayOf(parts: Parts): string | undefined {
  const { s, order, params, bound } = parts
  if (order === 'parent' || order === 'key') return undefined
  if (params.tag !== null) {
    // behind SELECT, so that the estimate does not depend on the tag
    return `
  SELECT r.id FROM ${s}.runs r WHERE (SELECT yes FROM short) AND r.tags IS NOT NULL AND r.tags @> (SELECT ARRAY[${bound.bind(params.tag, 'text')}])`
  }
  if (order === 'notable' || params.statuses === null || params.statuses.includes('completed')) return undefined
  return restlessOf(parts, params.statuses)
}

/** Where runs lie that are not at rest. A run that is pending is in the window, has a timer, or is blocked (or is held: seen only by walks). */
function restlessOf({ s, bound }: Parts, statuses: readonly Status[]): string {
  const arms: string[] = []
  if (statuses.includes('pending')) {
    arms.push(
      `SELECT y.run_id AS id FROM lane l CROSS JOIN (VALUES (1), (-1)) AS side(sign)
  CROSS JOIN LATERAL (SELECT q.run_id FROM ${s}.ready q WHERE q.lane_id = l.id * side.sign
    ORDER BY q.priority, q.available_at, q.position LIMIT ${MAX_ROWS_FOUND + 1}) y`,
      `(SELECT r.id FROM ${s}.runs r WHERE r.environment_id = (SELECT id FROM environment) AND r.timer_at IS NOT NULL ORDER BY r.timer_at LIMIT ${MAX_ROWS_FOUND + 1})`,
      `(SELECT r.id FROM ${s}.runs r WHERE r.blocked_on IS NOT NULL ORDER BY r.blocked_on, r.priority, r.available_at, r.position LIMIT ${MAX_ROWS_FOUND + 1})`,
    )
  }
  if (statuses.includes('running')) {
    arms.push(
      `SELECT x.id FROM ${s}.claims c CROSS JOIN LATERAL unnest(c.run_ids) AS x(id) WHERE c.environment_id = (SELECT id FROM environment)`,
    )
  }
  const notable = statuses.filter((status) => NOTABLE.includes(status))
  if (notable.length > 0) {
    arms.push(`SELECT y.id FROM lane l CROSS JOIN unnest(${bound.bind(notable, 'text[]')}) AS n(status)
  CROSS JOIN LATERAL (
    SELECT r.id FROM ${s}.runs r WHERE r.notable IS NOT NULL AND r.notable = n.status::${s}.run_status AND r.lane_id = l.id AND ${WITHIN_TIME}
    ORDER BY ${BY_TIME} LIMIT (SELECT n FROM size)
  ) y`)
  }
  return `
  SELECT a.id FROM (
  ${arms.join('\n  UNION ALL\n  ')}
  ) a WHERE (SELECT yes FROM short)`
}
