import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { neon, neonConfig } from '@neondatabase/serverless'
import { afterEach, describe, expect, test } from 'vitest'
import type { Database, Statement } from '../../src/core/database.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'

const CONNECTION_STRING = 'postgresql://somebody:secret@ep-quiet-1.eu-central-1.example/app?sslmode=require'

const cleanups: (() => void)[] = []
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup()
  neonConfig.fetchEndpoint = undefined as never
})

interface Sent {
  readonly path: string | undefined
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: unknown
}

/** Keeps what it was sent and answers each statement with no rows. */
async function startRecorder() {
  const sent: Sent[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = JSON.parse(Buffer.concat(chunks).toString())
    const neonHeaders = Object.entries(request.headers).filter(([name]) => name.startsWith('neon-'))
    sent.push({ path: request.url, headers: Object.fromEntries(neonHeaders), body })
    const reply = { command: 'SELECT', rowCount: 0, rowAsArray: true, fields: [], rows: [] }
    response.end(JSON.stringify('queries' in body ? { results: body.queries.map(() => reply) } : reply))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  cleanups.push(() => server.close())
  return { sent, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/sql` }
}

const statement = (text: string, ...params: Statement['params']): Statement => ({ name: 'test', text, params })

async function sayEverything(database: Database): Promise<void> {
  const params = ['text', 7, 2n ** 60n, true, null, ['a', 'b,"c"', null], '{"json":1}'] as const
  await database.query(statement('SELECT $1, $2, $3, $4, $5, $6, $7', ...params))
  await database.batch([statement('SELECT 1'), statement('SELECT $1', 'x')])
}

describe('what is sent to Neon', () => {
  test('is what its own package sends, but for the name of the application', async () => {
    const [ours, theirs] = [await startRecorder(), await startRecorder()]
    neonConfig.fetchEndpoint = theirs.url
    await sayEverything(neonHttp(CONNECTION_STRING, { endpoint: ours.url }))
    await sayEverything(neonHttp(neon(CONNECTION_STRING)))
    const unnamed = theirs.sent.map(({ headers, ...rest }) => {
      const url = new URL(String(headers['neon-connection-string']))
      url.searchParams.delete('application_name')
      return { ...rest, headers: { ...headers, 'neon-connection-string': url.href } }
    })
    expect(ours.sent).toEqual(unnamed)
  })

  test('goes where the package sends it', async () => {
    const asked: string[] = []
    const fetchOf = globalThis.fetch
    cleanups.push(() => {
      globalThis.fetch = fetchOf
    })
    globalThis.fetch = async (input) => {
      asked.push(String(input))
      return Response.json({ fields: [], rows: [] })
    }
    await neonHttp(CONNECTION_STRING).query(statement('SELECT 1'))
    await neonHttp(neon(CONNECTION_STRING)).query(statement('SELECT 1'))
    expect(asked[0]).toBe('https://api.eu-central-1.example/sql')
    expect(asked[1]).toBe(asked[0])
  })

  test.each([
    'no url',
    'mysql://somebody:secret@example.org/app',
    'postgresql://example.org/app',
    'postgresql://somebody:secret@example.org',
  ])('nothing at all for the connection string %s, and no message holds a password', (text) => {
    const attempt = () => neonHttp(text)
    expect(attempt).toThrowError(expect.objectContaining({ fate: 'not_sent' }))
    expect(attempt).toThrowError(expect.not.stringContaining('secret'))
  })
})
