import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { type ApiSubject, apiSubject, CRON_SECRET, ROOT_KEY, sendTo } from './subject.ts'

forEachVersion('access', (version) => {
  let subject: ApiSubject
  beforeAll(async () => {
    subject = await apiSubject(version)
  })
  afterAll(() => subject.close())

  const makeKey = async (scopes: readonly string[], tenant?: string, more: object = {}) => {
    const { body } = await subject.send('POST', '/v1/api-keys', { body: { name: 'test', scopes, tenant, ...more } })
    return { key: body.key as string, id: body.id as string }
  }
  const greet = { definition: 'greet', input: { name: 'x' } }

  test('C252 what belongs to another tenant is 404, by whatever it is asked for', async () => {
    const acme = await makeKey(['runs:read', 'runs:write', 'signals:write'], 'acme')
    const other = await makeKey(['runs:read', 'runs:write', 'signals:write'], 'other')
    const spawned = await subject.send('POST', '/v1/runs', {
      body: { definition: 'order', input: { order: 252 } },
      key: acme.key,
    })
    await subject.engine.tick()
    const id = spawned.body.id as string
    const signal = (to: object) => ({ to, name: 'paid', payload: { cents: 1 } })
    const requests: [string, string, unknown][] = [
      ['GET', `/v1/runs/${id}`, undefined],
      ['GET', `/v1/runs/${id}/history`, undefined],
      ['POST', `/v1/runs/${id}/cancel`, {}],
      ['POST', `/v1/runs/${id}/retry`, {}],
      ['POST', `/v1/runs/${id}/retry`, { asNewRun: true }],
      ['POST', '/v1/signals', signal({ id })],
      ['POST', '/v1/signals', signal({ key: 'order:252' })],
    ]
    const before = await subject.countRows()
    for (const [method, path, body] of requests) {
      const answer = await subject.send(method, path, { key: other.key, ...(body === undefined ? {} : { body }) })
      expect([method, path, answer.status]).toEqual([method, path, 404])
    }
    expect(await subject.countRows()).toEqual(before)
    const lists = ['', `?key=${encodeURIComponent('order:252')}`, '?definition=order', '?status=waiting']
    for (const query of lists) {
      expect((await subject.send('GET', `/v1/runs${query}`, { key: other.key })).body.items).toEqual([])
      expect((await subject.send('GET', `/v1/runs${query}`, { key: acme.key })).body.items).toHaveLength(1)
    }
    expect((await subject.send('GET', '/v1/stats', { key: other.key })).body).toMatchObject({ byStatus: { waiting: 0 } })
    expect((await subject.send('GET', '/v1/stats', { key: acme.key })).body).toMatchObject({ byStatus: { waiting: 1 } })
    expect((await subject.send('GET', `/v1/runs/${id}`, { key: acme.key })).status).toBe(200)
  })

  test('C252 the id of another tenant’s run cannot be taken', async () => {
    const id = '00000000-0000-7000-8000-000000000252'
    const [acme, other] = [await makeKey(['runs:write'], 'acme'), await makeKey(['runs:write'], 'other')]
    expect((await subject.send('POST', '/v1/runs', { body: { ...greet, id }, key: acme.key })).status).toBe(201)
    const taken = await subject.send('POST', '/v1/runs', { body: { ...greet, id }, key: other.key })
    expect([taken.status, taken.body.code]).toEqual([409, 'conflict'])
    expect(taken.body).not.toHaveProperty('created')
  })

  test('C252 the root key acts for the tenant that Pawl-Tenant names; another key only for its own', async () => {
    const headers = { 'pawl-tenant': 'acme' }
    const { body } = await subject.send('POST', '/v1/runs', { body: greet, headers })
    expect((await subject.send('GET', `/v1/runs/${body.id}`)).status).toBe(404)
    expect((await subject.send('GET', `/v1/runs/${body.id}`, { headers })).status).toBe(200)
    const other = await makeKey(['admin'], 'other')
    expect((await subject.send('GET', `/v1/runs/${body.id}`, { headers, key: other.key })).status).toBe(403)
    expect((await subject.send('GET', '/v1/runs', { headers: { 'pawl-tenant': ' x' } })).status).toBe(200)
    expect((await subject.send('GET', '/v1/runs', { headers: { 'pawl-tenant': 'a'.repeat(201) } })).status).toBe(422)
  })

  const needs: [scope: string, method: string, path: string][] = [
    ['runs:read', 'GET', '/v1/runs'],
    ['runs:write', 'POST', '/v1/runs'],
    ['runs:write', 'POST', '/v1/runs/batch'],
    ['signals:write', 'POST', '/v1/signals'],
    ['tick', 'POST', '/v1/tick'],
    ['admin', 'GET', '/v1/api-keys'],
  ]
  test.each(needs)('C252 the scope %s is needed, and enough, for %s %s', async (scope, method, path) => {
    const all = ['runs:read', 'runs:write', 'signals:write', 'ops', 'tick']
    const without = await makeKey(all.filter((name) => name !== scope && (path !== '/v1/runs' || name !== 'ops')))
    const refused = await subject.send(method, path, { key: without.key })
    expect([refused.status, refused.body.code]).toEqual([403, 'forbidden'])
    expect(refused.headers.get('www-authenticate')).toContain('insufficient_scope')
    const alone = await makeKey([scope])
    expect((await subject.send(method, path, { key: alone.key })).status).not.toBe(403)
  })

  test('C252 an administrator of a tenant makes keys for it, but none for another tenant and none for ticks', async () => {
    const { key } = await makeKey(['admin'], 'acme')
    const made = await subject.send('POST', '/v1/api-keys', { body: { name: 'mine', scopes: ['runs:read'] }, key })
    expect([made.status, made.body.tenant]).toEqual([201, 'acme'])
    for (const body of [
      { name: 'x', scopes: ['runs:read'], tenant: 'other' },
      { name: 'x', scopes: ['tick'] },
    ]) {
      expect((await subject.send('POST', '/v1/api-keys', { body, key })).status).toBe(403)
    }
    expect((await subject.send('POST', '/v1/tick', { key })).status).toBe(403)
    const listed = (await subject.send('GET', '/v1/api-keys', { key })).body.items as { tenant: string }[]
    expect(new Set(listed.map(({ tenant }) => tenant))).toEqual(new Set(['acme']))
  })

  test('C254 a key is shown once; rows, logs and later answers hold its hash at most', async () => {
    const { key } = await makeKey(['runs:read', 'runs:write'], 'acme')
    await subject.send('POST', '/v1/runs', { body: greet, key })
    const tables = Object.keys(await subject.countRows())
    const dump = (await Promise.all(tables.map((table) => subject.engine.sql<string>(`SELECT t::text FROM pawl.${table} t`))))
      .flat()
      .join('\n')
    const listed = (await subject.send('GET', '/v1/api-keys')).text
    for (const secret of [key, ROOT_KEY, CRON_SECRET]) {
      expect(dump).not.toContain(secret)
      expect(listed).not.toContain(secret)
    }
    expect(dump).toContain('greet')
  })

  test('a stored key costs one request more when it is seen first, and none after that', async () => {
    const { key } = await makeKey(['runs:write'])
    const cost = async () => {
      const before = subject.engine.database.requests
      expect((await subject.send('POST', '/v1/runs', { body: greet, key })).status).toBe(201)
      return subject.engine.database.requests - before
    }
    expect([await cost(), await cost(), await cost()]).toEqual([2, 1, 1])
  })

  test('a revoked key is refused at once here, and one that is unknown or expired always', async () => {
    const { key, id } = await makeKey(['runs:read'])
    const list = (bearer: string | null, headers = {}) => subject.send('GET', '/v1/runs', { key: bearer, headers })
    expect((await list(key)).status).toBe(200)
    expect((await subject.send('DELETE', `/v1/api-keys/${id}`)).body).toEqual({ id, did: 'revoked' })
    expect((await subject.send('DELETE', `/v1/api-keys/${id}`)).status).toBe(200)
    expect((await subject.send('DELETE', '/v1/api-keys/nope')).status).toBe(404)
    const soon = await makeKey(['runs:read'], undefined, { expiresAt: new Date(Date.now() + 3_600_000).toISOString() })
    expect((await list(soon.key)).status).toBe(200)
    await subject.engine.sql('UPDATE pawl.api_keys SET expires_at = created_at WHERE id = $1', [soon.id])
    const fresh = subject.appWith({})
    expect((await sendTo(fresh, 'GET', '/v1/runs', { key: soon.key })).status).toBe(401)
    for (const bearer of [key, `${key}x`, `pawl_${'A'.repeat(43)}`, 'nonsense', id]) {
      const { status, headers, body } = await list(bearer)
      expect([bearer, status, body.code]).toEqual([bearer, 401, 'unauthorized'])
      expect(headers.get('www-authenticate')).toBe('Bearer realm="pawl"')
    }
    expect((await list(null)).status).toBe(401)
    expect((await list(null, { authorization: 'Basic eDp5' })).status).toBe(401)
  })

  test('what is no key of ours costs no request to refuse', async () => {
    const before = subject.engine.database.requests
    for (const key of ['nonsense', `${ROOT_KEY}x`, 'pawl_short']) await subject.send('GET', '/v1/runs', { key })
    expect(subject.engine.database.requests - before).toBe(0)
  })

  test('the cron secret may tick and nothing else', async () => {
    expect((await subject.send('GET', '/v1/tick', { key: CRON_SECRET })).status).toBe(200)
    expect((await subject.send('GET', '/v1/runs', { key: CRON_SECRET })).status).toBe(403)
  })
})

