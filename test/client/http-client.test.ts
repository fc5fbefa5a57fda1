import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createApi } from '../../src/api/app.ts'
import { createClient } from '../../src/client/index.ts'
import { uuidv7 } from '../../src/core/ids.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { createPawl, type Database, job, machine } from '../../src/index.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'

const add = job({
  name: 'add',
  input: z.object({ a: z.number(), b: z.number() }),
  run: ({ input }) => ({ sum: input.a + input.b }),
})
const ask = machine({
  name: 'ask',
  state: z.object({}),
  signals: { answer: z.string() },
  output: z.string(),
  key: () => 'ask:1',
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('answer', { goto: 'end' }),
    end: ({ signals, done }) => done(signals.first('answer')?.payload ?? ''),
  },
})
const pawl = createPawl({ definitions: [add, ask] })
const ROOT = 'root-key-for-tests-only'

forEachVersion('the HTTP client', (version) => {
  let fresh: FreshDatabase
  let database: Database
  let tick: () => Promise<unknown>
  let fetchApi: (url: string, init: RequestInit) => Promise<Response>
  const clientWith = (options = {}) =>
    createClient<typeof pawl>({ url: 'https://pawl.test', key: ROOT, fetch: (url, init) => fetchApi(url, init), ...options })
  const client = clientWith()

  beforeAll(async () => {
    fresh = await freshDatabase(version)
    database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
    const connected = pawl.connect({ database })
    const budget = { wallMs: 30_000, requests: 1_000, concurrency: 10, batch: 10, lanes: 1, lingerMs: 0 }
    tick = () => connected.createTicker({ budget }).tick('test')
    const { calls, store, registry } = connected
    const app = createApi(() => ({ calls, store, registry, access: { rootKey: ROOT }, env: {}, build: { version: '0.0.0' } }))
    fetchApi = async (url, init) => app.request(url, init)
  })
  afterAll(async () => {
    await database.close()
    await fresh.close()
  })

  test('C205 spawns, waits, signals and reads the typed results', async () => {
    const { id, created, replayed } = await client.spawn('add', { a: 1, b: 2 }, { tags: ['sum'], delay: 0 })
    expect([created, replayed]).toEqual([true, false])
    const asked = await client.spawn('ask', {})
    await tick()
    const sum = await client.result('add', id, { wait: '1s' })
    expect(sum).toEqual({ id, status: 'completed', result: { sum: 3 } })
    expect(await client.result('ask', asked.id)).toEqual({ id: asked.id, status: 'waiting' })
    const signal = await client.signal({ key: 'ask:1', definition: 'ask' }, 'answer', 'yes', { idempotencyKey: 'a "quoted" key' })
    expect(signal).toMatchObject({ runId: asked.id, replayed: false })
    expect(
      await client.signal({ key: 'ask:1', definition: 'ask' }, 'answer', 'yes', { idempotencyKey: 'a "quoted" key' }),
    ).toMatchObject({
      id: signal.id,
      replayed: true,
    })
    await tick()
    expect(await client.result('ask', asked.id)).toEqual({ id: asked.id, status: 'completed', result: 'yes' })
    expect((await client.run(id)).tags).toEqual(['sum'])
    expect((await client.history(id)).items).toMatchObject([{ step: 'run', attempt: 1 }])
    expect((await client.list({ tag: 'sum', status: ['completed', 'failed'] })).items.map((run) => run.id)).toEqual([id])
    await expect(client.result('ask', id)).rejects.toMatchObject({ code: 'not_found' })
  })

  test('a refusal is the error that the server had, with its pointers', async () => {
    const spawning = client.spawn('add', { a: 'x', b: 1 } as never)
    await expect(spawning).rejects.toMatchObject({
      name: 'PawlError',
      code: 'invalid_input',
      status: 422,
      errors: [{ pointer: '/input/a' }],
    })
    await expect(client.cancel(uuidv7())).rejects.toMatchObject({ code: 'not_found' })
    await expect(clientWith({ key: 'wrong' }).run(uuidv7())).rejects.toMatchObject({ code: 'unauthorized' })
  })

  test('the same idempotency key is answered as the first time', async () => {
    const first = await client.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'once' })
    expect(await client.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'once' })).toEqual({ ...first, replayed: true })
    await expect(client.spawn('add', { a: 2, b: 2 }, { idempotencyKey: 'once' })).rejects.toMatchObject({
      code: 'idempotency_mismatch',
    })
  })

  test('spawnMany answers per item, in order', async () => {
    const items = await client.spawnMany([
      { definition: 'add', input: { a: 1, b: 1 } },
      { definition: 'add', input: { a: 'x' } as never },
      { definition: 'add', input: { a: 2, b: 2 }, priority: 5 },
    ])
    expect(items.map((item) => (item.ok ? item.value.created : item.error.code))).toEqual([true, 'invalid_input', true])
  })

  test('cancel and retry say what they did', async () => {
    const { id } = await client.spawn('add', { a: 1, b: 2 }, { delay: '1h' })
    expect(await client.cancel(id)).toMatchObject({ id, did: 'cancelled' })
    expect(await client.retry(id)).toMatchObject({ id, status: 'pending' })
    expect(await client.cancel(id, { reason: 'ordered twice' })).toMatchObject({ did: 'cancelled' })
    expect(await client.run(id)).toMatchObject({ status: 'cancelled', cancellation: { reason: 'ordered twice' } })
  })

  test('C111 a deadline of a spawn may be milliseconds or a text', async () => {
    const { id } = await client.spawn('add', { a: 1, b: 2 }, { delay: '1h', maxDuration: 60_000, startWithin: '1 day' })
    expect(await client.run(id)).toMatchObject({ status: 'pending' })
    await expect(client.spawn('add', { a: 1, b: 2 }, { maxDuration: 0 })).rejects.toMatchObject({ code: 'invalid_request' })
  })

  test('the tenant of a root key is the one it names', async () => {
    const acme = clientWith({ tenant: 'acme' })
    const { id } = await acme.spawn('add', { a: 1, b: 2 })
    expect((await acme.run(id)).id).toBe(id)
    await expect(client.run(id)).rejects.toMatchObject({ code: 'not_found' })
  })

  test('C024 a reply that is lost three times is said to be lost; reconciling and asking again answer the one run', async () => {
    let lost: { id: string } | undefined
    const lossy = clientWith({
      pause: async () => {},
      fetch: async (url: string, init: RequestInit) => {
        lost = (await (await fetchApi(url, init)).json()) as { id: string }
        throw new TypeError('fetch failed')
      },
    })
    const spawning = lossy.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'lost' })
    await expect(spawning).rejects.toMatchObject({ code: 'unknown_outcome', kind: 'unknown' })
    const answer = { id: lost?.id, status: 'pending', created: true, replayed: true }
    expect(await client.reconcile({ idempotencyKey: 'lost' })).toEqual({ kind: 'run', ...answer })
    expect(await client.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'lost' })).toEqual(answer)
    await expect(client.reconcile({ idempotencyKey: 'never used' })).rejects.toMatchObject({ code: 'not_found' })
    await expect(clientWith({ tenant: 'acme' }).reconcile({ idempotencyKey: 'lost' })).rejects.toMatchObject({
      code: 'not_found',
    })
  })

  test('C024 one reply that is lost is settled by asking again, where that is one request', async () => {
    let lost = 0
    const lossy = clientWith({
      pause: async () => {},
      fetch: async (url: string, init: RequestInit) => {
        const response = await fetchApi(url, init)
        if (lost++ > 0) return response
        throw new TypeError('fetch failed')
      },
    })
    expect(await lossy.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'lost once' })).toMatchObject({
      created: true,
      replayed: true,
    })
    lost = 0
    await expect(lossy.spawn('add', { a: 1, b: 2 })).rejects.toMatchObject({ code: 'unknown_outcome' })
    expect(lost).toBe(1)
  })
})

