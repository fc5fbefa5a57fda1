import type pg from 'pg'
import type { Statement } from '../../src/core/database.ts'
import { encodeParameters } from '../../src/db/values.ts'

export interface PlanNode {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Name'?: string
  readonly 'Total Cost': number
  readonly Plans?: readonly PlanNode[]
}

export interface Measured {
  readonly plan: PlanNode
  /** Relations scanned from one end to the other, whether or not this execution came to it. */
  readonly scanned: readonly string[]
  /** Indexes read without a condition: whole, or until somebody has had enough. */
  readonly walked: readonly string[]
  readonly indexes: readonly string[]
  /** Pages of tables and indexes of our schema touched, in memory or not; those of planning are not among them. */
  readonly buffers: number
  readonly buffersOf: Readonly<Record<string, number>>
  readonly compiled: boolean
}

/** Executes a prepared statement in the transaction that is open, and tells its plan and what it touched. */
export async function measure(client: pg.ClientBase, prepared: string, statement: Statement): Promise<Measured> {
  const before = await blocksOf(client)
  const { rows } = await client.query(
    `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE ${prepared}${argumentsOf(client, statement)}`,
  )
  const after = await blocksOf(client)
  const { Plan: plan, JIT: jit } = rows[0]['QUERY PLAN'][0] as { Plan: PlanNode; JIT?: unknown }
  const touched = [...after]
    .map(([name, blocks]) => [name, blocks - (before.get(name) ?? 0)] as const)
    .filter(([, blocks]) => blocks > 0)
  const nodes = nodesOf(plan)
  return {
    plan,
    scanned: distinct(nodes.filter((node) => node['Node Type'] === 'Seq Scan').map((node) => String(node['Relation Name']))),
    walked: distinct(
      nodes
        .filter((node) => /Index/.test(node['Node Type']) && !('Index Cond' in node))
        .map((node) => String(node['Index Name'])),
    ),
    indexes: distinct(nodes.flatMap((node) => node['Index Name'] ?? [])),
    buffers: touched.reduce((sum, [, blocks]) => sum + blocks, 0),
    buffersOf: Object.fromEntries(touched.sort((left, right) => right[1] - left[1])),
    compiled: jit !== undefined,
  }
}

/** Of a plan that is only made, with the parameters unknown to it when the session forces generic plans. */
export async function explain(client: pg.ClientBase, prepared: string, statement: Statement): Promise<PlanNode> {
  const { rows } = await client.query(`EXPLAIN (FORMAT JSON) EXECUTE ${prepared}${argumentsOf(client, statement)}`)
  return rows[0]['QUERY PLAN'][0].Plan
}

function argumentsOf(client: pg.ClientBase, statement: Statement): string {
  if (statement.params.length === 0) return ''
  return `(${encodeParameters(statement)
    .map((value) => (value === null ? 'NULL' : client.escapeLiteral(value)))
    .join(', ')})`
}

export function nodesOf(node: PlanNode): readonly PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)]
}

function distinct(names: readonly string[]): readonly string[] {
  return [...new Set(names)].sort()
}

/** What this session has touched and not yet reported, by relation: exact, and without what other sessions do. */
async function blocksOf(client: pg.ClientBase): Promise<ReadonlyMap<string, number>> {
  const { rows } = await client.query<{ name: string; blocks: number }>(`
    SELECT coalesce(t.relname || ' toast', c.relname) AS name, sum(coalesce(pg_stat_get_xact_blocks_fetched(c.oid), 0))::int AS blocks
    FROM pg_class c LEFT JOIN pg_class t ON t.reltoastrelid = c.oid
    WHERE c.relnamespace = 'pawl'::regnamespace OR t.relnamespace = 'pawl'::regnamespace GROUP BY 1`)
  return new Map(rows.map(({ name, blocks }) => [name, blocks]))
}
