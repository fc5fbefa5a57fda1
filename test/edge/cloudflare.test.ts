import { createExecutionContext, createScheduledController, waitOnExecutionContext } from 'cloudflare:test'
import { beforeEach, describe, expect, test } from 'vitest'
import type { Statement } from '../../src/core/database.ts'
import { signDelivery } from '../../src/core/delivery.ts'
import type { Budget } from '../../src/core/tick.ts'
import { type CloudflareOptions, type CloudflareWorker, cloudflare } from '../../src/hosts/cloudflare.ts'
import { createPawl } from '../../src/index.ts'
import { BUDGETS } from '../../src/worker/budgets.ts'
import { definitions, double, HOOK_SECRET, nightly } from '../hosts/definitions.ts'
import { type EdgeEnv, freshEdgeEnv, OpenedDatabases, openEdgeDatabase } from './edge-database.ts'

const KEY = 'root-key-of-the-tests'
const ORIGIN = 'https://worker.example'

let env: EdgeEnv
let opened: OpenedDatabases
beforeEach(async () => {
  env = await freshEdgeEnv()
  opened = new OpenedDatabases()
})

const unmade = createPawl({ definitions })

function worker(options: Partial<CloudflareOptions<EdgeEnv>> = {}, pawl: typeof unmade | ReturnType<typeof shifted> = unmade) {
  return cloudflare<EdgeEnv>(pawl, { database: (of) => opened.open(of), rootKey: () => KEY, ...options })
}

/** The same pawl, on a database whose clock is ahead. */
function shifted(pawl: Pick<typeof unmade, 'registry' | 'schema' | 'logger' | 'connect'>, ms: number) {
  const now = () => new Date(Date.now() + ms).toISOString()
  return { ...pawl, connect: (options: Parameters<typeof pawl.connect>[0]) => pawl.connect({ ...options, now }) }
}

