import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Parameter, Statement } from '../../src/core/database.ts'
import { explainRun } from '../../src/db/statements/explain-run.ts'
import { type ListRunsParams, listRuns } from '../../src/db/statements/list-runs.ts'
import { readHistory } from '../../src/db/statements/read-history.ts'
import { readRun } from '../../src/db/statements/read-run.ts'
import { readHealth, readStats } from '../../src/db/statements/read-stats.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { insertManyRuns } from '../support/million-runs.ts'

const ROWS = 1_000_000
const PARENT = '00000000-0000-7000-8000-000000000000'
const scope = { environment: 'production', tenant: 'acme' }

const list = (params: Partial<ListRunsParams>): Statement =>
  listRuns('pawl', {
    ...scope,
    definition: null,
    queue: null,
    key: null,
    tag: null,
    parent: null,
    statuses: null,
    sinceUs: null,
    untilUs: null,
    after: null,
    limit: 50,
    ...params,
  })

/** Somewhere in the middle of the table. */
const after = { major: BigInt(Date.now() - (ROWS / 2) * 1_000) * 1_000n, minor: BigInt(ROWS / 2) }

/** Buffers that a page may touch: one that its order finds at once, one that looks at rows in vain, one that gathers what moves. */
const [STRAIGHT, WALKING, GATHERING] = [2_500, 8_000, 30_000]

const statements: readonly [name: string, buffers: number, statement: Statement][] = [
  ['the newest runs', STRAIGHT, list({})],
  ['runs from the middle on', STRAIGHT, list({ after })],
  ['500 runs', 8_000, list({ limit: 500 })],
  ['runs of a definition', STRAIGHT, list({ definition: 'd3' })],
  ['runs of a queue', STRAIGHT, list({ queue: 'q1', after })],
  ['runs of a definition that there is not', 100, list({ definition: 'none' })],
  ['runs of a tenant that there is not', 100, list({ tenant: 'nobody' })],
  ['failed runs', STRAIGHT, list({ statuses: ['failed'] })],
  [
    'runs of every notable status',
    STRAIGHT,
    list({ statuses: ['failed', 'waiting', 'cancelled', 'discarded', 'uncertain'], after }),
  ],
  ['runs of a key', WALKING, list({ key: 'hot' })],
  ['the run of a key', 100, list({ key: 'order:1008' })],
  ['children', STRAIGHT, list({ parent: PARENT })],
  ['failed children', WALKING, list({ parent: PARENT, statuses: ['failed'] })],
  ['runs of a day', STRAIGHT, list({ sinceUs: after.major, untilUs: after.major + 86_400_000_000n })],
  ['completed runs', WALKING, list({ statuses: ['completed'] })],
  ['runs with a common tag', WALKING, list({ tag: 'common' })],
  ['runs with a rare tag', WALKING, list({ tag: 'rare' })],
  ['runs with a tag of old runs', WALKING, list({ tag: 'old' })],
  ['runs with a tag that none has', WALKING, list({ tag: 'nosuch' })],
  ['pending runs', GATHERING, list({ statuses: ['pending'] })],
  ['running runs', WALKING, list({ statuses: ['running'] })],
  ['runs that are not at rest', GATHERING, list({ statuses: ['pending', 'running', 'waiting'], after })],
  ['pending runs with a tag', GATHERING, list({ statuses: ['pending'], tag: 'rare' })],
  ['a run', 20, readRun('pawl', { ...scope, id: '00000000-0000-7000-8000-0000000186a0' })],
  ['a history', 20, readHistory('pawl', { ...scope, id: '00000000-0000-7000-8000-0000000186a0', afterSeq: -1, limit: 51 })],
  ['why a run does not move', 100, explainRun('pawl', { now: null, ...scope, id: '00000000-0000-7000-8000-0000000186a0' })],
  ['stats of a tenant', 150_000, readStats('pawl', { now: null, ...scope })],
  ['stats of all tenants', 250_000, readStats('pawl', { now: null, environment: 'production', tenant: null })],
  ['health', 1_000, readHealth('pawl', { now: null, environment: 'production' })],
]

interface PlanNode {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Actual Loops': number
  readonly 'Shared Hit Blocks': number
  readonly 'Shared Read Blocks': number
  readonly Plans?: readonly PlanNode[]
}

const LARGE = new Set(['runs', 'ready', 'history', 'signals'])

function scansOf(node: PlanNode): string[] {
  const own = node['Node Type'] === 'Seq Scan' && node['Actual Loops'] > 0 && LARGE.has(node['Relation Name'] ?? '')
  return [...(own ? [String(node['Relation Name'])] : []), ...(node.Plans ?? []).flatMap(scansOf)]
}

forEachVersion(`reading ${ROWS.toLocaleString('en')} runs`, (version) => {
  let fresh: FreshDatabase
  let client: pg.PoolClient
  beforeAll(async () => {
    fresh = await freshDatabase(version)
    const pool = fresh.pool({ max: 1 })
    await insertManyRuns(pool, ROWS)
    client = await pool.connect()
  }, 300_000)
  afterAll(async () => {
    client.release()
    await fresh.close()
  })

  const literal = (param: Parameter): string => {
    if (param === null) return 'NULL'
    return client.escapeLiteral(Array.isArray(param) ? `{${param.join(',')}}` : String(param))
  }

  const planOf = async ({ text, params }: Statement): Promise<PlanNode> => {
    await client.query(`PREPARE statement AS ${text}`)
    try {
      const { rows } = await client.query(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE statement(${params.map(literal).join(', ')})`,
      )
      return rows[0]['QUERY PLAN'][0].Plan
    } finally {
      await client.query('DEALLOCATE statement')
    }
  }

  const modes = [
    ['never analysed', ''],
    ['analysed', 'ANALYZE pawl.runs, pawl.ready, pawl.lanes, pawl.claims'],
  ] as const
  describe.each(modes)('%s', (_, prepare) => {
    beforeAll(async () => {
      if (prepare) await client.query(prepare)
    })
    describe.each(['force_custom_plan', 'force_generic_plan'])('with %s', (mode) => {
      test.each(statements)('%s touches at most %i buffers and scans no large table', async (__, buffers, statement) => {
        await client.query(`SET plan_cache_mode = ${mode}`)
        const plan = await planOf(statement)
        expect(scansOf(plan)).toEqual([])
        expect(plan['Shared Hit Blocks'] + plan['Shared Read Blocks']).toBeLessThanOrEqual(buffers)
      })
    })
  })
})