describe('an installation', () => {
  test('without any key answers 503 not_configured, until a key is made', async () => {
    const subject = await apiSubject()
    try {
      const app = subject.appWith({ access: {} })
      const refused = await sendTo(app, 'GET', '/v1/runs', { key: null })
      expect([refused.status, refused.body.code, refused.headers.get('retry-after')]).toEqual([503, 'not_configured', '2'])
      expect((await sendTo(app, 'GET', '/v1/runs', { key: 'x' })).body.code).toBe('not_configured')
      expect((await sendTo(app, 'GET', '/healthz', { key: null })).status).toBe(200)
      const made = await subject.send('POST', '/v1/api-keys', { body: { name: 'first', scopes: ['runs:read'] } })
      expect((await sendTo(app, 'GET', '/v1/runs', { key: made.body.key as string })).status).toBe(200)
      const later = subject.appWith({ access: { rootKey: '' } })
      expect((await sendTo(later, 'GET', '/v1/runs', { key: null })).status).toBe(401)
    } finally {
      await subject.close()
    }
  })

  test('that is open lets in this machine alone: no other host name, no page of another origin', async () => {
    const subject = await apiSubject()
    try {
      const app = subject.appWith({ access: { open: true } })
      const list = (url: string, headers: Record<string, string> = {}) =>
        sendTo(app, 'GET', `${url}/v1/runs`, { key: null, headers })
      for (const url of ['http://localhost:8787', 'http://127.0.0.1:1', 'http://[::1]:1'])
        expect((await list(url)).status).toBe(200)
      expect((await list('http://localhost:1', { origin: 'http://localhost:1', 'sec-fetch-site': 'same-origin' })).status).toBe(
        200,
      )
      expect((await list('http://evil.test')).status).toBe(401)
      expect((await list('http://localhost:1', { origin: 'http://evil.test' })).status).toBe(401)
      expect((await list('http://localhost:1', { 'sec-fetch-site': 'cross-site' })).status).toBe(401)
    } finally {
      await subject.close()
    }
  })
})
