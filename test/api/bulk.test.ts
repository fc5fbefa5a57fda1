import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createClient } from '../../src/client/http-client.ts'
import { type ApiSubject, apiSubject, ROOT_KEY } from './subject.ts'

describe('POST /v1/runs/bulk', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject()
  })
  afterAll(() => subject.close())

  const bulk = (body: object) => subject.send('POST', '/v1/runs/bulk', { body })
  const spawnMany = (runs: readonly object[]) => subject.send('POST', '/v1/runs/batch', { body: { runs } })
  const count = async (where: string) =>
    (
      await subject.engine.sql<number>(
        `SELECT count(*)::int FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id WHERE ${where}`,
      )
    )[0]

  test('C182 cancels what matches, up to 100 in a call, and says how many and whether there is more', async () => {
    const greet = (queue: string, n: number) => ({ definition: 'greet', input: { name: `${n}` }, queue, key: `${queue}:${n}` })
    await spawnMany(Array.from({ length: 230 }, (_, n) => greet('full', n)))
    await spawnMany([greet('spared', 1)])
    const kicks = subject.kicks()
    const before = subject.engine.database.requests
    const answers = []
    for (let n = 0; n < 3; n += 1) answers.push((await bulk({ action: 'cancel', filter: { queue: 'full' } })).body)
    expect(answers.map(({ affected, more }) => [affected, more])).toEqual([
      [100, true],
      [100, true],
      [30, false],
    ])
    expect(subject.engine.database.requests - before).toBe(6)
    expect(subject.kicks()).toBe(kicks + 3)
    expect(await count(`l.queue = 'full' AND r.status = 'cancelled'`)).toBe(230)
    expect(await count(`l.queue = 'spared' AND r.status = 'pending'`)).toBe(1)
    expect((await bulk({ action: 'cancel', filter: { queue: 'full' } })).body).toEqual({
      affected: 0,
      more: false,
      nextCursor: null,
    })
    // their keys are free, and so is nothing of theirs in the window
    expect((await spawnMany([greet('full', 7)])).body.items).toMatchObject([{ created: true }])
    expect((await subject.send('POST', '/v1/tick')).body).toMatchObject({ claimed: 2 })
  })

  test('C182 retries what failed, by filter, each in place and once', async () => {
    await spawnMany(Array.from({ length: 5 }, (_, n) => ({ definition: 'fails', tags: [n < 3 ? 'first' : 'second'] })))
    await subject.send('POST', '/v1/tick')
    expect((await bulk({ action: 'retry', filter: { definition: 'fails', tag: 'first' } })).body).toMatchObject({
      affected: 3,
      more: false,
    })
    expect((await bulk({ action: 'retry', filter: { definition: 'fails', tag: 'first' } })).body).toMatchObject({ affected: 0 })
    expect(await count(`l.definition = 'fails' AND r.status = 'pending'`)).toBe(3)
    expect((await subject.send('POST', '/v1/tick')).body).toMatchObject({ failed: 3 })
  })

  test('C182 refuses an empty filter, what it does not know, and who may not', async () => {
    expect(await bulk({ action: 'cancel', filter: {} })).toMatchObject({
      status: 422,
      body: { code: 'invalid_request', field: 'filter' },
    })
    expect(await bulk({ action: 'cancel' })).toMatchObject({ status: 422 })
    expect(await bulk({ action: 'dance', filter: { queue: 'full' } })).toMatchObject({ status: 422 })
    expect(await bulk({ action: 'cancel', filter: { queue: 'full', colour: 'red' } })).toMatchObject({ status: 422 })
    expect(await bulk({ action: 'cancel', filter: { parent: 'nobody' } })).toMatchObject({
      status: 422,
      body: { errors: [{ pointer: '/filter/parent' }] },
    })
    const { body } = await subject.send('POST', '/v1/api-keys', { body: { name: 'k', scopes: ['runs:write'] } })
    expect(await subject.send('POST', '/v1/runs/bulk', { key: String(body.key), body: {} })).toMatchObject({ status: 403 })
  })

  test('C182 the typed client does the same; a running run is asked to stop, once', async () => {
    const client = createClient({
      url: 'http://api.test',
      key: ROOT_KEY,
      fetch: async (url, init) => subject.app.request(url.replace('http://api.test', ''), init),
    })
    await spawnMany([{ definition: 'greet', input: { name: 'a' }, queue: 'mine' }])
    const id = (await client.list({ queue: 'mine' })).items[0]?.id ?? ''
    // as a claim leaves it
    await subject.engine.sql(`UPDATE pawl.runs SET status = 'running', claimed_by = $1 WHERE id = $1`, [id])
    const call = { action: 'cancel', filter: { queue: 'mine', since: new Date(0) } } as const
    expect(await client.changeMany(call)).toMatchObject({ affected: 1, more: false })
    expect(await client.changeMany(call)).toMatchObject({ affected: 0, more: false })
    expect((await client.run(id)).cancelRequestedAt).toBeDefined()
  })
})
