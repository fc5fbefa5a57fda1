import { defineStatement, epochMs } from './statement.ts'

/** One page of what did not come with a claim, as stored, in bytes; a single larger item is a page of its own. */
const PAGE_BYTES = 4_194_304

/** The rest of a long inbox, in order of arrival: signals of those names. */
export const loadInbox = defineStatement<{
  readonly runId: string
  readonly names: readonly string[]
  readonly afterId: string
  readonly limit: number
}>(
  'load_inbox',
  (s) => `
SELECT i.id::text AS id, i.name, i.payload, ${epochMs('i.created_at')} AS received_at
FROM (
  SELECT g.*, row_number() OVER (ORDER BY g.id) AS turn, sum(coalesce(pg_column_size(g.payload), 0)) OVER (ORDER BY g.id) AS bytes FROM (
    SELECT * FROM ${s}.signals x WHERE x.run_id = $1::uuid AND x.consumed_seq IS NULL AND x.name = ANY ($2::text[]) AND x.id > $3::bigint ORDER BY x.id LIMIT $4::int
  ) g
) i
WHERE i.turn = 1 OR i.bytes <= ${PAGE_BYTES}
ORDER BY i.id
`,
  (p) => [p.runId, p.names, p.afterId, p.limit],
)

/** The rest of many joined children, in the order of their calls. */
export const loadChildren = defineStatement<{
  readonly parentId: string
  readonly joinSeq: number
  readonly afterIndex: number
  readonly limit: number
}>(
  'load_children',
  (s) => `
SELECT k.id, (SELECT l.definition FROM ${s}.lanes l WHERE l.id = k.lane_id) AS definition, k.key, k.child_index, k.status, k.result, k.error
FROM (
  SELECT y.*, row_number() OVER (ORDER BY y.child_index) AS turn,
    sum(coalesce(pg_column_size(y.result), 0) + coalesce(pg_column_size(y.error), 0)) OVER (ORDER BY y.child_index) AS bytes
  FROM (
    SELECT * FROM ${s}.runs x WHERE x.parent_id = $1::uuid AND x.parent_join_seq = $2::int AND x.child_index > $3::int ORDER BY x.child_index LIMIT $4::int
  ) y
) k
WHERE k.turn = 1 OR k.bytes <= ${PAGE_BYTES}
ORDER BY k.child_index
`,
  (p) => [p.parentId, p.joinSeq, p.afterIndex, p.limit],
)

export const readLanes = defineStatement<{ readonly ids: readonly number[] }>(
  'read_lanes',
  (s) => `
SELECT l.id, l.tenant, l.queue, l.definition, l.version FROM ${s}.lanes l WHERE l.id = ANY ($1::int[])
`,
  (p) => [p.ids],
)
