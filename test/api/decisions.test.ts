import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createClient } from '../../src/client/index.ts'
import { job } from '../../src/core/job.ts'
import { type ApiSubject, apiSubject, ROOT_KEY } from './subject.ts'

const pay = job({
  name: 'pay',
  input: z.object({ order: z.number() }),
  output: z.object({ receipt: z.string() }),
  error: z.object({ bank: z.string() }),
  retry: { maxAttempts: 1 },
  run: ({ input, uncertain, fail, discard }) => {
    if (input.order === 1) return fail({ bank: 'closed' })
    if (input.order === 2) return discard('not needed')
    return uncertain({ reason: 'no answer', evidence: { sent: true } })
  },
})

describe('decisions over HTTP', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(18, { definitions: [pay] })
  })
  afterAll(() => subject.close())

  async function ended(order: number): Promise<string> {
    const spawned = await subject.send('POST', '/v1/runs', { body: { definition: 'pay', input: { order } } })
    await subject.engine.tick()
    return spawned.body.id as string
  }
  const read = async (id: string) => (await subject.send('GET', `/v1/runs/${id}`)).body

  test('C056 C068 an uncertain run shows its evidence, and a key with the scope ops resolves it, by name', async () => {
    const id = await ended(3)
    expect(await read(id)).toMatchObject({
      status: 'uncertain',
      error: { code: 'uncertain', message: 'no answer' },
      uncertainty: { by: 'handler', reason: 'no answer', step: 'run', visit: 1, attempt: 1, evidence: { sent: true } },
    })
    const make = async (scopes: readonly string[]) =>
      (await subject.send('POST', '/v1/api-keys', { body: { name: scopes.join(), scopes } })).body as { id: string; key: string }
    const [writer, operator] = [await make(['runs:write', 'runs:read']), await make(['ops'])]
    const path = `/v1/runs/${id}/resolve`
    const body = { id: 'd-1', decision: 'success', result: { receipt: 'r' }, by: 'alice', details: { ticket: 7 } }
    expect((await subject.send('POST', path, { body, key: writer.key })).status).toBe(403)
    const kicks = subject.kicks()
    const first = await subject.send('POST', path, { body, key: operator.key })
    expect([first.status, first.body]).toEqual([200, { id, did: 'resolved', decision: 'success', status: 'completed' }])
    expect(subject.kicks()).toBe(kicks + 1)
    const again = await subject.send('POST', path, { body, key: operator.key })
    expect([again.status, again.body.did]).toEqual([200, 'already_applied'])
    const other = await subject.send('POST', path, { body: { ...body, result: { receipt: 'x' } }, key: operator.key })
    expect([other.status, other.body.code]).toEqual([409, 'conflict'])
    const run = await read(id)
    expect(run).toMatchObject({ status: 'completed', result: { receipt: 'r' } })
    expect((run.uncertainty as { resolution: object }).resolution).toEqual({
      id: 'd-1',
      decision: 'success',
      by: 'alice',
      via: `key:${operator.id}`,
      details: { ticket: 7 },
      at: run.finishedAt,
    })
  })

  test('C056 what is wrong with a decision is said with pointers, and who decides is the key unless it is said', async () => {
    const id = await ended(4)
    const refuse = async (body: object) => (await subject.send('POST', `/v1/runs/${id}/resolve`, { body })).body
    expect(await refuse({ id: 'd', decision: 'success', result: { receipt: 1 } })).toMatchObject({
      code: 'invalid_result',
      errors: [{ pointer: '/result/receipt' }],
    })
    expect(await refuse({ id: 'd', decision: 'failure', error: { message: 'm', data: {} } })).toMatchObject({
      code: 'invalid_error',
      errors: [{ pointer: '/error/data/bank' }],
    })
    expect(await refuse({ id: 'd', decision: 'maybe' })).toMatchObject({ errors: [{ pointer: '/decision' }] })
    expect(await refuse({ id: 'd', decision: 'replay', more: 1 })).toMatchObject({ status: 422 })
    const client = createClient({
      url: 'http://api.test',
      key: ROOT_KEY,
      fetch: async (url, init) => subject.app.request(url, init),
    })
    expect(await client.resolve(id, { id: 'd', decision: 'failure', error: 'bank says no' })).toEqual({
      id,
      did: 'resolved',
      decision: 'failure',
      status: 'failed',
    })
    expect(await client.run(id)).toMatchObject({
      error: { code: 'failed', message: 'bank says no', cause: 'confirmed' },
      uncertainty: { resolution: { by: 'root' } },
    })
  })

  test('C069 C070 the error of a run is read as it was given, with its cause', async () => {
    expect(await read(await ended(1))).toMatchObject({
      status: 'failed',
      error: { code: 'failed', data: { bank: 'closed' }, cause: 'declined' },
    })
    expect(await read(await ended(2))).toMatchObject({
      status: 'discarded',
      error: { code: 'discarded', message: 'not needed', cause: 'discarded' },
    })
  })

  test('C083 C084 a retry over HTTP says whether it was in place or is a new run, and refuses what it must', async () => {
    const id = await ended(1)
    const path = `/v1/runs/${id}/retry`
    const made = await subject.send('POST', path, { body: { asNewRun: true }, headers: { 'idempotency-key': 'once' } })
    expect([made.status, made.body]).toEqual([201, { id: made.body.id, did: 'spawned', status: 'pending', retriedFrom: id }])
    const again = await subject.send('POST', path, { body: { asNewRun: true }, headers: { 'idempotency-key': 'once' } })
    expect(again.body.id).toBe(made.body.id)
    expect(await read(made.body.id as string)).toMatchObject({ input: { order: 1 }, origin: { retriedFrom: id, by: 'root' } })
    expect((await read(id)).status).toBe('failed')
    const tooFew = await subject.send('POST', path, { body: { maxAttempts: 1 } })
    expect([tooFew.status, tooFew.body]).toMatchObject([409, { code: 'not_retryable', errors: [{ pointer: '/maxAttempts' }] }])
    const client = createClient({
      url: 'http://api.test',
      key: ROOT_KEY,
      fetch: async (url, init) => subject.app.request(url, init),
    })
    expect(await client.retry(id, { maxAttempts: 2 })).toEqual({ id, did: 'retried', status: 'pending' })
    await expect(client.retry(id)).rejects.toMatchObject({ code: 'not_retryable', status: 409 })
    expect(await client.retry((await ended(2)) as string, { asNewRun: true })).toMatchObject({ did: 'spawned' })
  })
})
