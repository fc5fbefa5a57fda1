import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createClient } from '../../src/client/http-client.ts'
import { type ApiSubject, apiSubject, ROOT_KEY } from './subject.ts'

const INSTANT = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

describe('pausing over HTTP', () => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject()
  })
  afterAll(() => subject.close())

  const spawn = async () =>
    String((await subject.send('POST', '/v1/runs', { body: { definition: 'greet', input: { name: 'you' } } })).body.id)

  test('C180 a queue and a definition: says what it did, by whom and since when, and again the same', async () => {
    const { send } = subject
    for (const path of ['/v1/queues/hellos', '/v1/definitions/greet']) {
      const id = await spawn()
      const name = path.split('/').at(-1)
      const paused = await send('POST', `${path}/pause`)
      expect(paused).toMatchObject({ status: 200, body: { name, did: 'paused', paused: true, by: 'root', since: INSTANT } })
      expect((await send('POST', `${path}/pause`)).body).toEqual({ ...paused.body, did: 'already_paused' })
      expect((await send('POST', '/v1/tick')).body).toMatchObject({ claimed: 0 })
      const kicks = subject.kicks()
      expect((await send('POST', `${path}/resume`)).body).toEqual({ name, did: 'resumed', paused: false })
      expect(subject.kicks()).toBe(kicks + 1)
      expect((await send('POST', `${path}/resume`)).body).toEqual({ name, did: 'not_paused', paused: false })
      await send('POST', '/v1/tick')
      expect((await send('GET', `/v1/runs/${id}`)).body.status).toBe('completed')
    }
  })

  test('C181 C263 one run: shows its hold, is explained by it, and a list does too', async () => {
    const { send } = subject
    const id = await spawn()
    const hold = { reason: 'paused', by: 'root', since: INSTANT }
    expect(await send('POST', `/v1/runs/${id}/pause`)).toMatchObject({
      status: 200,
      body: { id, did: 'paused', status: 'pending', hold },
    })
    expect((await send('GET', `/v1/runs/${id}`)).body.hold).toEqual(hold)
    const explained = await send('GET', `/v1/runs/${id}/explain`)
    expect(explained).toMatchObject({
      status: 200,
      body: { reason: 'run_paused', by: 'root', since: INSTANT, detail: expect.any(String) },
    })
    expect((await send('GET', '/v1/runs?status=pending')).body.items).toMatchObject([{ id, hold }])
    expect((await send('POST', `/v1/runs/${id}/resume`)).body).toEqual({ id, did: 'resumed', status: 'pending' })
    await send('POST', '/v1/tick')
    expect((await send('POST', `/v1/runs/${id}/pause`)).body).toEqual({ id, did: 'already_ended', status: 'completed' })
  })

  test('C180 a tenant pauses what is its own; nobody pauses what there is not, nor without the scope', async () => {
    const { send } = subject
    const keyOf = async (scopes: readonly string[]) =>
      String((await send('POST', '/v1/api-keys', { body: { name: 'k', scopes, tenant: 'acme' } })).body.key)
    const [operator, writer] = [await keyOf(['ops', 'runs:write']), await keyOf(['runs:write'])]
    expect(await send('POST', '/v1/queues/unheard-of/pause')).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect(await send('POST', '/v1/queues/hellos/pause', { key: writer })).toMatchObject({ status: 403 })
    const run = { definition: 'greet', input: { name: 'acme' } }
    const acmes = String((await send('POST', '/v1/runs', { key: writer, body: run })).body.id)
    expect((await send('POST', '/v1/queues/hellos/pause', { key: operator })).body).toMatchObject({ did: 'paused' })
    const others = await spawn()
    expect(await send('POST', `/v1/runs/${others}/pause`, { key: operator })).toMatchObject({ status: 404 })
    expect((await send('POST', '/v1/tick')).body).toMatchObject({ claimed: 1 })
    expect((await send('GET', `/v1/runs/${acmes}`, { key: operator })).status).toBe(403)
    expect((await send('POST', '/v1/queues/hellos/resume', { key: operator })).body).toMatchObject({ did: 'resumed' })
    expect((await send('POST', '/v1/tick')).body).toMatchObject({ completed: 1 })
  })

  test('the typed client does the same', async () => {
    const client = createClient({
      url: 'http://api.test',
      key: ROOT_KEY,
      fetch: async (url, init) => subject.app.request(url.replace('http://api.test', ''), init),
    })
    expect(await client.pauseQueue('hellos')).toMatchObject({ did: 'paused', by: 'root' })
    expect(await client.resumeQueue('hellos')).toMatchObject({ did: 'resumed' })
    expect(await client.pauseDefinition('greet')).toMatchObject({ did: 'paused' })
    expect(await client.resumeDefinition('greet')).toMatchObject({ did: 'resumed' })
    const id = await spawn()
    expect(await client.pauseRun(id)).toMatchObject({ did: 'paused', hold: { reason: 'paused' } })
    expect(await client.explain(id)).toMatchObject({ reason: 'run_paused', by: 'root' })
    expect(await client.resumeRun(id)).toMatchObject({ did: 'resumed' })
  })
})