describe('the HTTP client, when the server is not well', () => {
  /** Answers these, one per request, and counts the requests. */
  function answering(...responses: readonly (() => Response)[]) {
    const seen = { requests: 0, pauses: [] as number[] }
    const client = createClient<typeof pawl>({
      url: 'https://pawl.test/base/',
      fetch: async () => (responses[Math.min(seen.requests++, responses.length - 1)] as () => Response)(),
      pause: async (ms) => void seen.pauses.push(ms),
    })
    return { client, seen }
  }
  const cold = (seconds: string) => () =>
    new Response(JSON.stringify({ code: 'database_unreachable', detail: 'cold' }), {
      status: 503,
      headers: { 'retry-after': seconds },
    })
  const created = () => new Response(JSON.stringify({ id: 'x', status: 'pending', created: true }), { status: 201 })
  const page = (status: number) => () => new Response('<html>bad gateway</html>', { status })

  test.each([
    ['an idempotency key', { idempotencyKey: 'k' }],
    ['an id', { id: uuidv7() }],
  ])('with %s a 503 that says when is asked again', async (_, options) => {
    const { client, seen } = answering(cold('2'), created)
    expect((await client.spawn('add', { a: 1, b: 2 }, options)).created).toBe(true)
    expect(seen).toEqual({ requests: 2, pauses: [2_000] })
  })

  test.each([
    ['it bears neither', {}, cold('2'), 1],
    ['the server wants a long rest', { idempotencyKey: 'k' }, cold('60'), 1],
    ['it is still so after two repeats', { idempotencyKey: 'k' }, cold('1'), 3],
  ])('a 503 is thrown when %s', async (_, options, answer, requests) => {
    const { client, seen } = answering(answer)
    await expect(client.spawn('add', { a: 1, b: 2 }, options)).rejects.toMatchObject({ code: 'database_unreachable' })
    expect(seen.requests).toBe(requests)
  })

  test.each([
    [502, 'unknown_outcome'],
    [504, 'unknown_outcome'],
    [500, 'internal'],
    [404, 'not_found'],
    [200, 'internal'],
  ])('a page of status %i in place of an answer is %s', async (status, code) => {
    await expect(answering(page(status)).client.spawn('add', { a: 1, b: 2 })).rejects.toMatchObject({ code })
  })

  test('a code that this client does not know yet keeps its text', async () => {
    const newer = () => new Response(JSON.stringify({ code: 'quota_exceeded', detail: 'no more today' }), { status: 402 })
    await expect(answering(newer).client.cancel('x')).rejects.toMatchObject({
      code: 'internal',
      message: 'quota_exceeded: no more today',
    })
  })

  test('a read that is not answered is no unknown outcome', async () => {
    const fetchNothing = () => Promise.reject(new TypeError('no'))
    const client = createClient<typeof pawl>({ url: 'https://pawl.test', fetch: fetchNothing, pause: async () => {} })
    await expect(client.run('x')).rejects.toMatchObject({ code: 'database_unreachable' })
    await expect(client.cancel('x')).rejects.toMatchObject({ code: 'unknown_outcome' })
  })

  test('what surely never left is not unknown, unless a reply was lost before', async () => {
    const refused = new TypeError('fetch failed', { cause: Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }) })
    const failures: Error[] = [refused]
    const fetchNothing = () => Promise.reject(failures.shift() ?? refused)
    const client = createClient<typeof pawl>({ url: 'https://pawl.test', fetch: fetchNothing, pause: async () => {} })
    const spawn = () => client.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'k' })
    await expect(spawn()).rejects.toMatchObject({ code: 'database_unreachable', kind: 'unreachable' })
    failures.push(new TypeError('reset'))
    await expect(spawn()).rejects.toMatchObject({ code: 'unknown_outcome', kind: 'unknown' })
  })

  test('sends what the API takes, where it is mounted', async () => {
    const sent: { url: string; init: RequestInit }[] = []
    const fetchOnce = async (url: string, init: RequestInit) => {
      sent.push({ url, init })
      return created()
    }
    const client = createClient<typeof pawl>({ url: 'https://pawl.test/base/', key: 'secret', tenant: 'acme', fetch: fetchOnce })
    await client.spawn('add', { a: 1, b: 2 }, { delay: 90_000, idempotencyKey: 'k' })
    expect(sent[0]?.url).toBe('https://pawl.test/base/v1/runs')
    expect(sent[0]?.init.headers).toEqual({
      accept: 'application/json',
      authorization: 'Bearer secret',
      'content-type': 'application/json',
      'idempotency-key': '"k"',
      'pawl-tenant': 'acme',
    })
    expect(JSON.parse(String(sent[0]?.init.body))).toEqual({ definition: 'add', input: { a: 1, b: 2 }, delay: '90s' })
    await expect(client.spawn('add', { a: 1, b: 2 }, { idempotencyKey: 'schlüssel' })).rejects.toMatchObject({
      code: 'invalid_request',
    })
  })

  test('refuses a url that is none', () => {
    expect(() => createClient<typeof pawl>({ url: '/pawl' })).toThrow(expect.objectContaining({ code: 'invalid_configuration' }))
  })
})
