import { afterAll, beforeAll, expect, test } from 'vitest'
import * as z from 'zod'
import { createApi } from '../../src/api/app.ts'
import { createCalls } from '../../src/client/calls.ts'
import { job } from '../../src/core/job.ts'
import { startEngine, type TestEngine } from '../support/engine.ts'
import { ROOT_KEY, sendTo } from './subject.ts'

const by = { by: ['kind'] as const }
const one = z.object({ kind: z.string(), n: z.number() })
const last = job({ name: 'last', input: one, debounce: { ...by, wait: '1h' }, run: ({ input }) => input })
const first = job({ name: 'first', input: one, throttle: { ...by, per: '1h' }, run: ({ input }) => input })
const all = job({ name: 'all', input: z.array(z.number()), batch: { wait: '1h', size: 1_000 }, run: ({ input }) => input })

let engine: TestEngine
const app = createApi(() => ({
  calls: createCalls({ store: engine.store, registry: engine.registry }),
  store: engine.store,
  registry: engine.registry,
  access: { rootKey: ROOT_KEY },
  env: {},
  kick: () => {},
  build: { version: '0.0.0-test' },
}))

beforeAll(async () => {
  engine = await startEngine({ definitions: [last, first, all], connections: 12 })
})
afterAll(() => engine.close())

const inputOf = (definition: string, kind: string, n: number) => (definition === 'all' ? [n] : { kind, n })
const send = (definition: string, key: string, input: unknown) =>
  sendTo(app, 'POST', '/v1/runs', { body: { definition, input }, headers: { 'idempotency-key': key } })
const sendBatch = (definition: string, key: string, inputs: readonly unknown[]) =>
  sendTo(app, 'POST', '/v1/runs/batch', {
    body: { runs: inputs.map((input) => ({ definition, input })) },
    headers: { 'idempotency-key': key },
  })

/** The numbers that have gone into runs of a definition and a kind. */
async function takenIn(definition: string, kind: string, above: number): Promise<readonly number[]> {
  const inputs = await engine.sql<unknown>(
    `SELECT r.input FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id WHERE l.definition = $1 AND (jsonb_typeof(r.input) = 'array' OR r.input ->> 'kind' = $2)`,
    [definition, kind],
  )
  return inputs
    .flatMap((input) => (Array.isArray(input) ? (input as number[]) : [(input as { n: number }).n]))
    .filter((n) => n >= above)
    .sort((left, right) => left - right)
}

const DEFINITIONS = ['last', 'first', 'all'] as const

test.each(DEFINITIONS)(
  'C015 C270 %s: two bodies under one Idempotency-Key at once: one is taken in, the other is refused, and of it nothing is',
  async (definition) => {
    const above = 1_000
    const rounds = Array.from({ length: 12 }, (_, n) => n)
    const pairs = await Promise.all(
      rounds.map((n) =>
        Promise.all(
          [above + 2 * n, above + 2 * n + 1, above + 2 * n].map((value) =>
            send(definition, `${definition}-two-${n}`, inputOf(definition, 'two', value)),
          ),
        ),
      ),
    )
    const accepted: number[] = []
    for (const [n, [left, right, again]] of pairs.entries()) {
      const isLeft = left!.status < 300
      expect([left!.status < 300, right!.status < 300, again!.status < 300]).toEqual([isLeft, !isLeft, isLeft])
      const refused = isLeft ? right! : left!
      expect([refused.status, refused.body.code]).toEqual([422, 'idempotency_mismatch'])
      if (isLeft) expect(again!.body).toEqual(left!.body)
      accepted.push(above + 2 * n + (isLeft ? 0 : 1))
    }
    const taken = await takenIn(definition, 'two', above)
    if (definition === 'all') expect(taken).toEqual(accepted)
    else expect([taken.length, accepted.includes(taken[0]!)]).toEqual([1, true])
  },
)

test.each(DEFINITIONS)(
  'C015 C270 %s: the same key again, later and at once, after its run has started and after it has ended, is answered as the first time',
  async (definition) => {
    const above = 5_000
    const input = inputOf(definition, 'again', above)
    const answers = await Promise.all(Array.from({ length: 8 }, () => send(definition, `${definition}-again`, input)))
    expect(new Set(answers.map(({ status, body }) => JSON.stringify([status, body]))).size).toBe(1)
    expect(answers.filter(({ headers }) => headers.get('idempotent-replayed') !== 'true')).toHaveLength(1)
    engine.advance(3_600_000)
    await engine.tick()
    const later = await Promise.all(Array.from({ length: 4 }, () => send(definition, `${definition}-again`, input)))
    for (const { status, body, headers } of later)
      expect([status, body, headers.get('idempotent-replayed')]).toEqual([answers[0]!.status, answers[0]!.body, 'true'])
    const other = await send(definition, `${definition}-again`, inputOf(definition, 'again', above + 1))
    expect([other.status, other.body.code]).toEqual([422, 'idempotency_mismatch'])
    expect(await takenIn(definition, 'again', above)).toEqual([above])
  },
)

test.each(DEFINITIONS)(
  'C015 C270 %s: a batch under one key that is sent eight times at once is taken in once, each answered alike; with one other item that one is refused',
  async (definition) => {
    const above = 9_000
    const inputs = [0, 1, 2, 3].map((n) => inputOf(definition, 'batch', above + n))
    const answers = await Promise.all(Array.from({ length: 8 }, () => sendBatch(definition, `${definition}-batch`, inputs)))
    const told = answers.map(({ body }) =>
      (body.items as readonly { id: string; created: boolean }[]).map(({ id, created }) => [id, created]),
    )
    for (const one of told) expect(one).toEqual(told[0])
    const other = await sendBatch(definition, `${definition}-batch`, [
      ...inputs.slice(0, 3),
      inputOf(definition, 'batch', above + 9),
    ])
    const items = other.body.items as readonly { id?: string; error?: { code: string } }[]
    expect(items.slice(0, 3).map(({ id }) => id)).toEqual(told[0]!.slice(0, 3).map(([id]) => id))
    expect(JSON.stringify(items[3])).toContain('idempotency_mismatch')
    const taken = await takenIn(definition, 'batch', above)
    if (definition === 'all') expect(taken).toEqual([above, above + 1, above + 2, above + 3])
    else expect(taken).toEqual([definition === 'first' ? above : above + 3])
  },
)
