import { Hono } from 'hono'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createApi } from '../../src/api/app.ts'
import { SCHEMA_VERSION } from '../../src/core/build.ts'
import { DatabaseError } from '../../src/core/database.ts'
import { PawlError } from '../../src/core/errors.ts'
import { type ApiSubject, apiSubject, CRON_SECRET, ROOT_KEY, sendTo } from './subject.ts'

const INSTANT = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

describe('the API', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(18, { queues: { orders: { concurrency: 7 } } })
  })
  afterAll(() => subject.close())
  const greet = { definition: 'greet', input: { name: 'x' } }

  test('says which methods a resource knows', async () => {
    const known: [string, string][] = [
      ['/v1/runs', 'GET, POST, HEAD, OPTIONS'],
      ['/v1/runs/batch', 'POST, OPTIONS'],
      ['/v1/runs/x', 'GET, HEAD, OPTIONS'],
      ['/v1/runs/x/cancel', 'POST, OPTIONS'],
      ['/v1/signals', 'POST, OPTIONS'],
      ['/v1/tick', 'GET, POST, HEAD, OPTIONS'],
      ['/v1/api-keys/x', 'DELETE, OPTIONS'],
      ['/hooks/greetings', 'POST, OPTIONS'],
      ['/healthz', 'GET, HEAD, OPTIONS'],
    ]
    for (const [path, allow] of known) {
      const options = await subject.send('OPTIONS', path, { key: null })
      expect([path, options.status, options.headers.get('allow')]).toEqual([path, 204, allow])
      const wrong = await subject.send('PATCH', path)
      expect([path, wrong.status, wrong.body.code, wrong.headers.get('allow')]).toEqual([path, 405, 'method_not_allowed', allow])
    }
    for (const path of ['/', '/v1', '/v1/nope', '/v1/runs/x/nope', '/hooks', '/hooks/a/b', '/nope']) {
      const { status, body } = await subject.send('GET', path)
      expect([path, status, body.code]).toEqual([path, 404, 'not_found'])
    }
  })

  test('answers HEAD like GET, without the body', async () => {
    const { body } = await subject.send('POST', '/v1/runs', { body: greet })
    const [get, head] = await Promise.all(['GET', 'HEAD'].map((method) => subject.send(method, `/v1/runs/${body.id}`)))
    expect([head?.status, head?.text]).toEqual([200, ''])
    expect(head?.headers.get('etag')).toBe(get?.headers.get('etag'))
    expect((await subject.send('HEAD', '/v1/tick')).status).toBe(405)
  })

  test('works below any base path of another application, which keeps the rest', async () => {
    const outer = new Hono()
    outer.route('/deep/pawl', subject.app)
    outer.get('/deep/own', (context) => context.text('own'))
    const spawned = await sendTo(outer, 'POST', '/deep/pawl/v1/runs', { body: greet })
    expect(spawned.status).toBe(201)
    const location = new URL(spawned.headers.get('location') ?? '', 'http://api.test/deep/pawl/v1/runs').pathname
    expect((await sendTo(outer, 'GET', location)).body.id).toBe(spawned.body.id)
    expect((await sendTo(outer, 'GET', '/deep/pawl/v1/nope')).body.code).toBe('not_found')
    expect((await sendTo(outer, 'POST', '/deep/pawl/v1/runs', { body: {} })).headers.get('content-type')).toBe(
      'application/problem+json',
    )
    expect((await sendTo(outer, 'GET', '/deep/own')).text).toBe('own')
    expect((await sendTo(outer, 'GET', '/elsewhere')).text).toBe('404 Not Found')
  })

  test('takes a body that an application around it has read', async () => {
    const outer = new Hono()
    outer.use(async (context, next) => {
      await context.req.text()
      await next()
    })
    outer.route('/', subject.app)
    expect((await sendTo(outer, 'POST', '/v1/runs', { body: greet })).status).toBe(201)
  })

  test('C264 a tick answers what it did and when work is next due, by GET and POST, and is never cached', async () => {
    await subject.send('POST', '/v1/runs', { body: { ...greet, delay: '1h' } })
    for (const method of ['GET', 'POST']) {
      await subject.send('POST', '/v1/runs', { body: greet })
      const { status, body, headers } = await subject.send(method, '/v1/tick', { key: CRON_SECRET })
      expect(status).toBe(200)
      expect(headers.get('cache-control')).toBe('no-store')
      expect(body).toMatchObject({ failed: 0, more: false, nextDueAt: INSTANT, elapsed: expect.stringMatching(/^\d+(ms|s)$/) })
      expect(body.completed).toBeGreaterThan(0)
    }
    expect((await subject.send('GET', '/v1/tick', { key: null })).status).toBe(401)
  })

  test('C264 health shows the last tick and the oldest work that is due, to anybody, at one request in ten seconds', async () => {
    await subject.send('POST', '/v1/tick')
    await subject.send('POST', '/v1/runs', { body: greet })
    let now = Date.now()
    const app = subject.appWith({ now: () => now })
    const { database } = subject.engine
    const before = database.requests
    const first = await sendTo(app, 'GET', '/healthz', { key: null })
    expect(first.body).toMatchObject({
      status: 'ok',
      version: '0.0.0-test',
      schemaVersion: SCHEMA_VERSION,
      now: INSTANT,
      oldestDueAt: INSTANT,
      oldestDueAge: expect.any(String),
    })
    await Promise.all(Array.from({ length: 5 }, () => sendTo(app, 'GET', '/healthz', { key: null })))
    expect(database.requests - before).toBe(1)
    now += 10_001
    await sendTo(app, 'GET', '/healthz', { key: null })
    expect(database.requests - before).toBe(2)
  })

  test('stats are read once a minute, queues each time; both show the queues of the code that are still empty', async () => {
    let now = Date.now()
    const app = subject.appWith({ now: () => now })
    const stats = () => sendTo(app, 'GET', '/v1/stats')
    const { database } = subject.engine
    const before = database.requests
    const first = await stats()
    expect(first.body).toMatchObject({ now: INSTANT, byStatus: { pending: expect.any(Number), completed: expect.any(Number) } })
    await subject.send('POST', '/v1/runs', { body: greet })
    expect((await stats()).text).toBe(first.text)
    expect(database.requests - before).toBe(2)
    now += 60_001
    const later = (await stats()).body as unknown as { byStatus: { pending: number } }
    expect(later.byStatus.pending).toBe((first.body as unknown as typeof later).byStatus.pending + 1)
    const { body } = await subject.send('GET', '/v1/queues')
    expect(body.nextCursor).toBeNull()
    expect(body.items).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: 'hellos', paused: false, depth: expect.any(Number), oldestDueAt: INSTANT }),
        expect.objectContaining({ name: 'orders', concurrency: 7, depth: 0, ready: 0, oldestDueAt: null, oldestDueAge: null }),
      ]),
    )
  })

  test('says 503 with Retry-After while the database is away, and is silent about errors it does not know', async () => {
    const logged: unknown[] = []
    const logger = {
      debug: () => {},
      info: () => {},
      warn: () => {},
      error: (message: string, fields: unknown) => logged.push([message, fields]),
    }
    const failing = (error: Error) =>
      subject.appWith({
        logger,
        calls: { ...subject.engine, spawn: () => Promise.reject(error), getRun: () => Promise.reject(error) } as never,
      })
    const away = failing(new DatabaseError('connect ECONNREFUSED 10.0.0.7:5432', { fate: 'not_sent' }))
    const refused = await sendTo(away, 'POST', '/v1/runs', { body: greet })
    expect([refused.status, refused.body.code, refused.headers.get('retry-after')]).toEqual([503, 'database_unreachable', '2'])
    expect(refused.text).not.toContain('10.0.0.7')
    const lost = failing(new DatabaseError('gone', { fate: 'lost' }))
    expect((await sendTo(lost, 'POST', '/v1/runs', { body: greet })).body.code).toBe('unknown_outcome')
    expect((await sendTo(lost, 'GET', '/v1/runs/x')).body.code).toBe('database_unreachable')
    const broken = await sendTo(failing(new TypeError('secret of the inside')), 'POST', '/v1/runs', { body: greet })
    expect([broken.status, broken.body.code]).toEqual([500, 'internal'])
    expect(broken.text).not.toContain('secret')
    expect(logged).toHaveLength(4)
    const slow = await sendTo(failing(new PawlError('too_many_requests', 'x', { retryAfterMs: 6_200 })), 'GET', '/v1/runs/x')
    expect([slow.status, slow.headers.get('retry-after')]).toEqual([429, '7'])
  })

  test('a host that cannot give a database says why', async () => {
    const app = createApi(() => {
      throw new PawlError('not_connected', 'No database was given.')
    })
    expect((await sendTo(app, 'GET', '/v1/runs')).body).toMatchObject({ status: 500, code: 'not_connected' })
  })

  test('what a host gives per request is what that request works with', async () => {
    const outer = new Hono<{ Bindings: { version: string } }>()
    outer.route(
      '/',
      createApi((http) => ({
        calls: {} as never,
        store: subject.engine.store,
        registry: subject.engine.registry,
        access: { open: true },
        env: http.env,
        build: { version: (http.env as { version: string }).version },
      })),
    )
    const versions = await Promise.all(
      ['1', '2'].map(async (version) => (await (await outer.request('/healthz', {}, { version })).json()).version),
    )
    expect(versions).toEqual(['1', '2'])
    expect((await outer.request('/v1/tick', { headers: { authorization: `Bearer ${ROOT_KEY}` } }, { version: '1' })).status).toBe(
      401,
    )
  })
})
