import { afterAll, beforeAll, expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { type ApiSubject, apiSubject } from './subject.ts'

forEachVersion('events over HTTP', (version) => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(version)
  })
  afterAll(() => subject.close())

  const emit = (body: object, headers = {}) => subject.send('POST', '/v1/events', { body, headers })
  const park = async () => {
    const { body } = await subject.send('POST', '/v1/runs', { body: { definition: 'listener', input: {} } })
    await subject.engine.tick()
    return (await subject.send('GET', `/v1/runs/${body.id}`)).body
  }

  test('C118 C121 an event wakes who waits for it, in one request; the second one is 200 and changes nothing', async () => {
    const runs = [await park(), await park()]
    expect(runs[0]).toMatchObject({ status: 'waiting', waitingFor: { kind: 'signals', names: [], events: ['opened'] } })
    const before = subject.engine.database.requests
    const first = await emit({ name: 'opened', payload: { day: 'Monday' }, retention: '1h' })
    expect(subject.engine.database.requests - before).toBe(1)
    expect(first.status).toBe(201)
    const { emittedAt, expiresAt } = first.body as { emittedAt: string; expiresAt: string }
    expect(first.body).toEqual({ name: 'opened', created: true, emittedAt, expiresAt })
    expect(Date.parse(expiresAt) - Date.parse(emittedAt)).toBe(3_600_000)
    const second = await emit({ name: 'opened', payload: { day: 'Tuesday' } })
    expect([second.status, second.body]).toEqual([200, { name: 'opened', created: false, emittedAt, expiresAt }])
    await subject.engine.tick()
    for (const { id } of runs) {
      const { body } = await subject.send('GET', `/v1/runs/${id}`)
      expect(body).toMatchObject({ status: 'completed', result: { day: 'Monday' } })
    }
  })

  test('under one Idempotency-Key the first answer is given again; another event under it is 422', async () => {
    const key = { 'idempotency-key': '"an-event"' }
    await subject.engine.sql('DELETE FROM pawl.events')
    const body = { name: 'opened', payload: { day: 'Friday' } }
    const first = await emit(body, key)
    const again = await emit(body, key)
    expect([again.status, again.body]).toEqual([201, first.body])
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    const other = await emit({ ...body, payload: { day: 'Sunday' } }, key)
    expect([other.status, other.body.code]).toEqual([422, 'idempotency_mismatch'])
  })

  test('what is not declared, does not match, or is no duration is 422 and names it', async () => {
    expect((await emit({ name: 'typo' })).body).toMatchObject({ status: 422, code: 'invalid_event' })
    const mismatch = await emit({ name: 'opened', payload: { day: 1 } })
    expect(mismatch.body).toMatchObject({ status: 422, code: 'invalid_event', errors: [{ pointer: '/payload/day' }] })
    expect((await emit({ name: 'opened', payload: { day: 'x' }, retention: '0s' })).body).toMatchObject({
      status: 422,
      code: 'invalid_request',
    })
    expect((await emit({ name: 'opened', colour: 'red' })).status).toBe(422)
  })

  test('a key without signals:write may not emit', async () => {
    const { body } = await subject.send('POST', '/v1/api-keys', { body: { name: 'reader', scopes: ['runs:read'] } })
    expect((await subject.send('POST', '/v1/events', { body: { name: 'opened' }, key: body.key as string })).status).toBe(403)
  })
})
