/**
 * `npm run demo`: real runs on an embedded database, over HTTP, with a crash in the middle. Ends with exit code 0 when everything is as
 * expected, else 1.
 */
import { writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { createClient, type DetailedRun, type HttpClient } from '../../src/client/index.ts'
import { signDelivery } from '../../src/core/delivery.ts'
import type { pawl } from './definitions.ts'
import { countDone, countInterrupted, readEffects } from './effects.ts'
import { type EngineProcess, type EngineSetting, startEngine } from './engine-process.ts'
import { type FileServer, startFileServer } from './file-server.ts'
import { Story } from './story.ts'

type Client = HttpClient<typeof pawl>

const MEASUREMENTS = 50
/** The engine is killed once so many measurements are done: the others are in flight then. */
const DONE_BEFORE_CRASH = 15
const WEBHOOK_SECRET = 'whsec_ZGVtby1kZW1vLWRlbW8tZGVtby1kZW1vLWRlbW8='
/** Longer than anything here takes on a slow machine, in milliseconds. */
const PATIENCE_MS = 45_000

const story = new Story()
const folder = await mkdtemp(join(tmpdir(), 'pawl-demo-'))
const setting: EngineSetting = {
  database: join(folder, 'database'),
  effects: join(folder, 'effects.jsonl'),
  webhookSecret: WEBHOOK_SECRET,
}
writeFileSync(setting.effects, '')

interface Spawned {
  readonly files: readonly string[]
  readonly orders: readonly [string, string]
  readonly survey: string
}

async function main(server: FileServer): Promise<void> {
  const first = await start('an embedded PostgreSQL in a temporary folder, the API and the engine')
  const client = clientOf(first)
  const spawned = await spawnAll(client, server)
  await sendWebhook(first.url, { order: 1, cents: 4_200 })
  story.tell('the payment of order 1 came in by its signed webhook')
  await crash(first)
  const second = await start('the engine again, on the same folder: the lock of the dead process is taken over')
  try {
    await signalOrders(clientOf(second))
    await checkAll(clientOf(second), spawned, server)
  } finally {
    await second.stop()
  }
}

async function start(what: string): Promise<EngineProcess> {
  story.tell(`starting ${what}`)
  const engine = await startEngine(setting)
  story.tell(`process ${engine.pid} serves ${engine.url}/v1`)
  return engine
}

function clientOf({ url }: EngineProcess): Client {
  return createClient<typeof pawl>({ url })
}

async function spawnAll(client: Client, server: FileServer): Promise<Spawned> {
  const files: string[] = []
  for (const { url } of server.files) files.push((await client.spawn('fetch-file', { url })).id)
  const one = await client.spawn('checkout', { order: 1 })
  const two = await client.spawn('checkout', { order: 2 })
  const survey = await client.spawn('survey', { width: MEASUREMENTS })
  story.tell(`spawned ${files.length} downloads, 2 checkouts and a survey with ${MEASUREMENTS} measurements`)
  return { files, orders: [one.id, two.id], survey: survey.id }
}

async function sendWebhook(url: string, body: { readonly order: number; readonly cents: number }): Promise<void> {
  const rawBody = new TextEncoder().encode(JSON.stringify(body))
  const headers = await signDelivery({ deliveryId: `pay-${body.order}`, rawBody, secret: WEBHOOK_SECRET, now: new Date() })
  const send = (signed: Readonly<Record<string, string>>) =>
    fetch(`${url}/hooks/payments`, {
      method: 'POST',
      body: rawBody,
      headers: { 'content-type': 'application/json', ...signed },
    })
  story.check(
    'a delivery with a wrong signature is refused',
    (await send({ ...headers, 'webhook-signature': 'v1,AAAA' })).status === 401,
  )
  story.check('a signed one is accepted', (await send(headers)).status === 202)
  story.check('the same one again is not done twice', (await send(headers)).headers.get('idempotent-replayed') === 'true')
}

/** Kills the engine while measurements are in flight: some are done, others are not, and nobody was told. */
async function crash(engine: EngineProcess): Promise<void> {
  await until(() => countDone(readEffects(setting.effects)) >= DONE_BEFORE_CRASH)
  await engine.kill()
  const interrupted = countInterrupted(readEffects(setting.effects))
  story.tell(`kill -9 ${engine.pid}: ${interrupted} steps were in flight`)
  story.check('the crash interrupted something', interrupted > 0)
}

async function signalOrders(client: Client): Promise<void> {
  await client.signal({ key: 'order:2' }, 'paid', { cents: 990 })
  await client.signal({ key: 'order:1', definition: 'checkout' }, 'shipped', { parcel: 'P-1' })
  await client.signal({ key: 'order:2', definition: 'checkout' }, 'shipped', { parcel: 'P-2' })
  story.tell('both orders, which waited through the crash, were signalled by their keys')
}

async function checkAll(client: Client, { files, orders, survey }: Spawned, server: FileServer): Promise<void> {
  const downloads = await Promise.all(files.map((id) => ended(client, id)))
  story.tell('the downloads are there')
  downloads.forEach(({ result }, index) => {
    const { bytes, sha256 } = server.files[index] ?? { bytes: 0, sha256: '' }
    story.check(`file ${index}: ${bytes} bytes, ${sha256.slice(0, 12)}…`, isDeepStrictEqual(result, { bytes, sha256 }), result)
  })
  story.check('the server that failed twice was asked again', server.failures() === 2, server.failures())
  const [one, two] = [await ended(client, orders[0]), await ended(client, orders[1])]
  story.tell('the checkouts are through')
  story.check(
    'order 1: 4200 cents by webhook, parcel P-1',
    isDeepStrictEqual(one.result, { order: 1, cents: 4_200, parcel: 'P-1' }),
    one,
  )
  story.check(
    'order 2: 990 cents by signal, parcel P-2',
    isDeepStrictEqual(two.result, { order: 2, cents: 990, parcel: 'P-2' }),
    two,
  )
  await tellHistory(client, orders[0])
  const { result } = await ended(client, survey)
  const expected = Array.from({ length: MEASUREMENTS }, (_, n) => n * n).reduce((sum, square) => sum + square, 0)
  story.tell(`the survey joined its ${MEASUREMENTS} measurements`)
  story.check(`their sum is ${expected}`, result === expected, result)
  await checkEffects(client, [...downloads, ...(await childrenOf(client, survey))])
}

/** Every commit of a run is kept: what `pawl show` and `GET /v1/runs/{id}/history` tell. */
async function tellHistory(client: Client, id: string): Promise<void> {
  const { items } = await client.history(id)
  for (const { finishedAt, step, outcome } of items) story.note(`${finishedAt.slice(11, 23)}  ${step}: ${outcome}`)
}

/** A step may be begun again after a crash, never more often than it was attempted, and its outcome counts once. */
async function checkEffects(client: Client, runs: readonly Pick<DetailedRun, 'id' | 'status' | 'attempt'>[]): Promise<void> {
  const effects = readEffects(setting.effects)
  const { items } = await client.list({ limit: 500 })
  const total = items.length
  story.check(
    `all ${total} runs are completed`,
    items.every(({ status }) => status === 'completed'),
    items.map(({ status }) => status),
  )
  const excess = runs.filter(({ id, attempt }) => (effects.get(id)?.begun ?? 0) > attempt)
  story.check('no step was begun more often than it was attempted', excess.length === 0, excess)
  story.check(
    'every step was really done',
    runs.every(({ id }) => (effects.get(id)?.done ?? 0) > 0),
  )
  const again = runs.filter(({ id }) => (effects.get(id)?.begun ?? 0) > 1).length
  story.tell(`${again} of ${runs.length} steps were begun twice or more: a retry, or a crash before their outcome was committed`)
}

async function childrenOf(client: Client, parent: string) {
  const { items } = await client.list({ parent, limit: 500 })
  story.check(`it has ${MEASUREMENTS} children, no more`, items.length === MEASUREMENTS, items.length)
  return items
}

async function ended(client: Client, id: string): Promise<DetailedRun> {
  for (const giveUpAt = Date.now() + PATIENCE_MS; Date.now() < giveUpAt; ) {
    const run = await client.run(id, { wait: '10s' })
    if (run.finishedAt !== undefined) return run
  }
  throw new Error(`run ${id} did not end in time`)
}

async function until(isTrue: () => boolean): Promise<void> {
  for (const giveUpAt = Date.now() + PATIENCE_MS; !isTrue(); ) {
    if (Date.now() > giveUpAt) throw new Error('nothing happened for too long')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

const server = await startFileServer()
try {
  await main(server)
} catch (error) {
  story.check(`the demo goes through to its end (${error instanceof Error ? error.message : String(error)})`, false)
} finally {
  server.close()
  await rm(folder, { recursive: true, force: true })
}
if (story.failures === 0) {
  story.tell('everything is as expected')
  story.note('what ran is in examples/demo/definitions.ts')
  story.note(
    'npx node src/cli/main.ts dev --app examples/definitions.ts serves other definitions; --help says what else there is',
  )
} else {
  story.tell(`${story.failures} expectations were not met`)
  process.exitCode = 1
}
