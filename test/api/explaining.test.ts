import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createClient } from '../../src/client/http-client.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { claim } from '../traps/outcomes.ts'
import { type ApiSubject, apiSubject, ROOT_KEY } from './subject.ts'

const plain = job({ name: 'plain', queue: 'plains', input: z.string(), run: () => null })
const gated = job({
  name: 'gated',
  input: z.string(),
  limits: [limit('one', { concurrency: 1 }).by((key: string) => key)],
  run: () => null,
})
const rated = job({
  name: 'rated',
  input: z.string(),
  limits: [limit('slow', { rate: { count: 1, per: '1m' } })],
  run: () => null,
})

describe('GET /v1/runs/{id}/explain', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(18, { definitions: [plain, gated, rated], frozen: true })
  })
  afterAll(() => subject.close())

  const spawn = async (definition: string, options: object = {}) =>
    String((await subject.send('POST', '/v1/runs', { body: { definition, input: 'a', ...options } })).body.id)
  const textOf = (ms: number) => new Date(ms).toISOString()
  const explain = async (id: string) => {
    const { status, body } = await subject.send('GET', `/v1/runs/${id}/explain`)
    expect([status, typeof body.detail]).toEqual([200, 'string'])
    const client = createClient({
      url: 'http://api.test',
      key: ROOT_KEY,
      fetch: async (url, init) => subject.app.request(url.replace('http://api.test', ''), init),
    })
    expect(await client.explain(id)).toEqual(body)
    return body
  }

  test('C187 C263 names the blocker: not due, a gate, a rate, a pause, an unknown definition; and the client says the same', async () => {
    const { engine, send } = subject
    // the first declares the limits, one a minute later is noted
    await send('POST', '/v1/tick')
    engine.advance(120_000)
    await send('POST', '/v1/tick')
    const now = engine.clock()
    const later = await spawn('plain', { delay: '10m' })
    expect(await explain(later)).toMatchObject({ reason: 'not_due', since: textOf(now), until: textOf(now + 600_000) })

    const [holder, denied] = [await spawn('gated'), await spawn('gated')]
    const [first, second] = [await spawn('rated'), await spawn('rated')]
    expect((await claim(engine)).map(({ id }) => id).sort()).toEqual([holder, first].sort())
    expect(await claim(engine)).toEqual([])
    expect(await explain(denied)).toMatchObject({
      ...{ reason: 'gate_full', limit: 'one', partition: 'a', capacity: 1, held: 1, units: 1, holders: [holder] },
      since: textOf(now),
    })
    const rate = await explain(second)
    expect(rate).toMatchObject({ reason: 'rate', limit: 'slow', since: textOf(now), until: textOf(now + 60_000) })
    expect(await explain(holder)).toMatchObject({ reason: 'running', step: 'run', until: textOf(now + 30_000) })

    const paused = await spawn('plain')
    const pauses = { definition: 'definitions/plain', queue: 'queues/plains', run: `runs/${paused}` }
    for (const [kind, path] of Object.entries(pauses)) {
      await send('POST', `/v1/${path}/pause`)
      expect(await explain(paused)).toMatchObject({ reason: `${kind}_paused`, by: 'root', since: textOf(now) })
    }
    for (const path of Object.values(pauses)) await send('POST', `/v1/${path}/resume`)

    // no tick has come since the first: that is told, and since when
    engine.advance(180_000)
    expect(await explain(paused)).toMatchObject({
      reason: 'no_tick',
      lastTickAt: textOf(now),
      source: 'api',
      since: textOf(now),
    })
    await engine.sql(`UPDATE pawl.lanes SET version = 7 WHERE definition = 'plain'`)
    expect(await explain(paused)).toMatchObject({ reason: 'no_code', definition: 'plain', version: 7, known: [1] })
  })

  test('C263 nobody has an explanation of what is not his, or is not', async () => {
    const id = await spawn('gated')
    const { body } = await subject.send('POST', '/v1/api-keys', { body: { name: 'k', scopes: ['runs:read'], tenant: 'else' } })
    expect(await subject.send('GET', `/v1/runs/${id}/explain`, { key: String(body.key) })).toMatchObject({ status: 404 })
    const unknown = '/v1/runs/00000000-0000-7000-8000-000000000000/explain'
    expect(await subject.send('GET', unknown)).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect(await subject.send('GET', `/v1/runs/${id}/explain`, { key: null })).toMatchObject({ status: 401 })
  })
})
