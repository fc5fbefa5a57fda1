import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest, finishes, flush } from '../traps/outcomes.ts'

const definitions = [
  job({ name: 'plain', input: z.number(), run: () => 'ran' }),
  job({ name: 'exclusive', input: z.string(), concurrencyKey: (key) => key, run: () => 'ran' }),
  job({ name: 'once', input: z.string(), unique: { by: () => 'same' }, run: () => 'ran' }),
]
const TENANTS = ['a', 'b'] as const

/** The tenant of each run, in the order given. */
const tenantsOf = (engine: TestEngine, ids: readonly string[]) =>
  engine.sql<string>(
    'SELECT l.tenant FROM unnest($1::uuid[]) WITH ORDINALITY AS i(id, n) JOIN pawl.runs r ON r.id = i.id JOIN pawl.lanes l ON l.id = r.lane_id ORDER BY i.n',
    [ids],
  )

forEachVersion('what belongs to one tenant', (version) => {
  const { start } = sharedEngines(version)
  const begin = () => start({ definitions, version, frozen: true, connections: 16 })

  test('C275 two tenants take the same business key, unique input and idempotency key, and each its own run', async () => {
    const engine = await begin()
    const receipt = { key: 'again', fingerprint: 'same' }
    const ways = [
      (tenant: string) => engine.spawn('plain', 1, { tenant, key: 'order:42' }),
      (tenant: string) => engine.spawn('once', tenant, { tenant }),
      (tenant: string) => engine.spawn('plain', 2, { tenant, receipt }),
    ]
    for (const way of ways) {
      const first = await Promise.all(TENANTS.map(way))
      expect(first.map(({ kind }) => kind)).toEqual(['created', 'created'])
      const ids = first.map((answer) => ('id' in answer ? answer.id : ''))
      expect(await tenantsOf(engine, ids)).toEqual(TENANTS)
      // and each is told of its own when it asks again
      const again = await Promise.all(TENANTS.map(way))
      expect(again.map((answer) => ('id' in answer ? answer.id : answer.kind))).toEqual(ids)
    }
  })

  test('C275 the concurrency key of one tenant holds up nobody of another', async () => {
    const engine = await begin()
    for (const tenant of TENANTS) await engine.spawnMany('exclusive', ['k', 'k'], { tenant })
    const held = await claim(engine)
    expect(
      [
        ...(await tenantsOf(
          engine,
          held.map(({ id }) => id),
        )),
      ].sort(),
    ).toEqual(TENANTS)
    expect(await claim(engine)).toEqual([])
  })

  test('C275 eight claimers serve tenants in turn: who has few runs is done while the flood has had no more than its turns', async () => {
    const engine = await begin()
    await engine.spawnMany('plain', Array(400).fill(0), { tenant: 'flood' })
    for (let n = 0; n < 9; n += 1) await engine.spawnMany('plain', Array(8).fill(0), { tenant: `small ${n}` })
    const served: string[] = []
    // eighty places, ten tenants: eight each
    const turn = async () => {
      const { runs } = await engine.store.claim(claimRequest(engine, { limit: 10 }))
      served.push(
        ...(await tenantsOf(
          engine,
          runs.map(({ id }) => id),
        )),
      )
      await flush(
        engine,
        runs.map((run) => finishes(run)),
      )
    }
    const left = async () =>
      (
        await engine.sql<number>(
          `SELECT count(*)::int FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id JOIN pawl.environments e ON e.id = r.environment_id
         WHERE e.name = $1 AND l.tenant <> 'flood' AND r.status = 'pending'`,
          [engine.environment],
        )
      )[0] ?? 0
    for (let rounds = 0; (await left()) > 0 && rounds < 20; rounds += 1) await Promise.all(Array.from({ length: 8 }, turn))
    const ofFlood = served.filter((tenant) => tenant === 'flood').length
    expect(served.length - ofFlood).toBe(72)
    // an even share is 8; who comes when a small one's rows are in other hands takes of the flood instead
    expect(ofFlood).toBeLessThanOrEqual(160)
  })

  test('C275 what users name is unique for each tenant: every such index begins with it', async () => {
    const engine = await begin()
    const leads = await engine.sql<string>(
      `SELECT c.relname || ' ' || a.attname FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
       WHERE x.indisunique AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'pawl'::regnamespace
         AND c.relname IN ('uniques', 'receipts', 'events', 'event_waits', 'lanes') AND x.indnkeyatts > 1 ORDER BY 1`,
    )
    expect(leads.every((lead) => lead.endsWith(' tenant'))).toBe(true)
    expect(new Set(leads)).toEqual(
      new Set(['event_waits tenant', 'events tenant', 'lanes tenant', 'receipts tenant', 'uniques tenant']),
    )
  })
})
