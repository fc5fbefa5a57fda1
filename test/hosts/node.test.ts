import { afterEach, describe, expect, test } from 'vitest'
import { createClient } from '../../src/client/index.ts'
import { signDelivery } from '../../src/core/delivery.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { type NodeHost, type NodeOptions, node } from '../../src/hosts/node.ts'
import { createPawl } from '../../src/index.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { double, Gates, HOOK_SECRET, held, nightly, pawl } from './definitions.ts'

const cleanups: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

async function fresh(version?: 15 | 18): Promise<FreshDatabase> {
  const database = await freshDatabase(version)
  cleanups.push(database.close)
  return database
}

async function start(options: NodeOptions & { readonly on?: FreshDatabase } = {}): Promise<NodeHost> {
  const { on, ...rest } = options
  const { connectionString } = on ?? (await fresh())
  const host = await node(pawl, { database: connectionString, ...rest })
  cleanups.push(() => host.close())
  return host
}

const clientOf = ({ url }: NodeHost, key?: string) => createClient<typeof pawl>({ url, key })

forEachVersion('the Node host', (version) => {
  test('C250 runs what is spawned over HTTP at once, with no tick from outside', async () => {
    const client = clientOf(await start({ on: await fresh(version) }))
    const { id } = await client.spawn('double', { n: 21 })
    expect(await client.result('double', id, { wait: '20s' })).toEqual({ id, status: 'completed', result: 42 })
  })

  test('takes a checkout through its signed webhook and a signal by key', async () => {
    const host = await start({ on: await fresh(version) })
    const client = clientOf(host)
    const { id } = await client.spawn('checkout', { order: 7 })
    const rawBody = new TextEncoder().encode(JSON.stringify({ order: 7, cents: 1250 }))
    const headers = await signDelivery({ deliveryId: 'delivery-1', rawBody, secret: HOOK_SECRET, now: new Date() })
    const deliver = (sent: Readonly<Record<string, string>>) =>
      fetch(`${host.url}/hooks/shop`, { method: 'POST', body: rawBody, headers: { 'content-type': 'application/json', ...sent } })
    expect((await deliver({ ...headers, 'webhook-signature': 'v1,AAAA' })).status).toBe(401)
    expect((await deliver(headers)).status).toBe(202)
    expect((await deliver(headers)).headers.get('idempotent-replayed')).toBe('true')
    await client.signal({ key: 'order:7' }, 'shipped', { parcel: 'P-1' })
    const result = await client.result('checkout', id, { wait: '20s' })
    expect(result).toEqual({ id, status: 'completed', result: { order: 7, cents: 1250, parcel: 'P-1' } })
  })

  test('wakes by itself when a delayed run is due', async () => {
    const client = clientOf(await start({ on: await fresh(version) }))
    const { id } = await client.spawn('double', { n: 1 }, { delay: '300ms' })
    expect(await client.result('double', id, { wait: '20s' })).toMatchObject({ status: 'completed' })
  })
})

