import { afterAll, beforeAll, expect, test } from 'vitest'
import { SCHEMA_VERSION } from '../../src/core/build.ts'
import { uuidv7 } from '../../src/core/ids.ts'
import type { ListRunsQuery, ReadingStore, RunRecord } from '../../src/core/store.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createReadingStore } from '../../src/db/reading.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { insertManyRuns } from '../support/million-runs.ts'

/** Enough that walks end early and the other ways in are taken. */
const TOTAL = 30_000

const ALL: ListRunsQuery = {
  tenant: 'acme',
  status: null,
  definition: null,
  queue: null,
  key: null,
  tag: null,
  parent: null,
  since: null,
  until: null,
  limit: 500,
  cursor: null,
}

forEachVersion('reading', (version) => {
  let fresh: FreshDatabase
  let store: ReadingStore
  let close: () => Promise<void>
  let parentId: string
  const sql = async (text: string, params: unknown[] = []) =>
    (await fresh.pool({ max: 1 }).query({ text, values: params, rowMode: 'array' })).rows

  beforeAll(async () => {
    fresh = await freshDatabase(version)
    const database = nodePostgres({ connectionString: fresh.connectionString, max: 2 })
    ;({ parentId } = await insertManyRuns(fresh.pool({ max: 1 }), TOTAL))
    store = createReadingStore({ database, schema: 'pawl', environment: 'production' })
    close = async () => {
      await database.close()
      await fresh.close()
    }
  })
  afterAll(() => close())

  /** All pages of a list, and how many there were. */
  const readAll = async (query: Partial<ListRunsQuery>) => {
    const runs: RunRecord[] = []
    let pages = 0
    for (let cursor: string | null = null; ; pages += 1) {
      const page = await store.listRuns({ ...ALL, ...query, cursor })
      expect(page.items.length).toBeLessThanOrEqual(query.limit ?? 500)
      runs.push(...page.items)
      cursor = page.nextCursor
      if (cursor === null || pages > 2_000) return { ids: runs.map(({ id }) => id), runs, pages: pages + 1 }
    }
  }

  /** What the list must be, by the simplest statement that says it. */
  const expected = async (where: string, params: unknown[] = []) => {
    const rows = await sql(
      `SELECT r.id FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id JOIN pawl.environments e ON e.id = r.environment_id
       WHERE l.tenant = 'acme' AND e.name = 'production' AND ${where} ORDER BY r.created_at DESC, r.position DESC`,
      params,
    )
    return rows.map(([id]) => id)
  }

  const lists: readonly [string, Partial<ListRunsQuery>, string][] = [
    ['a definition', { definition: 'd3' }, "l.definition = 'd3'"],
    ['a queue and a definition', { queue: 'q1', definition: 'd5' }, "l.queue = 'q1' AND l.definition = 'd5'"],
    ['failed', { status: ['failed'], limit: 37 }, "r.status = 'failed'"],
    ['waiting or failed', { status: ['waiting', 'failed'] }, "r.status IN ('waiting', 'failed')"],
    ['pending', { status: ['pending'], limit: 50 }, "r.status = 'pending'"],
    ['running', { status: ['running'] }, "r.status = 'running'"],
    ['not at rest', { status: ['pending', 'running', 'waiting'], limit: 20 }, "r.status IN ('pending', 'running', 'waiting')"],
    ['completed', { status: ['completed'] }, "r.status = 'completed'"],
    ['completed or running', { status: ['completed', 'running'] }, "r.status IN ('completed', 'running')"],
    ['a rare tag', { tag: 'rare', limit: 5 }, "r.tags @> ARRAY['rare']"],
    ['a common tag', { tag: 'common' }, "r.tags @> ARRAY['common']"],
    ['a tag of old runs only', { tag: 'old' }, "r.tags @> ARRAY['old']"],
    ['a tag that none has', { tag: 'nosuch' }, 'false'],
    ['pending with a tag', { tag: 'common', status: ['pending'] }, "r.tags @> ARRAY['common'] AND r.status = 'pending'"],
    ['failed with a tag', { tag: 'rare', status: ['failed'] }, "r.tags @> ARRAY['rare'] AND r.status = 'failed'"],
    ['a key of two tenants', { key: 'hot', limit: 10 }, "r.key = 'hot'"],
    [
      'a key and a status',
      { key: 'hot', status: ['failed', 'completed'] },
      "r.key = 'hot' AND r.status IN ('failed', 'completed')",
    ],
    ['a key of one run', { key: 'order:1008' }, "r.key = 'order:1008'"],
    ['children', { parent: '00000000-0000-7000-8000-000000000000' }, "r.parent_id = '00000000-0000-7000-8000-000000000000'"],
    [
      'failed children of a queue',
      { parent: '00000000-0000-7000-8000-000000000000', status: ['failed'], queue: 'q1', limit: 3 },
      "r.parent_id = '00000000-0000-7000-8000-000000000000' AND r.status = 'failed' AND l.queue = 'q1'",
    ],
  ]
  test.each(lists)('a list of %s has every run once, newest first, over all its pages', async (_, query, where) => {
    const { ids } = await readAll(query)
    expect(ids).toEqual(await expected(where))
  })

  test('a list between two instants has what was created from the first to before the second', async () => {
    const [row] = await sql('SELECT extract(epoch FROM now()) * 1000 FROM pawl.meta')
    const since = Math.floor(Number(row?.[0])) - 5_000_000
    const until = since + 3_000_000
    const { ids } = await readAll({ since, until })
    const where = 'r.created_at >= to_timestamp($1::float8 / 1000) AND r.created_at < to_timestamp($2::float8 / 1000)'
    expect(ids.length).toBeGreaterThan(1_000)
    expect(ids).toEqual(await expected(where, [since, until]))
    const tagged = await readAll({ since, until, tag: 'rare' })
    expect(tagged.ids).toEqual(await expected(`${where} AND r.tags @> ARRAY['rare']`, [since, until]))
  })

  test('what was created while a list is paged does not move its pages', async () => {
    const first = await store.listRuns({ ...ALL, definition: 'd2', limit: 10 })
    await sql(
      `INSERT INTO pawl.runs (id, created_at, available_at, updated_at, lane_id, environment_id, priority, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds, status, step)
       SELECT $1, now() + interval '1 hour', now(), now(), lane_id, environment_id, 0, 1, 1, 1, 1, 'pending', 'run' FROM pawl.runs WHERE id = $2`,
      [uuidv7(), first.items[0]?.id],
    )
    const { items } = await store.listRuns({ ...ALL, definition: 'd2', limit: 10, cursor: first.nextCursor })
    const all = (await expected("l.definition = 'd2'")).slice(1)
    expect([...first.items, ...items].map(({ id }) => id)).toEqual(all.slice(0, 20))
  })

  test('nothing of another tenant or environment is seen', async () => {
    const [other] = await sql(
      "SELECT r.id FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id WHERE l.tenant = 'other' LIMIT 1",
    )
    const [staging] = await sql(
      "SELECT r.id FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id JOIN pawl.environments e ON e.id = r.environment_id WHERE l.tenant = 'acme' AND e.name = 'staging' LIMIT 1",
    )
    for (const row of [other, staging]) {
      const id = String(row?.[0])
      expect(await store.getRun(id, { tenant: 'acme' })).toBeNull()
      expect(await store.history(id, { tenant: 'acme' }, { limit: 10, cursor: null })).toBeNull()
    }
    expect(await store.getRun('no id', { tenant: 'acme' })).toBeNull()
    expect(await store.listRuns({ ...ALL, tenant: 'nobody' })).toEqual({ items: [], nextCursor: null })
  })

  test.each(['', 'x', 'bm8', btoa('["lane","1"]'), btoa('["key","1","1"]').replaceAll('=', ''), '{}'])(
    'the cursor %j is refused as malformed',
    async (cursor) => {
      await expect(store.listRuns({ ...ALL, cursor })).rejects.toMatchObject({ code: 'malformed' })
    },
  )

  test('stats count what there is, by queue and by status', async () => {
    const stats = await store.stats({ tenant: 'acme' })
    const where = "l.tenant = 'acme' AND e.name = 'production'"
    const from = 'FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id JOIN pawl.environments e ON e.id = r.environment_id'
    const byStatus = Object.fromEntries(await sql(`SELECT r.status, count(*)::int ${from} WHERE ${where} GROUP BY 1`))
    // the one that another test has put there lies in no table that is counted
    expect(stats.byStatus).toMatchObject({ ...byStatus, pending: expect.any(Number), completed: expect.any(Number) })
    expect(stats.byStatus.pending + stats.byStatus.completed).toBe(byStatus.pending + byStatus.completed)
    const queues = await sql(
      `SELECT l.queue, count(*) FILTER (WHERE r.timer_at IS NOT NULL)::int, count(*) FILTER (WHERE r.blocked_on IS NOT NULL)::int,
         count(*) FILTER (WHERE r.status = 'running')::int, count(*) FILTER (WHERE r.status = 'waiting')::int,
         extract(epoch FROM min(y.available_at)) * 1000
       ${from} LEFT JOIN pawl.ready y ON y.run_id = r.id WHERE ${where} GROUP BY 1 ORDER BY 1`,
    )
    expect(
      stats.queues.map(({ name, delayed, blocked, running, waiting, oldestDueAt }) => [
        name,
        delayed,
        blocked,
        running,
        waiting,
        Math.floor(oldestDueAt ?? 0),
      ]),
    ).toEqual(queues.map((row) => [...row.slice(0, 5), Math.floor(Number(row[5]))]))
    expect((await store.stats(null)).byStatus.failed).toBeGreaterThan(stats.byStatus.failed)
    expect(await store.stats({ tenant: 'nobody' })).toMatchObject({ queues: [], byStatus: { pending: 0 } })
  })

  test('health shows the oldest thing that is due in an open lane of this environment', async () => {
    const [row] = await sql(
      `SELECT extract(epoch FROM min(y.available_at)) * 1000 FROM pawl.ready y JOIN pawl.lanes l ON l.id = y.lane_id JOIN pawl.environments e ON e.id = l.environment_id
       WHERE e.name = 'production'`,
    )
    const health = await store.health()
    expect(health).toMatchObject({
      schemaVersion: SCHEMA_VERSION,
      lastTickAt: null,
      lastTickSource: null,
      now: expect.any(Number),
    })
    expect(Math.floor(health.oldestDueAt ?? 0)).toBe(Math.floor(Number(row?.[0])))
    expect(parentId).toBeDefined()
  })

  test('an attempt counts what has ended badly, and the one that runs or has succeeded', async () => {
    const attempts = async (status: string) => {
      const [found] = await sql(
        "SELECT r.id FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id WHERE r.status = $1::pawl.run_status AND l.tenant = 'acme' AND l.environment_id = 1 LIMIT 1",
        [status],
      )
      await sql('UPDATE pawl.runs SET failures = 2, losses = 1 WHERE id = $1', [found?.[0]])
      return (await store.getRun(String(found?.[0]), { tenant: 'acme' }))?.attempt
    }
    expect([await attempts('pending'), await attempts('running'), await attempts('completed'), await attempts('failed')]).toEqual(
      [3, 4, 4, 3],
    )
  })

  test('API keys are found by hash until they end, listed, and revoked once', async () => {
    const key = {
      id: uuidv7(),
      name: 'first',
      tenant: 'acme',
      scopes: ['runs:read', 'ops'],
      expiresAt: null,
      hash: 'ab'.repeat(32),
    }
    const made = await store.createApiKey(key)
    expect(made).toMatchObject({
      id: key.id,
      name: 'first',
      tenant: 'acme',
      scopes: ['runs:read', 'ops'],
      expiresAt: null,
      revokedAt: null,
    })
    expect(await store.createApiKey(key)).toEqual(made)
    expect(await store.findApiKey(key.hash)).toEqual(made)
    expect(await store.findApiKey('none')).toBeNull()
    const ended = await store.createApiKey({ ...key, id: uuidv7(), hash: 'cd', expiresAt: Date.now() - 1 })
    expect(await store.findApiKey('cd')).toBeNull()
    expect((await store.listApiKeys({ tenant: 'acme' })).map(({ id }) => id)).toEqual([ended.id, made.id])
    expect(await store.listApiKeys({ tenant: 'other' })).toEqual([])
    expect([await store.revokeApiKey(key.id, { tenant: 'other' }), await store.findApiKey(key.hash)]).toEqual([false, made])
    expect(await store.revokeApiKey(key.id, null)).toBe(true)
    const [first] = (await store.listApiKeys(null)).filter(({ id }) => id === key.id)
    expect(await store.revokeApiKey(key.id, { tenant: 'acme' })).toBe(true)
    expect((await store.listApiKeys(null)).filter(({ id }) => id === key.id)).toEqual([first])
    expect(await store.findApiKey(key.hash)).toBeNull()
  })
})
