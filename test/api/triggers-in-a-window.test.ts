import { expect, test } from 'vitest'
import * as z from 'zod'
import { signDelivery } from '../../src/core/delivery.ts'
import { job } from '../../src/core/job.ts'
import { webhook } from '../../src/core/trigger.ts'
import { type ApiSubject, apiSubject, HOOK_SECRET } from './subject.ts'

const BODY = z.object({ n: z.number() })
const WINDOW_MS = 60_000
/** More than go into one window from each client: 8 at once send 100. */
const [CLIENTS, TRIGGERS] = [8, 100]

const HOOK = { secret: () => HOOK_SECRET, body: BODY } as const

const last = job({
  name: 'last',
  input: z.number(),
  debounce: { wait: '1m' },
  triggers: [webhook({ ...HOOK, name: 'last', spawn: ({ body }) => body.n })],
  run: ({ input }) => input,
})
const first = job({
  name: 'first',
  input: z.number(),
  throttle: { per: '1m' },
  triggers: [webhook({ ...HOOK, name: 'first', spawn: ({ body }) => body.n })],
  run: ({ input }) => input,
})
const all = job({
  name: 'all',
  input: z.array(z.number()),
  batch: { wait: '1m', size: 1_000 },
  triggers: [webhook({ ...HOOK, name: 'all', spawn: ({ body }) => [body.n] })],
  run: ({ input }) => input,
})

type Name = 'last' | 'first' | 'all'

const toInput = (definition: Name, n: number) => (definition === 'all' ? [n] : n)

/** One trigger, and the id of the run that it is in. */
type Trigger = (subject: ApiSubject, definition: Name, n: number) => Promise<{ readonly id: string; readonly created: boolean }>

const call: Trigger = async (subject, definition, n) => {
  const { status, body } = await subject.send('POST', '/v1/runs', { body: { definition, input: toInput(definition, n) } })
  expect(status).toBe(body.created ? 201 : 200)
  return { id: String(body.id), created: body.created === true }
}

const deliver: Trigger = async (subject, definition, n) => {
  const raw = JSON.stringify({ n })
  const rawBody = new TextEncoder().encode(raw)
  const deliveryId = `${definition}-${n}`
  const signed = await signDelivery({ deliveryId, rawBody, secret: HOOK_SECRET, now: new Date(), scheme: 'standard' })
  const headers = { 'content-type': 'application/json', ...signed }
  const { status, body } = await subject.send('POST', `/hooks/${definition}`, { raw, key: null, headers })
  expect(status).toBe(202)
  return { id: String(body.id), created: body.created === true }
}

/** One after the other from each client, eight clients at once; the very first and the very last are by themselves. */
async function triggerAll(subject: ApiSubject, trigger: Trigger, definition: Name) {
  const numbers = Array.from({ length: TRIGGERS }, (_, n) => n)
  const answers = [await trigger(subject, definition, 0)]
  const between = numbers.slice(1, -1)
  const send = async (client: number) => {
    for (const n of between.filter((other) => other % CLIENTS === client)) answers.push(await trigger(subject, definition, n))
  }
  await Promise.all(Array.from({ length: CLIENTS }, (_, client) => send(client)))
  answers.push(await trigger(subject, definition, TRIGGERS - 1))
  return { answers, numbers }
}

test.each([
  ['calls', call],
  ['deliveries', deliver],
] as const)(
  'C173 C270 a hundred %s in the window, from eight at once, make one run: with the last input, the first, or all of them',
  async (_, trigger) => {
    const subject = await apiSubject(18, { definitions: [last, first, all], frozen: true, connections: 12 })
    const tick = async () => (await subject.send('POST', '/v1/tick')).body
    for (const definition of ['last', 'first', 'all'] as const) {
      const { answers, numbers } = await triggerAll(subject, trigger, definition)
      expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
      expect(answers.map(({ created }) => created)).toEqual([true, ...Array(TRIGGERS - 1).fill(false)])
      if (definition !== 'first') {
        subject.engine.advance(WINDOW_MS - 1)
        expect(await tick()).toMatchObject({ claimed: 0 })
        subject.engine.advance(1)
      }
      expect(await tick()).toMatchObject({ claimed: 1, completed: 1 })
      const { body } = await subject.send('GET', `/v1/runs/${answers[0]?.id}`)
      expect(body.status).toBe('completed')
      if (definition === 'all') {
        const result = body.result as number[]
        expect([result[0], result.at(-1)]).toEqual([0, TRIGGERS - 1])
        expect([...result].sort((left, right) => left - right)).toEqual(numbers)
      } else expect(body.result).toBe(definition === 'last' ? TRIGGERS - 1 : 0)
      if (definition === 'first') {
        // its run has ended, its window has not
        subject.engine.advance(WINDOW_MS - 1)
        expect(await trigger(subject, definition, TRIGGERS + 1)).toEqual({ id: answers[0]?.id, created: false })
      }
      expect((await subject.send('GET', `/v1/runs?definition=${definition}`)).body.items).toHaveLength(1)
    }
    // the window is over: what comes now is in the next one
    subject.engine.advance(WINDOW_MS)
    for (const definition of ['last', 'first', 'all'] as const)
      expect(await trigger(subject, definition, TRIGGERS)).toMatchObject({ created: true })
    await subject.close()
  },
)
