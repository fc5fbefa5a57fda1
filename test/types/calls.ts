/** What must, and what must not, compile of calls. Checked by `tsc`: an unused @ts-expect-error is an error. */
import * as z from 'zod'
import { type ConnectedPawl, createClient, createPawl, job, machine, type RunResult } from '../../src/index.ts'

type Eq<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
type Got<T> = Awaited<T>

const mail = job({ name: 'mail', input: z.object({ to: z.string() }), run: ({ input }) => ({ sentTo: input.to }) })
const sweep = job({ name: 'sweep', run: () => 7 })
const order = machine({
  name: 'order',
  state: z.object({ order: z.number() }),
  signals: { paid: z.object({ cents: z.number() }), cancelled: z.null(), note: z.string() },
  output: z.object({ paid: z.number() }),
  initial: 'a',
  steps: { a: ({ done }) => done({ paid: 1 }) },
})
const survey = machine({
  name: 'survey',
  state: z.object({}),
  signals: { note: z.object({ stars: z.number() }) },
  initial: 'a',
  steps: { a: ({ done }) => done(undefined) },
})
const pawl = createPawl({ definitions: [mail, sweep, order, survey] })
declare const connected: ConnectedPawl<typeof pawl.definitions>
const client = createClient<typeof pawl>({ url: 'https://example.org' })

export async function inProcess() {
  await connected.spawn(mail, { to: 'x' }, { key: 'k', delay: '1 day', idempotencyKey: 'i', tenant: 't' })
  await connected.spawn(sweep)
  await connected.spawn(order, { order: 1 })
  // @ts-expect-error the input of another definition
  await connected.spawn(mail, { order: 1 })
  // @ts-expect-error an input is required
  await connected.spawn(mail)
  // @ts-expect-error no such option
  await connected.spawn(mail, { to: 'x' }, { queu: 'mails' })
  // @ts-expect-error a duration bears its unit
  await connected.spawn(mail, { to: 'x' }, { delay: '5 parsecs' })
  await connected.spawnMany([mail.with({ to: 'x' }), { definition: 'elsewhere', version: 2, queue: 'q' }])

  await connected.signal({ id: 'x' }, 'paid', { cents: 1 })
  await connected.signal({ key: 'k', definition: order }, 'cancelled')
  await connected.signal({ key: 'k', definition: survey }, 'note', { stars: 5 })
  await connected.signal({ key: 'k' }, 'note', 'a text')
  // @ts-expect-error the other definition takes a text
  await connected.signal({ key: 'k', definition: survey }, 'note', 'a text')
  // @ts-expect-error that definition does not know it
  await connected.signal({ key: 'k', definition: survey }, 'paid', { cents: 1 })
  // @ts-expect-error no definition declares it
  await connected.signal({ id: 'x' }, 'payd', { cents: 1 })
  // @ts-expect-error a payload of the wrong type
  await connected.signal({ id: 'x' }, 'paid', { cents: 'x' })
  // @ts-expect-error a payload is required
  await connected.signal({ id: 'x' }, 'paid')

  const sent = await connected.result(mail, 'id', { wait: '5s' })
  if (sent.status === 'completed') return sent.result.sentTo
  if (sent.status === 'failed') return sent.error.code
  // @ts-expect-error nothing is known of a run that has not ended
  return sent.result
}

export async function overHttp() {
  await client.spawn('mail', { to: 'x' }, { delay: 5 })
  await client.spawn('sweep')
  // @ts-expect-error unknown definition
  await client.spawn('male', { to: 'x' })
  // @ts-expect-error wrong input
  await client.spawn('mail', { to: 1 })
  // @ts-expect-error the tenant is the key's
  await client.spawn('mail', { to: 'x' }, { tenant: 't' })
  await client.spawnMany([
    { definition: 'mail', input: { to: 'x' }, priority: 1 },
    { definition: 'order', input: { order: 1 } },
  ])
  // @ts-expect-error the input of another definition
  await client.spawnMany([{ definition: 'order', input: { to: 'x' } }])
  await client.signal({ key: 'k', definition: 'order' }, 'paid', { cents: 1 })
  // @ts-expect-error undeclared
  await client.signal({ id: 'x' }, 'payd', { cents: 1 })
  // @ts-expect-error unknown definition
  await client.signal({ key: 'k', definition: 'odrer' }, 'paid', { cents: 1 })
  const paid = await client.result('order', 'id')
  return paid.status === 'completed' ? paid.result.paid.toFixed() : undefined
}

export const results: [
  Eq<Got<ReturnType<typeof connected.result<typeof mail>>>, RunResult<{ sentTo: string }>>,
  Eq<Got<ReturnType<typeof connected.result<typeof order>>>, RunResult<{ paid: number }>>,
  Eq<Got<ReturnType<typeof client.result<'sweep'>>>, RunResult<number>>,
  Eq<Got<ReturnType<typeof client.result<'survey'>>>, RunResult<null>>,
] = [true, true, true, true]