describe('the Node host', () => {
  test('C050 closing in the middle lets steps finish and gives back what was not started', async () => {
    const on = await fresh()
    const gates = new Gates()
    const budget = { wallMs: 60_000, requests: 100_000, concurrency: 1, batch: 1, lanes: 1, lingerMs: 0 }
    const host = await start({ on, services: { gates }, budget: { kick: budget, tick: budget, cron: budget } })
    const client = clientOf(host)
    const first = await client.spawn('held', { gate: 'first' })
    await gates.reached('first')
    const second = await client.spawn('held', { gate: 'second' })
    const closing = host.close()
    gates.open('first')
    await closing
    const database = nodePostgres({ connectionString: on.connectionString })
    cleanups.push(() => database.close())
    const after = pawl.connect({ database })
    expect(await after.result(held, first.id)).toMatchObject({ status: 'completed', result: 'first' })
    expect(await after.run(second.id)).toMatchObject({ status: 'pending', losses: 0, attempt: 0 })
    await expect(fetch(host.url)).rejects.toThrow()
  })

  test('C050 nothing is left under a lease once it is closed', async () => {
    const on = await fresh()
    const gates = new Gates()
    const host = await start({ on, services: { gates } })
    const client = clientOf(host)
    const names = ['a', 'b', 'c', 'd']
    for (const gate of names) await client.spawn('held', { gate })
    await Promise.all(names.map((gate) => gates.reached(gate)))
    const closing = host.close()
    for (const gate of names) gates.open(gate)
    await closing
    const pool = on.pool()
    const { rows } = await pool.query('SELECT (SELECT count(*) FROM pawl.claims)::int AS claims')
    expect(rows).toEqual([{ claims: 0 }])
  })

  test('asks the database nothing while there is nothing to do', async () => {
    let passes = 0
    const gates = new Gates()
    const host = await start({
      onPass: () => {
        passes += 1
        void gates.pass('first pass')
      },
    })
    await gates.reached('first pass')
    const before = host.connection.database.requests
    const client = clientOf(host)
    // three requests that read make no tick
    for (let index = 0; index < 3; index += 1) await client.list()
    expect(host.connection.database.requests - before).toBe(3)
    expect(passes).toBe(1)
  })

  test('a thousand spawns at once do not start a thousand ticks', async () => {
    let passes = 0
    const on = await fresh()
    const host = await start({ on, onPass: () => (passes += 1) })
    const calls = Array.from({ length: 1_000 }, (_, n) => host.connection.calls.spawn({ definition: 'double', input: { n } }))
    const spawned = await Promise.all(calls)
    const last = spawned.map(({ id }) => id)
    for (const id of last) await host.connection.calls.waitForRun(id, 20_000)
    const { rows } = await on.pool().query("SELECT count(*)::int AS n FROM pawl.runs WHERE status = 'completed'")
    expect(rows).toEqual([{ n: 1_000 }])
    expect(passes).toBeLessThan(100)
  })

  test('C247 five ticks at once over HTTP start no run twice', async () => {
    const starts: string[] = []
    const counted = createPawl({ definitions: [double, held] })
    const on = await fresh()
    const gates = { pass: async (name: string) => void starts.push(name) }
    const host = await node(counted, { database: on.connectionString, loop: false, services: { gates } })
    cleanups.push(() => host.close())
    const runs = Array.from({ length: 200 }, (_, index) => ({ definition: 'held', input: { gate: `run-${index}` } }))
    await host.connection.calls.spawnMany(runs)
    const tick = async () => (await fetch(`${host.url}/v1/tick`, { method: 'POST' })).json() as Promise<{ completed: number }>
    const reports = await Promise.all([tick(), tick(), tick(), tick(), tick()])
    expect(reports.reduce((sum, { completed }) => sum + completed, 0)).toBe(200)
    expect(starts.toSorted()).toEqual(runs.map(({ input }) => input.gate).toSorted())
  })

  test('C198 five ticks at once fire a schedule once per slot', async () => {
    const on = await fresh()
    const scheduled = createPawl({ definitions: [nightly] })
    const host = await node(scheduled, { database: on.connectionString, loop: false })
    cleanups.push(() => host.close())
    const tick = async () => (await fetch(`${host.url}/v1/tick`)).json() as Promise<{ fired: number }>
    expect(await tick()).toMatchObject({ fired: 0 })
    const pool = on.pool()
    await pool.query("UPDATE pawl.schedules SET next_at = date_trunc('day', now()) - interval '21 hours'")
    const reports = await Promise.all([tick(), tick(), tick(), tick(), tick()])
    expect(reports.reduce((sum, { fired }) => sum + fired, 0)).toBe(1)
    const { items } = await clientOf(host).list({ definition: 'nightly' })
    expect(items.map(({ status }) => status)).toEqual(['completed'])
  })

  test('without a key it answers this machine alone, and with one nobody without it', async () => {
    const on = await fresh()
    const open = await start({ on, loop: false })
    expect((await fetch(`${open.url}/v1/runs`)).status).toBe(200)
    expect((await fetch(`${open.url}/v1/runs`, { headers: { origin: 'https://example.org' } })).status).toBe(401)
    const wide = await start({ on, loop: false, host: '0.0.0.0' })
    expect((await fetch(`${wide.url}/v1/runs`)).status).toBe(503)
    const keyed = await start({ on, loop: false, rootKey: 'a-root-key' })
    expect((await fetch(`${keyed.url}/v1/runs`)).status).toBe(401)
    await expect(clientOf(keyed, 'a-root-key').list()).resolves.toMatchObject({ items: [] })
  })

  test('serves under a base path', async () => {
    const host = await start({ basePath: '/pawl/', loop: false })
    expect(host.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/pawl$/)
    expect((await fetch(`${host.url}/healthz`)).status).toBe(200)
    expect((await fetch(new URL('/healthz', host.url))).status).toBe(404)
  })

  test('goes on after the database was away', async () => {
    const on = await fresh()
    const host = await start({ on })
    const client = clientOf(host)
    await client.spawn('double', { n: 1 })
    const pool = on.pool()
    await pool.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()',
    )
    const { id } = await client.spawn('double', { n: 2 }, { id: crypto.randomUUID() })
    expect(await client.result('double', id, { wait: '20s' })).toMatchObject({ status: 'completed', result: 4 })
  })

  test('refuses an address of another kind of database, and a taken port', async () => {
    await expect(node(pawl, { database: 'mysql://127.0.0.1/x' })).rejects.toMatchObject({ code: 'invalid_configuration' })
    const first = await start({ loop: false })
    const { connectionString } = await fresh()
    await expect(node(pawl, { database: connectionString, port: first.port, loop: false })).rejects.toThrow(/EADDRINUSE/)
  })
})
