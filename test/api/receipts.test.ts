import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ApiSubject, apiSubject } from './subject.ts'

describe('receipts over HTTP', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject()
  })
  afterAll(() => subject.close())

  const settle = (key: string, headers = {}) => subject.send('GET', `/v1/receipts/${encodeURIComponent(key)}`, { headers })

  test('C024 a spawn whose reply was lost is found by its key, as it was answered, in one request', async () => {
    const key = 'orders/42 of “Ümit”'
    // sent, and the answer thrown away
    const headers = { 'idempotency-key': '"orders/42"' }
    const body = { definition: 'greet', input: { name: 'you' } }
    const { body: lost } = await subject.send('POST', '/v1/runs', { body, headers })
    await subject.engine.tick()
    const before = subject.engine.database.requests
    const rows = await subject.countRows()
    const { status, body: found } = await settle('orders/42')
    expect([status, found]).toEqual([200, { kind: 'run', id: lost.id, status: 'pending', created: true }])
    expect(subject.engine.database.requests - before).toBe(1)
    expect(await subject.countRows()).toEqual(rows)
    expect((await settle(key)).status).toBe(404)
  })

  test('C024 an item of a batch is found by its number, a signal by its own key', async () => {
    const runs = [0, 1].map((n) => ({ definition: 'order', input: { order: n } }))
    const sent = await subject.send('POST', '/v1/runs/batch', { body: { runs }, headers: { 'idempotency-key': '"many"' } })
    const [, second] = sent.body.items as { id: string }[]
    expect((await settle('many:1')).body).toMatchObject({ kind: 'run', id: second?.id, created: true })
    const signal = { to: { id: second?.id }, name: 'paid', payload: { cents: 1 } }
    const { body: lost } = await subject.send('POST', '/v1/signals', { body: signal, headers: { 'idempotency-key': '"pay"' } })
    expect((await settle('pay')).body).toEqual({ kind: 'signal', ...lost })
  })

  test('C024 nothing decided is 404, also of another tenant’s key; other methods and fields are refused', async () => {
    const never = await settle('never')
    expect([never.status, never.body.code, never.body.field]).toEqual([404, 'not_found', 'idempotencyKey'])
    expect((await settle('orders/42', { 'pawl-tenant': 'acme' })).status).toBe(404)
    expect((await subject.send('POST', '/v1/receipts/x')).status).toBe(405)
    expect((await subject.send('GET', '/v1/receipts/x?wait=1s')).status).toBe(422)
  })
})
