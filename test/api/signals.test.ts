import { afterAll, beforeAll, expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { type ApiSubject, apiSubject } from './subject.ts'

forEachVersion('signals over HTTP', (version) => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(version)
  })
  afterAll(() => subject.close())

  let orders = 0
  const park = async () => {
    orders += 1
    const { body } = await subject.send('POST', '/v1/runs', { body: { definition: 'order', input: { order: orders } } })
    await subject.engine.tick()
    return { id: body.id as string, key: `order:${orders}` }
  }
  const signal = (to: object, payload: unknown = { cents: 42 }, headers = {}) =>
    subject.send('POST', '/v1/signals', { body: { to, name: 'paid', payload }, headers })
  const read = async (id: string) => {
    await subject.engine.tick()
    return (await subject.send('GET', `/v1/runs/${id}`)).body
  }

  test('C115 a signal by id wakes the parked run, which reads the payload', async () => {
    const { id } = await park()
    const before = subject.engine.database.requests
    const { status, body } = await signal({ id })
    expect(subject.engine.database.requests - before).toBe(1)
    expect(status).toBe(202)
    expect(body).toEqual({ id: expect.stringMatching(/^\d+$/), runId: id })
    expect(await read(id)).toMatchObject({ status: 'completed', result: { cents: 42 } })
  })

  test('C139 a payload that came over HTTP is an object to SQL, and read as it was sent', async () => {
    const { id } = await park()
    expect((await signal({ id }, { cents: 42 })).status).toBe(202)
    const stored = "SELECT jsonb_typeof(payload) || ' ' || (payload ->> 'cents') FROM pawl.signals WHERE run_id = $1"
    expect(await subject.engine.sql(stored, [id])).toEqual(['object 42'])
    expect(await read(id)).toMatchObject({ status: 'completed', result: { cents: 42 } })
  })

  test('C116 a signal by business key wakes the run that has it', async () => {
    const { id, key } = await park()
    expect((await signal({ key })).body.runId).toBe(id)
    const other = await park()
    expect((await signal({ key: other.key, definition: 'order' })).body.runId).toBe(other.id)
    expect(await read(id)).toMatchObject({ status: 'completed' })
    expect(await read(other.id)).toMatchObject({ status: 'completed' })
  })

  test('C120 a signal to an unknown or ended run is 404 no_target, and nothing is stored', async () => {
    const { id, key } = await park()
    await subject.send('POST', `/v1/runs/${id}/cancel`)
    const before = await subject.countRows()
    for (const to of [
      { id },
      { key },
      { key: 'no such key' },
      { id: '00000000-0000-7000-8000-00000000dead' },
      { id: 'nonsense' },
    ]) {
      const { status, body } = await signal(
        to,
        { cents: 1 },
        { 'idempotency-key': JSON.stringify(JSON.stringify(to)).slice(1, -1) },
      )
      expect([to, status, body.code]).toEqual([to, 404, 'no_target'])
    }
    expect(await subject.countRows()).toEqual(before)
  })

  test('C122 ten sendings under one Idempotency-Key are one signal, answered alike', async () => {
    const { id } = await park()
    const before = await subject.countRows()
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => signal({ id }, { cents: 1 }, { 'idempotency-key': `pay-${id}` })),
    )
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toHaveProperty('size', 1)
    expect(answers[0]?.status).toBe(202)
    expect(answers.filter(({ headers }) => headers.get('idempotent-replayed') === 'true')).toHaveLength(9)
    expect((await subject.countRows()).signals).toBe((before.signals ?? 0) + 1)
  })

  test('a signal that is not declared, or whose payload does not match, is 422 with a pointer', async () => {
    const { id } = await park()
    const wrong = await signal({ id }, { cents: 'many' })
    expect([wrong.status, wrong.body.code, wrong.body.errors?.[0]?.pointer]).toEqual([422, 'invalid_signal', '/payload/cents'])
    const unknown = await subject.send('POST', '/v1/signals', { body: { to: { id }, name: 'nope' } })
    expect([unknown.status, unknown.body.code, unknown.body.errors?.[0]?.pointer]).toEqual([422, 'invalid_signal', '/name'])
  })
})
