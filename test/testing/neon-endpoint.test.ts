import { once } from 'node:events'
import { PGlite } from '@electric-sql/pglite'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import WebSocket from 'ws'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { type NeonEndpoint, startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'

describe('the Neon endpoint over a server', () => {
  let fresh: FreshDatabase
  let endpoint: NeonEndpoint
  beforeAll(async () => {
    fresh = await freshDatabase(18, { empty: true })
    endpoint = await startNeonEndpoint({ target: fresh.connectionString })
  })
  afterAll(async () => {
    await endpoint.close()
    await endpoint.close()
    await fresh.close()
  })

  const post = (body: unknown, headers: Record<string, string> = {}) =>
    fetch(endpoint.httpUrl, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: {
        'neon-connection-string': endpoint.connectionString,
        'neon-raw-text-output': 'true',
        'neon-array-mode': 'true',
        ...headers,
      },
    })

  test('answers raw text in arrays', async () => {
    const response = await post({ query: 'SELECT $1::int8 AS a, NULL AS b, \'{"c":1}\'::jsonb AS d', params: ['7'] })
    expect(response.status).toBe(200)
    expect(await response.json()).toMatchObject({
      command: 'SELECT',
      rowCount: 1,
      rowAsArray: true,
      fields: [
        { name: 'a', dataTypeID: 20 },
        { name: 'b', dataTypeID: 25 },
        { name: 'd', dataTypeID: 3802 },
      ],
      rows: [['7', null, '{"c": 1}']],
    })
  })

  test('answers an error of the database as 400 with the fields of the server', async () => {
    const response = await post({ query: 'SELECT 1; SELECT 2', params: [] })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ code: '42601', severity: 'ERROR', constraint: null })
  })

  test('obeys the isolation level and the mode of a batch', async () => {
    const queries = [{ query: 'SHOW transaction_isolation', params: [] }, { query: 'SHOW transaction_read_only', params: [] }] // biome-ignore format: short
    const response = await post({ queries }, { 'neon-batch-isolation-level': 'Serializable', 'neon-batch-read-only': 'true' })
    expect(await response.json()).toMatchObject({ results: [{ rows: [['serializable']] }, { rows: [['on']] }] })
    const plain = await post({ queries })
    expect(await plain.json()).toMatchObject({ results: [{ rows: [['read committed']] }, { rows: [['off']] }] })
  })

  test('counts its requests', async () => {
    const before = endpoint.requests
    const database = neonHttp(endpoint.connectionString, { endpoint: endpoint.httpUrl })
    await database.batch([
      { name: 'a', text: 'SELECT 1', params: [] },
      { name: 'b', text: 'SELECT 2', params: [] },
    ])
    expect(endpoint.requests).toBe(before + 1)
  })

  test('knows no other path', async () => {
    expect((await fetch(new URL('/other', endpoint.httpUrl))).status).toBe(404)
  })

  test('relays to its target and to nobody else', async () => {
    for (const address of ['127.0.0.1:1', `127.0.0.1:${endpoint.port}0`, 'example.com:5432', '']) {
      const socket = new WebSocket(`${endpoint.websocketUrl}?address=${address}`)
      const [, response] = await once(socket, 'unexpected-response')
      expect(response.statusCode, address).toBe(403)
      response.destroy()
    }
    const socket = new WebSocket(`${endpoint.websocketUrl}?address=127.0.0.1:${endpoint.port}`)
    await once(socket, 'open')
    socket.terminate()
  })
})

describe('the Neon endpoint over PGlite', () => {
  let instance: PGlite
  let endpoint: NeonEndpoint
  beforeAll(async () => {
    instance = await PGlite.create()
    endpoint = await startNeonEndpoint({ target: instance })
  })
  afterAll(async () => {
    await endpoint.close()
    await instance.close()
  })

  test('serves the HTTP driver', async () => {
    const database = neonHttp(endpoint.connectionString, { endpoint: endpoint.httpUrl })
    const results = await database.batch([
      { name: 'create', text: 'CREATE TABLE t (id int PRIMARY KEY, at timestamptz, list bigint[])', params: [] },
      { name: 'insert', text: "INSERT INTO t VALUES ($1, '2026-11-30 12:00:00+00', $2)", params: [1, [1n, null]] },
      { name: 'select', text: 'SELECT *, current_setting($1) AS level FROM t', params: ['transaction_isolation'] },
    ])
    expect(results[2]).toEqual([{ id: 1, at: '2026-11-30T12:00:00.000Z', list: [1n, null], level: 'read committed' }])
    const twice = { name: 'insert', text: 'INSERT INTO t (id) VALUES ($1)', params: [1] }
    await expect(database.batch([twice])).rejects.toMatchObject({ fate: 'refused', sqlstate: '23505', constraint: 't_pkey' })
  })

  test('has no WebSocket', async () => {
    const socket = new WebSocket(`${endpoint.websocketUrl}?address=127.0.0.1:${endpoint.port}`)
    const [, response] = await once(socket, 'unexpected-response')
    expect(response.statusCode).toBe(501)
    response.destroy()
  })
})
