import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { type ApiSubject, apiSubject } from './subject.ts'

const INSTANT = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)

forEachVersion('runs over HTTP', (version) => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(version)
  })
  afterAll(() => subject.close())
  const spawn = async (body: object, headers: Record<string, string> = {}) => subject.send('POST', '/v1/runs', { body, headers })
  const spawnId = async (body: object) => (await spawn(body)).body.id as string
  const get = (id: string, query = '') => subject.send('GET', `/v1/runs/${id}${query}`)

  test('C001 a spawn answers 201 with the id, and the run is pending with attempt 0', async () => {
    const { status, body, headers } = await spawn({ definition: 'greet', input: { name: 'Ada' } })
    expect(status).toBe(201)
    expect(body).toEqual({ id: UUID, status: 'pending', created: true })
    expect(headers.get('location')).toBe(`runs/${body.id}`)
    const run = await get(body.id as string)
    expect(run.status).toBe(200)
    expect(run.body).toEqual({
      id: body.id,
      definition: 'greet',
      version: 1,
      queue: 'hellos',
      priority: 0,
      status: 'pending',
      step: 'run',
      visit: 1,
      attempt: 0,
      maxAttempts: 10,
      losses: 0,
      snoozes: 0,
      input: { name: 'Ada' },
      headers: {},
      tags: ['hello'],
      createdAt: INSTANT,
      updatedAt: INSTANT,
      availableAt: INSTANT,
    })
  })

  test('C205 everything that a spawn may say is kept and shown', async () => {
    const at = new Date(Date.now() + 3_600_000).toISOString()
    const id = await spawnId({
      definition: 'greet',
      version: 1,
      input: { name: 'Grace' },
      key: 'greeting:1',
      queue: 'slow',
      priority: -3,
      at,
      maxAttempts: 4,
      tags: ['vip'],
      headers: { Tenant: 'x' },
    })
    expect((await get(id)).body).toMatchObject({
      key: 'greeting:1',
      queue: 'slow',
      priority: -3,
      scheduledFor: at,
      availableAt: at,
      maxAttempts: 4,
      tags: ['hello', 'vip'],
      headers: { tenant: 'x' },
    })
    const again = await spawn({ definition: 'greet', input: { name: 'Other' }, key: 'greeting:1' })
    expect(again.status).toBe(200)
    expect(again.body).toEqual({ id, status: 'pending', created: false })
  })

  test('a spawn costs one request, and so does reading a run', async () => {
    const { database } = subject.engine
    const id = await spawnId({ definition: 'greet', input: { name: 'Ada' } })
    const before = database.requests
    await spawn({ definition: 'greet', input: { name: 'Ada' } })
    expect(database.requests - before).toBe(1)
    await get(id)
    expect(database.requests - before).toBe(2)
  })

  test('C028 the caller’s trace goes on in the run, and another trace is the same request', async () => {
    const body = { definition: 'greet', input: { name: 'Ada' } }
    const trace = (n: number) => `00-${String(n).padStart(32, '0')}-00f067aa0ba902b7-01`
    const first = await spawn(body, { 'idempotency-key': 'traced', traceparent: trace(1), tracestate: 'shop=7' })
    const second = await spawn(body, { 'idempotency-key': 'traced', traceparent: trace(2) })
    expect(second.body).toEqual(first.body)
    expect((await get(first.body.id as string)).body).toMatchObject({ headers: { traceparent: trace(1), tracestate: 'shop=7' } })
    const own = await spawnId({ ...body, headers: { traceparent: trace(3) } })
    expect((await get(own)).body).toMatchObject({ headers: { traceparent: trace(3) } })
  })

  test('C014 C015 the same request under one Idempotency-Key is one run, answered as the first time even after it ended', async () => {
    const body = { definition: 'greet', input: { name: 'Once' } }
    const first = await spawn(body, { 'idempotency-key': 'once' })
    expect(first.status).toBe(201)
    expect(first.headers.get('idempotent-replayed')).toBeNull()
    await subject.engine.tick()
    expect((await get(first.body.id as string)).body.status).toBe('completed')
    const again = await spawn(body, { 'idempotency-key': '"once"' })
    expect([again.status, again.body]).toEqual([201, first.body])
    expect(again.headers.get('idempotent-replayed')).toBe('true')
  })

  test('C016 another request under a used Idempotency-Key is 422 and writes nothing', async () => {
    await spawn({ definition: 'greet', input: { name: 'A' } }, { 'idempotency-key': 'used' })
    const before = await subject.countRows()
    const other = await spawn({ definition: 'greet', input: { name: 'B' } }, { 'idempotency-key': 'used' })
    expect([other.status, other.body.code]).toEqual([422, 'idempotency_mismatch'])
    expect(await subject.countRows()).toEqual(before)
  })

  test('C025 a payload one byte beyond the limit is 413, and nothing is written', async () => {
    const before = await subject.countRows()
    // the quotes are two bytes
    const atLimit = await spawn({ definition: 'echo', input: 'x'.repeat(1_048_574), queue: 'large' })
    expect(atLimit.status).toBe(201)
    const beyond = await spawn({ definition: 'echo', input: 'x'.repeat(1_048_575) })
    expect([beyond.status, beyond.body.code]).toEqual([413, 'payload_too_large'])
    expect(beyond.body.errors?.[0]?.pointer).toBe('/input')
    const after = await subject.countRows()
    expect(after.runs).toBe((before.runs ?? 0) + 1)
  })

  test('C026 an input that does not match its schema is 422 with pointers into the body, and nothing is written', async () => {
    const before = await subject.countRows()
    const { status, body, headers } = await spawn({ definition: 'greet', input: { name: 7, times: 1.5 } })
    expect(status).toBe(422)
    expect(headers.get('content-type')).toBe('application/problem+json')
    expect(body).toMatchObject({
      type: 'urn:pawl:problem:invalid_input',
      title: 'The input does not match its schema or cannot be stored.',
      status: 422,
      code: 'invalid_input',
      field: 'input',
    })
    expect(body.errors?.map(({ pointer }) => pointer)).toEqual(['/input/name', '/input/times'])
    expect(await subject.countRows()).toEqual(before)
  })

  test('C029 an unknown definition is refused unless queue and version are said', async () => {
    const refused = await spawn({ definition: 'nobody' })
    expect([refused.status, refused.body.code, refused.body.errors?.[0]?.pointer]).toEqual([
      422,
      'unknown_definition',
      '/definition',
    ])
    expect((await spawn({ definition: 'greet', version: 9 })).body.errors?.[0]?.pointer).toBe('/version')
    expect((await spawn({ definition: 'of-another-build', queue: 'elsewhere', version: 2 })).status).toBe(201)
  })

  test('C031 a list by tag has only the tagged, newest first, in pages', async () => {
    const ids: string[] = []
    for (let n = 0; n < 5; n += 1) {
      ids.unshift(await spawnId({ definition: 'greet', input: { name: `n${n}` }, tags: ['listed'] }))
      await spawnId({ definition: 'greet', input: { name: `n${n}` }, tags: ['other'] })
    }
    const found: unknown[] = []
    let cursor = ''
    for (let pages = 0; pages < 3; pages += 1) {
      const { status, body } = await subject.send('GET', `/v1/runs?tag=listed&limit=2${cursor && `&cursor=${cursor}`}`)
      expect(status).toBe(200)
      found.push(...(body.items as { id: string }[]).map(({ id }) => id))
      cursor = body.nextCursor as string
    }
    expect(found).toEqual(ids)
    expect(cursor).toBeNull()
  })

  test('a run in a list has no payloads', async () => {
    const { body } = await subject.send('GET', '/v1/runs?limit=1')
    const [item] = body.items as object[]
    expect(Object.keys(item ?? {})).not.toEqual(expect.arrayContaining(['input']))
    expect(Object.keys(item ?? {})).toEqual(expect.arrayContaining(['id', 'status', 'tags', 'createdAt']))
  })

  test('a batch is answered item by item, in order, and one that is refused leaves the others alone', async () => {
    const runs = [
      { definition: 'greet', input: { name: 'a' }, key: 'batch:1' },
      { definition: 'greet', input: { name: 1 } },
      { definition: 'greet', input: { name: 'b' }, key: 'batch:1' },
      { definition: 'greet', nope: 1 },
      'text',
    ]
    const before = subject.engine.database.requests
    const { status, body } = await subject.send('POST', '/v1/runs/batch', { body: { runs } })
    expect(subject.engine.database.requests - before).toBe(1)
    expect(status).toBe(200)
    const items = body.items as { id?: string; created?: boolean; error?: { code: string; errors: { pointer: string }[] } }[]
    expect(items).toHaveLength(5)
    expect(items[0]).toEqual({ id: UUID, status: 'pending', created: true })
    expect(items[2]).toEqual({ id: items[0]?.id, status: 'pending', created: false })
    expect(items.map(({ error }) => error?.errors[0]?.pointer)).toEqual([
      undefined,
      '/runs/1/input/name',
      undefined,
      '/runs/3/nope',
      '/runs/4',
    ])
    expect(items.map(({ error }) => error?.code)).toEqual([
      undefined,
      'invalid_input',
      undefined,
      'invalid_request',
      'invalid_request',
    ])
  })

  test('a batch under an Idempotency-Key is replayed as a whole', async () => {
    const body = { runs: [1, 2].map((n) => ({ definition: 'greet', input: { name: `r${n}` } })) }
    const headers = { 'idempotency-key': 'whole' }
    const first = await subject.send('POST', '/v1/runs/batch', { body, headers })
    const again = await subject.send('POST', '/v1/runs/batch', { body, headers })
    expect(again.body).toEqual(first.body)
    expect([first, again].map((answer) => answer.headers.get('idempotent-replayed'))).toEqual([null, 'true'])
  })

  test('C192 every state of a run can be told apart, and an unknown one is 404', async () => {
    const done = await spawnId({ definition: 'echo', input: null })
    const failed = await spawnId({ definition: 'fails' })
    const waiting = await spawnId({ definition: 'order', input: { order: 192 } })
    const cancelled = await spawnId({ definition: 'greet', input: { name: 'x' }, delay: '1h' })
    await subject.send('POST', `/v1/runs/${cancelled}/cancel`)
    await subject.engine.tick()
    expect((await get(done)).body).toMatchObject({ status: 'completed', result: null, attempt: 1, finishedAt: INSTANT })
    expect((await get(failed)).body).toMatchObject({ status: 'failed', error: { message: 'as told' }, attempt: 1 })
    expect((await get(failed)).body).not.toHaveProperty('result')
    expect((await get(waiting)).body).toMatchObject({ status: 'waiting', state: { order: 192 } })
    expect((await get(cancelled)).body).toMatchObject({ status: 'cancelled' })
    for (const id of ['00000000-0000-7000-8000-000000000000', 'not-an-id']) {
      const { status, body } = await get(id)
      expect([status, body.code]).toEqual([404, 'not_found'])
    }
    const parts = ['completed', 'failed', 'waiting', 'cancelled', 'pending'].map((status) =>
      subject.send('GET', `/v1/runs?status=${status}`),
    )
    for (const { body } of await Promise.all(parts)) expect((body.items as unknown[]).length).toBeGreaterThan(0)
  })

  test('C193 C194 a request that waits is answered when the run ends, and with the run as it is when its time is over', async () => {
    const id = await spawnId({ definition: 'echo', input: [1] })
    const waiting = get(id, '?wait=20s')
    await subject.engine.tick()
    expect((await waiting).body).toMatchObject({ id, status: 'completed', result: [1] })
    const slow = await spawnId({ definition: 'order', input: { order: 193 } })
    await subject.engine.tick()
    const early = await subject.send('GET', `/v1/runs/${slow}?wait=100ms`)
    expect([early.status, early.body.id, early.body.status]).toEqual([200, slow, 'waiting'])
    const preferred = await subject.send('GET', `/v1/runs/${slow}`, { headers: { prefer: 'respond-async, wait=0' } })
    expect(preferred.headers.get('preference-applied')).toBe('wait=0')
    await subject.send('POST', '/v1/signals', { body: { to: { id: slow }, name: 'paid', payload: { cents: 5 } } })
    await subject.engine.tick()
    expect((await get(slow)).body).toMatchObject({ status: 'completed', result: { cents: 5 } })
  })

  test('C195 a parked run shows what it waits for and until when; a busy one does not', async () => {
    const id = await spawnId({ definition: 'order', input: { order: 195 } })
    expect((await get(id)).body).not.toHaveProperty('waitingFor')
    await subject.engine.tick()
    const { body } = await get(id)
    expect(body).toMatchObject({ status: 'waiting', waitingFor: { kind: 'signals', names: ['paid'], until: INSTANT } })
    expect((body.waitingFor as { until: string }).until).toBe(body.availableAt)
  })

  test('C265 a poll of an unchanged run is 304, says when to come back, and an answer that is final may be kept for ever', async () => {
    const id = await spawnId({ definition: 'echo', input: 1, delay: '90s' })
    const first = await get(id)
    expect(first.headers.get('cache-control')).toBe('private, no-cache')
    expect(Number(first.headers.get('retry-after'))).toBeGreaterThan(85)
    expect(Number(first.headers.get('retry-after'))).toBeLessThanOrEqual(90)
    const tag = first.headers.get('etag') ?? ''
    const poll = (etag: string) => subject.send('GET', `/v1/runs/${id}`, { headers: { 'if-none-match': etag } })
    const unchanged = await poll(`W/${tag}, "other"`)
    expect([unchanged.status, unchanged.text, unchanged.headers.get('etag')]).toEqual([304, '', tag])
    await subject.send('POST', `/v1/runs/${id}/cancel`)
    const changed = await poll(tag)
    expect([changed.status, changed.body.status]).toEqual([200, 'cancelled'])
    expect(changed.headers.get('cache-control')).toBe('private, max-age=31536000, immutable')
    expect(changed.headers.get('retry-after')).toBeNull()
    expect((await poll(changed.headers.get('etag') ?? '')).status).toBe(304)
  })

  test('the history of a run is paged in order', async () => {
    const id = await spawnId({ definition: 'order', input: { order: 70 } })
    await subject.engine.tick()
    await subject.send('POST', '/v1/signals', { body: { to: { id }, name: 'paid', payload: { cents: 1 } } })
    await subject.engine.tick()
    const first = await subject.send('GET', `/v1/runs/${id}/history?limit=1`)
    expect(first.body.items).toEqual([
      expect.objectContaining({ step: 'wait', outcome: 'wait', attempt: 1, startedAt: INSTANT, finishedAt: INSTANT }),
    ])
    const second = await subject.send('GET', `/v1/runs/${id}/history?limit=1&cursor=${first.body.nextCursor}`)
    expect(second.body).toMatchObject({ items: [{ step: 'end', outcome: 'done' }], nextCursor: null })
    expect((await subject.send('GET', `/v1/runs/${UUID_UNKNOWN}/history`)).status).toBe(404)
  })

  test('cancel and retry say what they did, and say it again when asked again', async () => {
    const id = await spawnId({ definition: 'greet', input: { name: 'x' } })
    const cancel = () => subject.send('POST', `/v1/runs/${id}/cancel`, { body: {} })
    expect((await cancel()).body).toEqual({ id, did: 'cancelled', status: 'cancelled' })
    expect((await cancel()).body).toEqual({ id, did: 'already_cancelled', status: 'cancelled' })
    const retried = await subject.send('POST', `/v1/runs/${id}/retry`)
    expect(retried.body).toEqual({ id, did: 'retried', status: 'pending' })
    expect(retried.headers.get('location')).toBe(`../${id}`)
    const refused = await subject.send('POST', `/v1/runs/${id}/retry`)
    expect([refused.status, refused.body.code]).toEqual([409, 'not_retryable'])
    for (const verb of ['cancel', 'retry'])
      expect((await subject.send('POST', `/v1/runs/${UUID_UNKNOWN}/${verb}`)).status).toBe(404)
  })

  test('C174 C177 a cancellation says who and why: in its answer, in the error of the run, and in its history', async () => {
    const id = await spawnId({ definition: 'greet', input: { name: 'x' }, delay: '1h' })
    const body = { reason: 'ordered twice' }
    const { body: answer } = await subject.send('POST', `/v1/runs/${id}/cancel`, { body })
    expect(answer).toEqual({ id, did: 'cancelled', status: 'cancelled' })
    const { body: run } = await subject.send('GET', `/v1/runs/${id}`)
    expect(run.error).toMatchObject({ code: 'cancelled', cause: 'cancelled', reason: 'ordered twice', by: expect.any(String) })
    expect(run.error).toMatchObject(run.cancellation as object)
    expect(run.cancellation).toEqual({ by: expect.any(String), reason: 'ordered twice' })
    expect(run.cancelRequestedAt).toEqual(run.finishedAt)
    const { body: history } = await subject.send('GET', `/v1/runs/${id}/history`)
    expect(history.items).toMatchObject([{ outcome: 'cancel', error: { reason: 'ordered twice' } }])
    for (const [wrong, pointer] of [
      [{ reason: 'x'.repeat(1_001) }, '/reason'],
      [{ reasons: 'x' }, '/reasons'],
    ] as const) {
      const refused = await subject.send('POST', `/v1/runs/${id}/cancel`, { body: wrong })
      expect([refused.status, refused.body.code, refused.body.errors?.[0]?.pointer]).toEqual([422, 'invalid_request', pointer])
    }
  })

  test('C111 C112 C113 deadlines are taken with a spawn, as durations with their unit', async () => {
    const deadlines = { maxDuration: '1h', startWithin: '10m', progressWithin: '90s' }
    const id = await spawnId({ definition: 'greet', input: { name: 'x' }, ...deadlines })
    expect(await subject.engine.sql('SELECT policy FROM pawl.runs WHERE id = $1', [id])).toEqual([
      { maxTotalMs: 3_600_000, maxWaitMs: 600_000, maxIdleMs: 90_000 },
    ])
    const refused = await spawn({ definition: 'greet', input: { name: 'x' }, maxDuration: 'soon' })
    expect([refused.status, refused.body.errors?.[0]?.pointer ?? refused.body.detail]).toEqual([422, '/maxDuration'])
  })

  test('the host is told of what was committed, not of what changed nothing', async () => {
    const before = subject.kicks()
    const body = { definition: 'greet', input: { name: 'kick' }, key: 'kick' }
    await spawn(body, { 'idempotency-key': 'kick' })
    await spawn(body, { 'idempotency-key': 'kick' })
    await spawn(body)
    await spawn({ definition: 'nobody' })
    expect(subject.kicks() - before).toBe(1)
  })
})

const UUID_UNKNOWN = '00000000-0000-7000-8000-00000000dead'

describe('a host', () => {
  test('whose kick fails does not spoil the answer: it is committed', async () => {
    const subject = await apiSubject()
    try {
      const app = subject.appWith({
        kick: () => {
          throw new Error('no alarm')
        },
      })
      const response = await app.request('/v1/runs', {
        method: 'POST',
        headers: { authorization: 'Bearer root-key-of-the-tests', 'content-type': 'application/json' },
        body: '{"definition":"echo"}',
      })
      expect(response.status).toBe(201)
    } finally {
      await subject.close()
    }
  })
})
