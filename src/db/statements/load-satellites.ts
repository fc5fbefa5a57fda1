import { defineStatement, epochMs } from './statement.ts'

/** The rest of a long inbox, in order of arrival. */
export const loadInbox = defineStatement<{ readonly runId: string; readonly afterId: string; readonly limit: number }>(
  'load_inbox',
  (s) => `
SELECT g.id::text AS id, g.name, g.payload, ${epochMs('g.created_at')} AS received_at FROM ${s}.signals g
WHERE g.run_id = $1::uuid AND g.consumed_seq IS NULL AND g.id > $2::bigint ORDER BY g.id LIMIT $3::int
`,
  (p) => [p.runId, p.afterId, p.limit],
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
SELECT x.id, l.definition, x.key, x.child_index, x.status, x.result, x.error FROM ${s}.runs x JOIN ${s}.lanes l ON l.id = x.lane_id
WHERE x.parent_id = $1::uuid AND x.parent_join_seq = $2::int AND x.child_index > $3::int ORDER BY x.child_index LIMIT $4::int
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
