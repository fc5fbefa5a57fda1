import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { signDelivery } from '../../src/core/delivery.ts'
import { type ApiSubject, apiSubject, HOOK_SECRET } from './subject.ts'

describe('webhooks', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject()
  })
  afterAll(() => subject.close())

  interface Given {
    readonly scheme?: 'standard' | 'github'
    readonly secret?: string
    readonly now?: Date
    readonly headers?: Record<string, string>
  }
  const deliver = async (name: string, deliveryId: string, body: unknown, given: Given = {}) => {
    const { scheme = 'standard', secret = HOOK_SECRET, now = new Date(), headers = {} } = given
    const raw = JSON.stringify(body)
    const signature = await signDelivery({ deliveryId, rawBody: new TextEncoder().encode(raw), secret, now, scheme })
    const sent = { raw, key: null, headers: { 'content-type': 'application/json', ...signature, ...headers } }
    return subject.send('POST', `/hooks/${name}`, sent)
  }

  test('C206 a signed delivery spawns, without any API key', async () => {
    const { status, body } = await deliver('greetings', 'msg_1', { who: 'Ada' })
    expect(status).toBe(202)
    expect(body).toEqual({ id: expect.any(String), created: true, replayed: false })
    await subject.engine.tick()
    expect((await subject.send('GET', `/v1/runs/${body.id}`)).body).toMatchObject({
      definition: 'greet',
      result: { greeting: 'hello Ada' },
    })
  })

  test('C206 a signed delivery signals', async () => {
    const order = await subject.send('POST', '/v1/runs', { body: { definition: 'order', input: { order: 206 } } })
    await subject.engine.tick()
    const { status, body } = await deliver('payments', 'gh-1', { order: 206, cents: 7 }, { scheme: 'github' })
    expect([status, body]).toEqual([202, { id: expect.any(String), runId: order.body.id, replayed: false }])
    await subject.engine.tick()
    expect((await subject.send('GET', `/v1/runs/${order.body.id}`)).body).toMatchObject({ result: { cents: 7 } })
    expect((await deliver('payments', 'gh-2', { order: 999, cents: 7 }, { scheme: 'github' })).body.code).toBe('no_target')
  })

  test('C206 a delivery with a bad signature, or none, or too old, is 401 and does nothing', async () => {
    const before = await subject.countRows()
    const refused = await Promise.all([
      deliver('greetings', 'msg_2', { who: 'Eve' }, { secret: 'another' }),
      deliver('greetings', 'msg_2', { who: 'Eve' }, { headers: { 'webhook-signature': 'v1,AAAA' } }),
      deliver('greetings', 'msg_2', { who: 'Eve' }, { now: new Date(Date.now() - 600_000) }),
      subject.send('POST', '/hooks/greetings', { body: { who: 'Eve' } }),
    ])
    expect(refused.map(({ status, body }) => [status, body.code])).toEqual(Array(4).fill([401, 'bad_signature']))
    expect(await subject.countRows()).toEqual(before)
  })

  test('C207 a delivery that comes three times spawns one run and is answered alike', async () => {
    const before = await subject.countRows()
    const first = await deliver('greetings', 'msg_3', { who: 'Grace' })
    const later = new Date(Date.now() + 60_000)
    const again = [
      await deliver('greetings', 'msg_3', { who: 'Grace' }, { now: later }),
      await deliver('greetings', 'msg_3', { who: 'Grace' }, { now: later }),
    ]
    for (const answer of again) {
      expect([answer.status, answer.body]).toEqual([202, { ...first.body, replayed: true }])
      expect(answer.headers.get('idempotent-replayed')).toBe('true')
    }
    expect((await subject.countRows()).runs).toBe((before.runs ?? 0) + 1)
  })

  test('C207 a delivery id is taken once even when the body is another one', async () => {
    const before = await subject.countRows()
    const answer = await deliver('greetings', 'msg_3', { who: 'Mallory' })
    expect([answer.status, answer.body]).toEqual([202, { replayed: true }])
    expect((await subject.countRows()).runs).toBe(before.runs)
  })

  test('C209 the run shows which webhook and which delivery it came from', async () => {
    const { body } = await deliver('greetings', 'msg_4', { who: 'Hedy' })
    const run = await subject.send('GET', `/v1/runs/${body.id}`)
    expect(run.body).toMatchObject({ origin: { hook: 'greetings', deliveryId: 'msg_4' }, input: { name: 'Hedy' } })
  })

  test('what the mapping has no use for is acknowledged and does nothing', async () => {
    const before = await subject.countRows()
    expect((await deliver('greetings', 'msg_5', { who: 'nobody' })).body).toEqual({ ignored: true })
    expect(await subject.countRows()).toEqual(before)
  })

  test('a body that does not match, or is no JSON, is refused after the signature', async () => {
    const before = await subject.countRows()
    const wrong = await deliver('greetings', 'msg_6', { who: 1 })
    expect([wrong.status, wrong.body.code, wrong.body.errors?.[0]?.pointer]).toEqual([422, 'invalid_input', '/who'])
    expect(await subject.countRows()).toEqual(before)
  })

  test('an unknown webhook is 404, a webhook without a secret 503, and only POST is taken', async () => {
    for (const name of ['nope', '%00', '__proto__', 'a%2Fb']) expect((await deliver(name, 'x', {})).status).toBe(404)
    const unset = await deliver('unset', 'x', {})
    expect([unset.status, unset.body.code]).toEqual([503, 'not_configured'])
    expect((await subject.send('GET', '/hooks/greetings')).status).toBe(405)
  })

  test('a delivery id that leaves no room in a key is still taken once', async () => {
    const id = 'i'.repeat(510)
    expect((await deliver('greetings', id, { who: 'Long' })).body.replayed).toBe(false)
    expect((await deliver('greetings', id, { who: 'Long' })).body.replayed).toBe(true)
  })
})
