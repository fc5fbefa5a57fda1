import { afterAll, beforeAll, expect, test } from 'vitest'
import * as z from 'zod'
import { createApi } from '../../src/api/app.ts'
import { createClient } from '../../src/client/index.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { type ConnectedPawl, createPawl, type Database, endOf, job, machine } from '../../src/index.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'

const bake = job({ name: 'bake', input: z.object({ loaves: z.number() }), run: ({ input }) => ({ baked: input.loaves }) })

const shop = machine({
  name: 'shop',
  state: z.object({ baking: z.string() }),
  events: { opened: z.object({ day: z.string() }), holiday: z.null() },
  output: z.object({ day: z.string(), baked: z.number() }),
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor(['opened', 'holiday'], { goto: 'bake' }),
    bake: ({ signals, state, waitFor, fail }) => {
      const opened = signals.first('opened')
      return opened ? waitFor(endOf(state.baking), { goto: 'sell' }) : fail('closed')
    },
    sell: ({ children, done, fail }) => {
      const [end] = children(bake)
      return end?.status === 'completed' ? done({ day: 'Monday', baked: end.result.baked }) : fail('burnt')
    },
  },
})
const pawl = createPawl({ definitions: [bake, shop] })
const ROOT = 'root-key-for-tests-only'

let fresh: FreshDatabase
let database: Database
let connected: ConnectedPawl<typeof pawl.definitions>
let kicks = 0
const app = createApi(() => ({
  ...connected,
  access: { rootKey: ROOT },
  env: {},
  build: { version: '0.0.0' },
}))
const client = createClient<typeof pawl>({
  url: 'https://pawl.test',
  key: ROOT,
  fetch: async (url, init) => app.request(url, init),
})
const tick = () =>
  connected
    .createTicker({ budget: { wallMs: 30_000, requests: 1_000, concurrency: 10, batch: 10, lanes: 1, lingerMs: 0 } })
    .tick('test')

beforeAll(async () => {
  fresh = await freshDatabase()
  database = nodePostgres({ connectionString: fresh.connectionString, max: 4 })
  connected = pawl.connect({
    database,
    onCommit: () => {
      kicks += 1
    },
  })
})
afterAll(async () => {
  await database.close()
  await fresh.close()
})

test('C118 C148 an application emits and kicks; the run goes on to the end of another one, typed all the way', async () => {
  const { id: baking } = await connected.spawn(bake, { loaves: 12 }, { delay: '1h' })
  const { id } = await connected.spawn(shop, { baking })
  await tick()
  const before = kicks
  const first = await connected.emit('opened', { day: 'Monday' }, { retention: '1h' })
  expect(kicks - before).toBe(1)
  expect(first).toMatchObject({ name: 'opened', created: true, replayed: false })
  expect(await client.emit('opened', { day: 'Tuesday' })).toEqual({ ...first, created: false })
  await tick()
  expect(await client.run(id)).toMatchObject({ status: 'waiting', waitingFor: { kind: 'signals', names: [], runs: [baking] } })
  await fresh.pool().query('UPDATE pawl.runs SET timer_at = now() WHERE id = $1', [baking])
  await tick()
  expect(await client.result('shop', id)).toEqual({ id, status: 'completed', result: { day: 'Monday', baked: 12 } })
})

test('an event is emitted once under its idempotency key, and the answer of the first time is given again', async () => {
  const options = { idempotencyKey: 'holiday 1', retention: '1h' } as const
  const first = await client.emit('holiday', null, options)
  expect(first).toMatchObject({ created: true, replayed: false })
  expect(await connected.emit('holiday', null, { ...options })).toEqual({ ...first, replayed: true })
  await expect(client.emit('holiday', null, { idempotencyKey: 'holiday 1' })).rejects.toMatchObject({
    code: 'idempotency_mismatch',
  })
})

test('C135 as statements of a batch of the caller’s, an event is emitted once that is committed', async () => {
  await fresh.pool().query("UPDATE pawl.events SET expires_at = '-infinity'")
  const { id } = await connected.spawn(shop, { baking: 'none' })
  await tick()
  const { statements, afterCommit, read } = await connected.statements.emit('holiday', null, { retention: '1h' })
  const session = await fresh.pool({ max: 1 }).connect()
  await session.query('BEGIN ISOLATION LEVEL READ COMMITTED')
  const replies = []
  for (const { text, params } of statements) replies.push((await session.query(text, params)).rows)
  await session.query('COMMIT')
  session.release()
  expect(read(replies)).toEqual({ name: 'holiday' })
  afterCommit()
  await tick()
  expect(await connected.result(shop, id)).toMatchObject({ status: 'failed', error: { message: 'closed' } })
  await expect(connected.statements.emit('holiday', null, { idempotencyKey: 'k' } as object)).rejects.toMatchObject({
    code: 'invalid_request',
    field: 'idempotencyKey',
  })
})

test('an event that nobody declares and a payload that does not match are refused before anything is sent', async () => {
  const sent = database.requests
  // @ts-expect-error no definition has this event
  await expect(connected.emit('closed')).rejects.toMatchObject({ code: 'invalid_event' })
  // @ts-expect-error it carries an object
  await expect(connected.emit('opened', 'Monday')).rejects.toMatchObject({ code: 'invalid_event', errors: [{ pointer: '' }] })
  await expect(connected.emit('opened', { day: 'x' }, { retention: 1 })).rejects.toMatchObject({ code: 'invalid_request' })
  expect(database.requests).toBe(sent)
})

test('names of events and of signals differ, and no signal is called like an event', () => {
  const make = (signals: object, events: object) => () =>
    machine({
      name: 'm',
      state: z.object({}),
      signals: { ...signals },
      events: { ...events },
      initial: 'a',
      steps: { a: ({ done }) => done(undefined) },
    })
  expect(make({ a: z.null() }, { a: z.null() })).toThrow(
    'machine "m".events: got "a", allowed is names that are not those of its signals',
  )
  expect(make({ 'event:a': z.null() }, {})).toThrow('machine "m".signals: got "event:a"')
})