/** One invocation, to the end of what it does after its response. */
async function call(of: CloudflareWorker<EdgeEnv>, method: string, path: string, body?: unknown, headers: HeadersInit = {}) {
  const context = createExecutionContext()
  const request = new Request(`${ORIGIN}${path}`, {
    method,
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const response = await of.fetch(request, env, context)
  const answer = { status: response.status, body: await response.text().then((text) => (text === '' ? null : JSON.parse(text))) }
  await waitOnExecutionContext(context)
  return answer
}

async function scheduled(of: CloudflareWorker<EdgeEnv>) {
  const context = createExecutionContext()
  await of.scheduled(createScheduledController(), env, context)
  await waitOnExecutionContext(context)
}

const statement = (text: string, ...params: Statement['params']): Statement => ({ name: 'test', text, params })

async function statuses(): Promise<Readonly<Record<string, number>>> {
  const rows = await openEdgeDatabase(env).query(
    statement('SELECT status::text AS status, count(*)::int AS n FROM pawl.runs WHERE environment_id > 0 GROUP BY 1'),
  )
  return Object.fromEntries(rows.map(({ status, n }) => [status, Number(n)]))
}

const flat = (budget: Budget) => ({ kick: budget, tick: budget, cron: budget })

describe('a Worker over the Neon HTTP driver', () => {
  test('C250 C256 a spawn over fetch is run under waitUntil, with no tick from outside', async () => {
    const of = worker()
    const spawned = await call(of, 'POST', '/v1/runs', { definition: 'double', input: { n: 21 } })
    expect(spawned).toMatchObject({ status: 201, body: { status: 'pending', created: true } })
    const read = await call(of, 'GET', `/v1/runs/${spawned.body.id}`)
    expect(read).toMatchObject({ status: 200, body: { status: 'completed', result: 42 } })
  })

  test('C225 C249 C245 jobs, machines, fans, signals and webhooks go through a driver without sessions', async () => {
    const of = worker()
    const order = await call(of, 'POST', '/v1/runs', { definition: 'checkout', input: { order: 7 } })
    const fanned = await call(of, 'POST', '/v1/runs', { definition: 'fan', input: { width: 12 } })
    // workerd's own types leave open which buffer it is
    const rawBody = new TextEncoder().encode(JSON.stringify({ order: 7, cents: 1250 })) as Uint8Array<ArrayBuffer>
    const headers = await signDelivery({ deliveryId: 'delivery-1', rawBody, secret: HOOK_SECRET, now: new Date() })
    const deliver = () => call(of, 'POST', '/hooks/shop', { order: 7, cents: 1250 }, headers)
    expect((await deliver()).status).toBe(202)
    expect((await deliver()).body.replayed).toBe(true)
    expect((await call(of, 'POST', '/hooks/shop', { order: 8, cents: 1 }, headers)).status).toBe(401)
    await call(of, 'POST', '/v1/signals', { to: { key: 'order:7' }, name: 'shipped', payload: { parcel: 'P-1' } })
    const [checkedOut, gathered] = [
      await call(of, 'GET', `/v1/runs/${order.body.id}`),
      await call(of, 'GET', `/v1/runs/${fanned.body.id}`),
    ]
    expect(checkedOut.body).toMatchObject({ status: 'completed', result: { order: 7, cents: 1250, parcel: 'P-1' } })
    expect(gathered.body).toMatchObject({ status: 'completed', result: 132 })
  })

  test('C245 the cron alone moves everything on: delays, timeouts, schedules', async () => {
    const pawl = createPawl({ definitions: [...definitions, nightly] })
    const now = worker({}, pawl as never)
    await scheduled(now)
    await call(now, 'POST', '/v1/runs', { definition: 'double', input: { n: 1 }, delay: '30m' })
    await call(now, 'POST', '/v1/runs', { definition: 'checkout', input: { order: 1 } })
    await scheduled(now)
    expect(await statuses()).toEqual({ pending: 1, waiting: 1 })
    await scheduled(worker({}, shifted(pawl as never, 25 * 3_600_000)))
    expect(await statuses()).toEqual({ completed: 2, failed: 1 })
  })

  test('C248 ticks that were missed only delay: a wait whose time ran out fires late, once', async () => {
    const of = worker()
    const order = await call(of, 'POST', '/v1/runs', { definition: 'checkout', input: { order: 3 } })
    const late = worker({}, shifted(unmade, 90 * 60_000))
    await Promise.all([scheduled(late), scheduled(late), scheduled(late)])
    const { body } = await call(of, 'GET', `/v1/runs/${order.body.id}/history`)
    expect(body.items.map(({ outcome }: { outcome: string }) => outcome)).toEqual(['wait', 'fail'])
  })

  test('C226 an empty tick is one request, and so are a spawn, a signal and a status', async () => {
    const silent = worker({ budget: flat({ ...BUDGETS['workers-free'].kick, batch: 0, concurrency: 0 }) })
    const of = worker()
    await scheduled(of)
    opened.take()
    await scheduled(of)
    expect(opened.take()).toEqual([1])
    // with room for nothing a kick asks nothing: what is counted is the call alone
    const order = await call(silent, 'POST', '/v1/runs', { definition: 'checkout', input: { order: 5 } })
    expect(opened.take()).toEqual([1])
    await call(silent, 'GET', `/v1/runs/${order.body.id}`)
    expect(opened.take()).toEqual([1])
    await call(silent, 'POST', '/v1/signals', { to: { id: order.body.id }, name: 'paid', payload: { cents: 5 } })
    expect(opened.take()).toEqual([1])
  })

  test('C260 draining 95 runs in batches of 20 takes at most 7 requests', async () => {
    const pawl = createPawl({ definitions: [double] })
    const store = pawl.connect({ database: openEdgeDatabase(env) })
    const budget = { ...BUDGETS['workers-paid'].cron, batch: 20, concurrency: 20, lanes: 1 }
    // the upkeep that the first tick of a database does is not the drain's
    const of = worker({ budget: flat(budget) }, pawl as never)
    await scheduled(of)
    await store.spawnMany(Array.from({ length: 95 }, (_, n) => double.with({ n })))
    opened.take()
    await scheduled(of)
    expect(await statuses()).toEqual({ completed: 95 })
    expect(opened.take()[0]).toBeLessThanOrEqual(Math.ceil(95 / 20) + 2)
  })

  test('C258 work beyond the budget is handed on, and no invocation asks for more than it may', async () => {
    const pawl = createPawl({ definitions: [double] })
    await pawl.connect({ database: openEdgeDatabase(env) }).spawnMany(Array.from({ length: 100 }, (_, n) => double.with({ n })))
    const budget = { ...BUDGETS['workers-free'].kick, requests: 9, batch: 5, concurrency: 5 }
    const handedOn: Promise<unknown>[] = []
    const of: CloudflareWorker<EdgeEnv> = worker(
      {
        budget: flat(budget),
        self: () => ({
          fetch: async (request) => {
            const context = createExecutionContext()
            const response = await of.fetch(request, env, context)
            handedOn.push(waitOnExecutionContext(context))
            return response
          },
        }),
      },
      pawl as never,
    )
    await scheduled(of)
    for (const invocation of handedOn) await invocation
    expect(await statuses()).toEqual({ completed: 100 })
    const asked = opened.take()
    expect(asked.length).toBeGreaterThan(3)
    expect(Math.max(...asked)).toBeLessThanOrEqual(9)
  })

  test('C264 a hundred spawns of one isolate share their ticks', async () => {
    const of = worker({ budget: 'workers-paid' })
    const spawns = Array.from({ length: 100 }, (_, n) => call(of, 'POST', '/v1/runs', { definition: 'double', input: { n } }))
    await Promise.all(spawns)
    expect(await statuses()).toEqual({ completed: 100 })
    // one for the spawn of each invocation, the rest for ticking
    const ticking = opened.take().reduce((sum, requests) => sum + requests, 0) - 100
    expect(ticking).toBeLessThan(30)
  })

  test('tells the alarm when work is next due', async () => {
    const alarms: number[] = []
    const of = worker({ alarm: () => ({ setAt: (ms) => void alarms.push(ms) }) })
    const before = Date.now()
    await call(of, 'POST', '/v1/runs', { definition: 'double', input: { n: 1 }, delay: '1h' })
    expect(alarms).toHaveLength(1)
    expect(Math.abs((alarms[0] ?? 0) - (before + 3_600_000))).toBeLessThan(60_000)
  })

  test('answers 503 where no key is configured, and takes over no work from strangers', async () => {
    const bare = worker({ rootKey: undefined })
    expect(await call(bare, 'GET', '/v1/runs')).toMatchObject({ status: 503, body: { code: 'not_configured' } })
    const of = worker()
    const stranger = { authorization: 'Bearer something else', 'pawl-hand-on': '1' }
    expect((await call(of, 'POST', '/v1/tick', undefined, stranger)).status).toBe(401)
    expect((await call(of, 'POST', '/v1/tick', undefined, { 'pawl-hand-on': '1' })).status).toBe(202)
  })

  test('serves under a base path, and nothing beside it', async () => {
    const of = worker({ basePath: '/pawl' })
    expect((await call(of, 'GET', '/pawl/healthz')).status).toBe(200)
    expect((await call(of, 'GET', '/healthz')).status).toBe(404)
  })
})
