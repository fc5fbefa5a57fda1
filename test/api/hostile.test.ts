import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ApiSubject, apiSubject, type Sent } from './subject.ts'

const NUL = '\u0000'
const LONE = '\ud800'
const SQL = `'; DROP TABLE pawl.runs; --`
const UNKNOWN = '00000000-0000-7000-8000-00000000dead'

/** JSON text as it is: what no serialiser of ours would write. */
const text = (raw: string): Sent => ({ raw, headers: { 'content-type': 'application/json' } })
const json = (body: unknown): Sent => ({ body })
const greet = (more: object): Sent => json({ definition: 'greet', input: { name: 'x' }, ...more })
const signal = (more: object): Sent => json({ to: { id: UNKNOWN }, name: 'paid', payload: { cents: 1 }, ...more })

/** What must be refused by any route that takes a body. */
const bodies: readonly [string, Sent][] = [
  ['no JSON', text('{')],
  ['an empty text', text(' ')],
  ['a trailing comma', text('{"definition":"greet",}')],
  ['two values', text('{}{}')],
  ['a list', text('[]')],
  ['a text', text('"x"')],
  ['null', text('null')],
  ['an unknown field', json({ nope: 1 })],
  ['a __proto__ field', text('{"__proto__":{"definition":"greet"}}')],
  ['a constructor field', json({ constructor: { prototype: 1 } })],
  ['deep nesting', text(`${'['.repeat(100_000)}${']'.repeat(100_000)}`)],
  ['deep nesting in a field', text(`{"input":${'{"a":'.repeat(300)}1${'}'.repeat(300)}}`)],
  ['no UTF-8', { raw: new Uint8Array([0x7b, 0xff, 0xfe, 0x7d]), headers: { 'content-type': 'application/json' } }],
  ['UTF-16', { raw: new Uint8Array([0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00]), headers: { 'content-type': 'application/json' } }],
  ['another charset', { raw: '{}', headers: { 'content-type': 'application/json; charset=latin1' } }],
  ['a form', { raw: 'a=1', headers: { 'content-type': 'application/x-www-form-urlencoded' } }],
  ['plain text', { raw: '{}', headers: { 'content-type': 'text/plain' } }],
  ['no content type', { raw: new Blob(['{}']) }],
  ['compression', { raw: '{}', headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' } }],
  ['an unknown query parameter', { ...json({}), headers: { 'x-query': '?nope=1' } }],
]

const routes: readonly [string, string][] = [
  ['POST', '/v1/runs'],
  ['POST', '/v1/runs/batch'],
  ['POST', '/v1/signals'],
  ['POST', '/v1/api-keys'],
  ['POST', `/v1/runs/${UNKNOWN}/cancel`],
  ['POST', `/v1/runs/${UNKNOWN}/retry`],
  ['POST', `/v1/runs/${UNKNOWN}/resolve`],
  ['POST', '/v1/tick'],
]

const spawns: readonly [string, Sent][] = [
  ...['definition', 'key', 'queue'].flatMap((field): [string, Sent][] => [
    [`${field}: a number`, greet({ [field]: 1 })],
    [`${field}: null`, greet({ [field]: null })],
    [`${field}: a list`, greet({ [field]: ['greet'] })],
    [`${field}: an object`, greet({ [field]: { $gt: '' } })],
    [`${field}: empty`, greet({ [field]: '' })],
    [`${field}: with NUL`, greet({ [field]: `a${NUL}b` })],
    [`${field}: a lone surrogate`, text(`{"definition":"greet","input":{"name":"x"},"${field}":"\\ud800"}`)],
    [`${field}: with a line break`, greet({ [field]: 'a\nb' })],
    [`${field}: too long`, greet({ [field]: 'a'.repeat(513) })],
  ]),
  ['definition: SQL', greet({ definition: SQL })],
  ['definition: __proto__', greet({ definition: '__proto__' })],
  ['definition: constructor', greet({ definition: 'constructor' })],
  ['definition: missing', json({ input: {} })],
  ['version: a text', greet({ version: '1' })],
  ['version: 0', greet({ version: 0 })],
  ['version: 1.5', greet({ version: 1.5 })],
  ['version: beyond int4', greet({ version: 2 ** 31 })],
  ['priority: beyond int2', greet({ priority: 40_000 })],
  ['priority: a text', greet({ priority: 'high' })],
  ['maxAttempts: 0', greet({ maxAttempts: 0 })],
  ['maxAttempts: negative', greet({ maxAttempts: -1 })],
  ['delay: a number', greet({ delay: 5 })],
  ['delay: without a unit', greet({ delay: '5' })],
  ['delay: negative', greet({ delay: '-5s' })],
  ['delay: SQL', greet({ delay: SQL })],
  ['delay: a thousand years', greet({ delay: '400000 days' })],
  ['at: no instant', greet({ at: 'tomorrow' })],
  ['at: without an offset', greet({ at: '2026-11-30T12:00:00' })],
  ['at: an impossible day', greet({ at: '2026-13-45T12:00:00Z' })],
  ['at: a number', greet({ at: 1_700_000_000 })],
  ['delay and at', greet({ delay: '1s', at: '2026-11-30T12:00:00Z' })],
  ['id: no UUID', greet({ id: 'x' })],
  ['id: SQL', greet({ id: SQL })],
  ['id: upper case', greet({ id: '00000000-0000-7000-8000-00000000DEAD' })],
  ['id: looks like a key', greet({ id: `pawl_${'A'.repeat(43)}` })],
  ['tags: a text', greet({ tags: 'a' })],
  ['tags: of numbers', greet({ tags: [1] })],
  ['tags: too many', greet({ tags: Array.from({ length: 33 }, (_, n) => `t${n}`) })],
  ['tags: with NUL', greet({ tags: [NUL] })],
  ['tags: the separator of ours', greet({ tags: ['a\u001fb'] })],
  ['headers: of numbers', greet({ headers: { a: 1 } })],
  ['headers: a list', greet({ headers: ['a'] })],
  ['headers: a name that is none', greet({ headers: { 'a b': 'x' } })],
  ['headers: a line break', greet({ headers: { a: 'x\r\ny: z' } })],
  ['input: of another type', json({ definition: 'greet', input: 7 })],
  ['input: missing', json({ definition: 'greet' })],
  ['input: NUL in a text', json({ definition: 'echo', input: { a: [`x${NUL}`] } })],
  ['input: a lone surrogate in a text', text(`{"definition":"echo","input":["${'\\ud800'}"]}`)],
  ['input: a lone surrogate in a name', text('{"definition":"echo","input":{"\\udfff":1}}')],
  ['input: __proto__', text('{"definition":"echo","input":{"__proto__":{"a":1}}}')],
  ['input: a number beyond double', text('{"definition":"echo","input":1e400}')],
  ['input: an integer that would be rounded', text('{"definition":"echo","input":9007199254740993}')],
  ['an unknown field with a hostile name', json({ definition: 'greet', input: { name: 'x' }, [`${SQL}/~${LONE}`]: 1 })],
  ['Idempotency-Key: too long', { ...greet({}), headers: { 'idempotency-key': 'k'.repeat(513) } }],
  ['Idempotency-Key: empty', { ...greet({}), headers: { 'idempotency-key': '' } }],
  ['Pawl-Tenant: __proto__', { ...greet({}), headers: { 'pawl-tenant': '__proto__' } }],
]

const signals: readonly [string, Sent][] = [
  ['to: missing', json({ name: 'paid' })],
  ['to: a text', signal({ to: UNKNOWN })],
  ['to: id and key', signal({ to: { id: UNKNOWN, key: 'k' } })],
  ['to: nothing', signal({ to: {} })],
  ['to: an id of another type', signal({ to: { id: 7 } })],
  ['to: an id that is SQL', signal({ to: { id: SQL } })],
  ['to: a key with NUL', signal({ to: { key: NUL } })],
  ['to: an unknown definition', signal({ to: { key: 'k', definition: SQL } })],
  ['name: SQL', signal({ name: SQL })],
  ['name: __proto__', signal({ name: '__proto__' })],
  ['name: constructor', signal({ name: 'constructor' })],
  ['payload: of another type', signal({ payload: { cents: {} } })],
]

const keys: readonly [string, Sent][] = [
  ['no scope', json({ name: 'x', scopes: [] })],
  ['an unknown scope', json({ name: 'x', scopes: ['root'] })],
  ['scopes: a text', json({ name: 'x', scopes: 'admin' })],
  ['name: NUL', json({ name: NUL, scopes: ['admin'] })],
  ['tenant: a line break', json({ name: 'x', scopes: ['admin'], tenant: 'a\nb' })],
  ['a hash of its own', json({ name: 'x', scopes: ['admin'], hash: 'x' })],
  ['an expiry in the past', json({ name: 'x', scopes: ['admin'], expiresAt: '2020-01-01T00:00:00Z' })],
]

const queries: readonly [string, string][] = [
  ['status', 'done'],
  ['status', 'pending,'],
  ['status', SQL],
  ['definition', NUL],
  ['queue', ''],
  ['key', NUL],
  ['tag', ''],
  ['parent', SQL],
  ['since', 'yesterday'],
  ['until', '2026'],
  ['limit', '0'],
  ['limit', '501'],
  ['limit', '1e2'],
  ['limit', '-1'],
  ['nope', '1'],
  ['cursor', ''],
  ['cursor', SQL],
  ['cursor', btoa('["lane"]')],
  ['cursor', btoa('["lane","1","x"]')],
  ['cursor', btoa('["lane","-1","1"]')],
  ['cursor', btoa(`["lane","${'9'.repeat(19)}","1"]`)],
  ['cursor', btoa('["parent","1","1"]').replaceAll('=', '')],
  ['cursor', btoa('{"lane":1}').replaceAll('=', '')],
  ['cursor', 'A'.repeat(10_000)],
]

describe('hostile input', () => {
  let subject: ApiSubject
  let before: Readonly<Record<string, number>>
  beforeAll(async () => {
    subject = await apiSubject()
    await subject.send('POST', '/v1/runs', { body: { definition: 'greet', input: { name: 'first' } } })
    before = await subject.countRows()
  })
  afterAll(() => subject.close())

  /** Refused as a problem with a code, and not one row more or less in any table. */
  const refuses = async (method: string, path: string, sent: Sent) => {
    const { 'x-query': query = '', ...headers } = sent.headers ?? {}
    const { status, body, headers: answered } = await subject.send(method, `${path}${query}`, { ...sent, headers })
    expect(status).toBeGreaterThanOrEqual(400)
    expect(status).toBeLessThan(500)
    expect(answered.get('content-type')).toBe('application/problem+json')
    expect(body).toMatchObject({
      status,
      code: expect.stringMatching(/^[a-z_]+$/),
      title: expect.any(String),
      detail: expect.any(String),
    })
    expect(JSON.stringify(body).length).toBeLessThan(40_000)
    expect(await subject.countRows()).toEqual(before)
    return body
  }

  describe.each(routes)('%s %s', (method, path) => {
    test.each(bodies)('refuses %s', async (_, sent) => {
      await refuses(method, path, sent)
    })
  })

  test.each(spawns)('a spawn with %s is refused', async (_, sent) => {
    await refuses('POST', '/v1/runs', sent)
  })

  test.each(spawns.filter(([, sent]) => sent.body !== undefined && sent.headers === undefined))(
    'a batch whose only item has %s writes nothing',
    async (_, sent) => {
      const { status, body } = await subject.send('POST', '/v1/runs/batch', { body: { runs: [sent.body] } })
      const [item] = (body.items ?? []) as { error?: { code: string } }[]
      expect(status === 200 ? item?.error?.code : body.code).toMatch(/^[a-z_]+$/)
      expect(await subject.countRows()).toEqual(before)
    },
  )

  test.each(signals)('a signal with %s is refused', async (_, sent) => {
    await refuses('POST', '/v1/signals', sent)
  })

  test.each(keys)('an API key with %s is refused', async (_, sent) => {
    await refuses('POST', '/v1/api-keys', sent)
  })

  test.each(queries)('a list with %s=%s is refused', async (name, value) => {
    const body = await refuses('GET', `/v1/runs?${name}=${encodeURIComponent(value)}`, {})
    expect(body.code).toBe(name === 'cursor' ? 'malformed' : 'invalid_request')
  })

  test('a cursor of one list is refused by another', async () => {
    for (const name of ['a', 'b']) await subject.send('POST', '/v1/runs', { body: { definition: 'greet', input: { name } } })
    before = await subject.countRows()
    const { body } = await subject.send('GET', '/v1/runs?limit=1')
    await refuses('GET', `/v1/runs?key=x&cursor=${body.nextCursor}`, {})
    await refuses('GET', `/v1/runs/${UNKNOWN}/history?cursor=${body.nextCursor}`, {})
  })

  const ids = [
    SQL,
    NUL,
    '%',
    '..',
    'a'.repeat(5_000),
    `pawl_${'A'.repeat(43)}`,
    '\u{1f600}',
    UNKNOWN,
    `${UNKNOWN}'`,
    UNKNOWN.toUpperCase(),
  ]
  test.each(ids)('an id %j is a run that there is not', async (id) => {
    const path = `/v1/runs/${encodeURIComponent(id)}`
    for (const [method, rest] of [
      ['GET', ''],
      ['GET', '/history'],
      ['POST', '/cancel'],
      ['POST', '/retry'],
    ] as const) {
      const body = await refuses(method, `${path}${rest}`, {})
      // ".." is taken out of the path before we see it
      if (id !== '..') expect(body.code).toBe('not_found')
    }
  })

  test.each([
    ['wait', '20'],
    ['wait', '-1s'],
    ['wait', SQL],
    ['nope', '1'],
  ])('a run asked for with %s=%s is refused', async (name, value) => {
    await refuses('GET', `/v1/runs/${UNKNOWN}?${name}=${encodeURIComponent(value)}`, {})
  })

  test('SQL and every script of the world in what may be any text are kept as they are', async () => {
    const name = `${SQL} " \\ % _ \u{1f600} e\u0301 \u202e \ufeff \u0085x`
    const spawned = await subject.send('POST', '/v1/runs', {
      body: { definition: 'greet', input: { name }, key: `k ${SQL}`, tags: [SQL], queue: `q${SQL}` },
    })
    expect(spawned.status).toBe(201)
    const read = await subject.send('GET', `/v1/runs/${spawned.body.id}`)
    expect(read.body).toMatchObject({ input: { name }, key: `k ${SQL}`, tags: ['hello', SQL], queue: `q${SQL}` })
    for (const [filter, value] of [
      ['key', `k ${SQL}`],
      ['tag', SQL],
      ['queue', `q${SQL}`],
    ] as const) {
      const { body } = await subject.send('GET', `/v1/runs?${filter}=${encodeURIComponent(value)}`)
      expect(body.items).toMatchObject([{ id: spawned.body.id }])
    }
  })
})

describe('a body that is too large', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject()
  })
  afterAll(() => subject.close())

  /** A stream of JSON that never ends by itself; says how much of it was taken. */
  const endless = (chunkBytes: number, limitBytes: number) => {
    let taken = 0
    let cancelled = false
    const chunk = new TextEncoder().encode(' '.repeat(chunkBytes))
    const stream = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        if (taken >= limitBytes) return controller.close()
        taken += chunkBytes
        controller.enqueue(chunk)
      },
      cancel: () => {
        cancelled = true
      },
    })
    return { stream, taken: () => taken, cancelled: () => cancelled }
  }

  test.each([
    ['/v1/runs', ''],
    ['/v1/runs/batch', ''],
    ['/v1/signals', ''],
    ['/hooks/greetings', ''],
    ['/v1/runs', '17'],
  ])('is given up at 4 MiB while it is read, by %s, whatever its length claims (%s)', async (path, claimed) => {
    const body = endless(65_536, 10 * 1_048_576)
    const before = await subject.countRows()
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      ...(claimed ? { 'content-length': claimed } : {}),
    }
    const { status, body: problem } = await subject.send('POST', path, { raw: body.stream, headers })
    expect([status, problem.code]).toEqual([413, 'payload_too_large'])
    expect(body.taken()).toBeLessThan(4_194_304 + 4 * 65_536)
    expect(body.cancelled()).toBe(true)
    expect(await subject.countRows()).toEqual(before)
  })

  test('is not read at all when its length says so', async () => {
    const body = endless(65_536, 10 * 1_048_576)
    const headers = { 'content-type': 'application/json', 'content-length': '4194305' }
    expect((await subject.send('POST', '/v1/runs', { raw: body.stream, headers })).status).toBe(413)
    expect(body.taken()).toBeLessThanOrEqual(65_536)
  })

  test('by one item too many is 413 too_many_items', async () => {
    const runs = Array.from({ length: 10_001 }, () => ({ definition: 'greet' }))
    const { status, body } = await subject.send('POST', '/v1/runs/batch', { body: { runs } })
    expect([status, body.code]).toEqual([413, 'too_many_items'])
  })

  test('just within is taken', async () => {
    const raw = `{"definition":"greet","input":{"name":"x"}}${' '.repeat(4_194_304 - 43)}`
    expect(raw.length).toBe(4_194_304)
    expect((await subject.send('POST', '/v1/runs', { raw, headers: { 'content-type': 'application/json' } })).status).toBe(201)
  })

  test('breaking off is 400, and nothing is written', async () => {
    const before = await subject.countRows()
    const stream = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(new TextEncoder().encode('{"definition":')),
      pull: (controller) => controller.error(new Error('gone')),
    })
    const answer = await subject.send('POST', '/v1/runs', { raw: stream, headers: { 'content-type': 'application/json' } })
    expect([answer.status, answer.body.code]).toEqual([400, 'malformed'])
    expect(await subject.countRows()).toEqual(before)
  })
})
