import { afterAll, beforeAll, expect, test } from 'vitest'
import * as z from 'zod'
import { createApi } from '../../src/api/app.ts'
import { createCalls } from '../../src/client/calls.ts'
import { createClient } from '../../src/client/index.ts'
import { job } from '../../src/core/job.ts'
import { startEngine, type TestEngine } from '../support/engine.ts'
import { ROOT_KEY, sendTo } from './subject.ts'

const once = job({ name: 'once', input: z.object({ to: z.string(), n: z.number() }), unique: { by: ['to'] }, run: () => null })
const fails = job({ name: 'fails', input: z.string(), unique: {}, run: ({ fail }) => fail('as told') })
const last = job({ name: 'last', input: z.number(), debounce: { wait: '1h' }, run: () => null })
const rows = job({ name: 'rows', input: z.array(z.number()), batch: { wait: '1h', size: 3 }, run: ({ input }) => input.length })
const DEFINITIONS = [once, fails, last, rows] as const

let engine: TestEngine
let kicks = 0
const app = createApi(() => ({
  calls: createCalls({ store: engine.store, registry: engine.registry }),
  store: engine.store,
  registry: engine.registry,
  access: { rootKey: ROOT_KEY },
  env: {},
  kick: () => {
    kicks += 1
  },
  build: { version: '0.0.0-test' },
}))
const spawn = (body: object, headers: Record<string, string> = {}) => sendTo(app, 'POST', '/v1/runs', { body, headers })

beforeAll(async () => {
  engine = await startEngine({ definitions: DEFINITIONS, connections: 8 })
})
afterAll(() => engine.close())

test('C019 C020 the same again is answered 200 with the run that is there, in a batch per item', async () => {
  const first = await spawn({ definition: 'once', input: { to: 'a', n: 1 } })
  expect(first.status).toBe(201)
  const again = await spawn({ definition: 'once', input: { n: 2, to: 'a' } })
  expect([again.status, again.body]).toEqual([200, { id: first.body.id, status: 'pending', created: false }])
  const items = ['a', 'b', 'b'].map((to, n) => ({ definition: 'once', input: { to, n } }))
  const batch = await sendTo(app, 'POST', '/v1/runs/batch', { body: { runs: items } })
  const answers = batch.body.items as readonly { id: string; created: boolean }[]
  expect(answers.map(({ created }) => created)).toEqual([false, true, false])
  expect(answers[2]?.id).toBe(answers[1]?.id)
})

test('C023 a call reschedules over HTTP, is answered so and replayed so, and kicks', async () => {
  const first = await spawn({ definition: 'once', input: { to: 'later', n: 1 }, delay: '1h' })
  const before = kicks
  const moving = { definition: 'once', input: { to: 'later', n: 2 }, delay: '2h', onConflict: 'reschedule' }
  const moved = await spawn(moving, { 'idempotency-key': 'move' })
  expect([moved.status, moved.body]).toEqual([200, { id: first.body.id, status: 'pending', created: false, rescheduled: true }])
  expect(kicks).toBe(before + 1)
  const replayed = await spawn(moving, { 'idempotency-key': 'move' })
  expect([replayed.body, replayed.headers.get('idempotent-replayed')]).toEqual([moved.body, 'true'])
  const wrong = await spawn({ ...moving, onConflict: 'replace' })
  expect([wrong.status, wrong.body.errors?.[0]?.pointer]).toEqual([422, '/onConflict'])
})

test('C270 gathered spawns say that their input was taken in; what they cannot have is refused with a pointer', async () => {
  const first = await spawn({ definition: 'last', input: 1 })
  expect((await spawn({ definition: 'last', input: 2 })).body).toEqual({
    id: first.body.id,
    status: 'pending',
    created: false,
    gathered: true,
  })
  const keyed = await spawn({ definition: 'last', input: 3, key: 'k' })
  expect([keyed.status, keyed.body.code, keyed.body.errors?.[0]?.pointer]).toEqual([422, 'invalid_request', '/key'])
  const long = await spawn({ definition: 'rows', input: [1, 2, 3, 4] })
  expect([long.status, long.body.code]).toEqual([422, 'invalid_input'])
})

test('C015 C270 each request that is sent twice at once is taken in once, answered the same, and so again when its run has ended', async () => {
  const inputs = Array.from({ length: 16 }, (_, n) => 100 + n)
  const send = (definition: string, n: number) =>
    spawn({ definition, input: definition === 'last' ? n : [n] }, { 'idempotency-key': `${definition}-${n}` })
  for (const definition of ['rows', 'last']) {
    const pairs = await Promise.all(inputs.map((n) => Promise.all([send(definition, n), send(definition, n)])))
    for (const [one, other] of pairs) {
      expect([200, 201]).toContain(one.status)
      expect([other.status, other.body]).toEqual([one.status, one.body])
      const replayed = [one, other].map(({ headers }) => headers.get('idempotent-replayed'))
      expect(replayed.filter((value) => value === 'true')).toHaveLength(1)
    }
    const ids = new Set(pairs.map(([one]) => String(one.body.id)))
    const runs = await Promise.all([...ids].map((id) => engine.run(id)))
    const taken = runs.flatMap(({ input }) => input as number[])
    if (definition === 'rows') expect(taken.sort()).toEqual(inputs)
    else expect([runs.length, inputs.includes(taken[0] as number)]).toEqual([1, true])
    engine.advance(3_600_000)
    await engine.tick()
    const before = await engine.sql<number>('SELECT count(*)::int FROM pawl.runs')
    for (const [n, [one]] of pairs.entries()) {
      const later = await send(definition, inputs[n] as number)
      expect([later.status, later.body, later.headers.get('idempotent-replayed')]).toEqual([one.status, one.body, 'true'])
    }
    expect(await engine.sql<number>('SELECT count(*)::int FROM pawl.runs')).toEqual(before)
  }
})

test('C270 C023 the typed client answers the same', async () => {
  const client = createClient<{ definitions: typeof DEFINITIONS }>({
    url: 'https://pawl.test',
    key: ROOT_KEY,
    fetch: async (url, init) => app.request(url, init),
  })
  const { id } = await client.spawn('rows', [1])
  expect(await client.spawn('rows', [2])).toEqual({ id, status: 'pending', created: false, gathered: true, replayed: false })
  const once1 = await client.spawn('once', { to: 'client', n: 1 }, { delay: '1h' })
  const moved = await client.spawn('once', { to: 'client', n: 1 }, { delay: '2h', onConflict: 'reschedule' })
  expect(moved).toEqual({ id: once1.id, status: 'pending', created: false, rescheduled: true, replayed: false })
})

test('a retry that finds its uniqueness taken is 409 key_taken and names the holder', async () => {
  const first = await spawn({ definition: 'fails', input: 'x' })
  await engine.tick()
  const second = await spawn({ definition: 'fails', input: 'x', delay: '1h' })
  const retried = await sendTo(app, 'POST', `/v1/runs/${first.body.id}/retry`)
  expect([retried.status, retried.body.code, retried.body.got]).toEqual([409, 'key_taken', second.body.id])
})
