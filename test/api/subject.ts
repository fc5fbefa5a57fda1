import type { Hono } from 'hono'
import * as z from 'zod'
import type { ApiContext } from '../../src/api/api-context.ts'
import { createApi } from '../../src/api/app.ts'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { webhook } from '../../src/core/trigger.ts'
import { type EngineOptions, startEngine, type TestEngine } from '../support/engine.ts'
import type { PostgresVersion } from '../support/postgres-server.ts'

export const ROOT_KEY = 'root-key-of-the-tests'
export const CRON_SECRET = 'cron-secret-of-the-tests'
export const HOOK_SECRET = 'hook-secret-of-the-tests'

const greet = job({
  name: 'greet',
  queue: 'hellos',
  input: z.object({ name: z.string(), times: z.number().int().optional() }),
  tags: ['hello'],
  triggers: [
    webhook({
      name: 'greetings',
      secret: () => HOOK_SECRET,
      body: z.object({ who: z.string() }),
      spawn: ({ body }) => (body.who === 'nobody' ? undefined : { name: body.who }),
    }),
  ],
  run: ({ input }) => ({ greeting: `hello ${input.name}` }),
})

const echo = job({
  name: 'echo',
  input: z.json(),
  triggers: [webhook({ name: 'unset', secret: () => '', spawn: () => 1 })],
  run: ({ input }) => input,
})

const fails = job({
  name: 'fails',
  retry: { maxAttempts: 1 },
  run: () => {
    throw new Error('as told')
  },
})

const order = machine({
  name: 'order',
  state: z.object({ order: z.number(), cents: z.number().optional() }),
  output: z.object({ cents: z.number() }),
  signals: { paid: z.object({ cents: z.number().int() }) },
  key: ({ order }) => `order:${order}`,
  initial: 'wait',
  triggers: [
    webhook({
      name: 'payments',
      secret: () => HOOK_SECRET,
      scheme: 'github',
      body: z.object({ order: z.number(), cents: z.number() }),
      signal: ({ body }) => ({ to: { key: `order:${body.order}` }, name: 'paid', payload: { cents: body.cents } }),
    }),
  ],
  steps: {
    wait: ({ waitFor }) => waitFor('paid', { goto: 'end', timeout: '1h' }),
    end: ({ signals, done, fail }) => {
      const paid = signals.first('paid')
      return paid ? done({ cents: paid.payload.cents }) : fail('never paid')
    },
  },
})

const listener = machine({
  name: 'listener',
  state: z.object({}),
  output: z.object({ day: z.string() }),
  events: { opened: z.object({ day: z.string() }) },
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('opened', { goto: 'end', timeout: '1h' }),
    end: ({ signals, done, fail }) => {
      const opened = signals.first('opened')
      return opened ? done(opened.payload) : fail('never opened')
    },
  },
})

export interface Sent {
  readonly body?: unknown
  /** Sent as it is, in place of `body`. */
  readonly raw?: BodyInit
  /** Null: no Authorization. Default: the root key. */
  readonly key?: string | null
  readonly headers?: Readonly<Record<string, string>>
}

export interface Answer {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // what the tests look into
  readonly body: Record<string, unknown> & { readonly errors?: readonly { readonly pointer: string; readonly detail: string }[] }
}

export interface ApiSubject {
  readonly engine: TestEngine
  readonly app: Hono
  /** Times the host was told that something may have to run. */
  readonly kicks: () => number
  readonly send: (method: string, path: string, sent?: Sent) => Promise<Answer>
  /** Rows of every table, by name. */
  readonly countRows: () => Promise<Readonly<Record<string, number>>>
  /** Another app over the same engine, with its own memory. */
  readonly appWith: (options: Partial<ApiContext>) => Hono
  readonly close: () => Promise<void>
}

export async function apiSubject(version: PostgresVersion = 18, options: Partial<EngineOptions> = {}): Promise<ApiSubject> {
  const engine = await startEngine({ definitions: [greet, echo, fails, order, listener], version, ...options })
  let kicks = 0
  const base: ApiContext = {
    calls: createCalls({ store: engine.store, registry: engine.registry }),
    store: engine.store,
    registry: engine.registry,
    tick: (source) => engine.ticker.tick(source),
    access: { rootKey: ROOT_KEY, cronSecret: CRON_SECRET },
    env: {},
    kick: () => {
      kicks += 1
    },
    build: { version: '0.0.0-test' },
  }
  const appWith = (given: Partial<ApiContext>) => createApi(() => ({ ...base, ...given }))
  const app = appWith({})
  return {
    engine,
    app,
    kicks: () => kicks,
    send: (method, path, sent) => sendTo(app, method, path, sent),
    countRows: () => countRows(engine),
    appWith,
    close: engine.close,
  }
}

export async function sendTo(app: Hono, method: string, path: string, sent: Sent = {}): Promise<Answer> {
  const { body, raw, key = ROOT_KEY } = sent
  const headers = new Headers(key === null ? {} : { authorization: `Bearer ${key}` })
  if (body !== undefined) headers.set('content-type', 'application/json')
  for (const [name, value] of Object.entries(sent.headers ?? {})) headers.set(name, value)
  const init: RequestInit & { duplex: 'half' } = { method, headers, duplex: 'half' }
  if (raw !== undefined || body !== undefined) init.body = raw ?? JSON.stringify(body)
  const response = await app.request(path.startsWith('http') ? path : `http://api.test${path}`, init)
  const text = await response.text()
  return {
    status: response.status,
    headers: response.headers,
    text,
    body: text !== '' && /json/.test(response.headers.get('content-type') ?? '') ? JSON.parse(text) : {},
  }
}

async function countRows(engine: TestEngine): Promise<Readonly<Record<string, number>>> {
  const tables = await engine.sql<string>(
    "SELECT table_name FROM information_schema.tables WHERE table_schema = 'pawl' ORDER BY 1",
  )
  const counts: Record<string, number> = {}
  for (const table of tables) counts[table] = (await engine.sql<number>(`SELECT count(*)::int FROM pawl.${table}`))[0] ?? -1
  return counts
}
