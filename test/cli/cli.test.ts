import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { runCommandLine } from '../../src/cli/command-line.ts'
import { createClient } from '../../src/client/index.ts'
import { type NodeHost, node } from '../../src/hosts/node.ts'
import { VERSION } from '../../src/hosts/version.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import { pawl } from './app.ts'

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))
const APP = fileURLToPath(new URL('./app.ts', import.meta.url))

interface Said {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** In this process: a new one takes a second, and only what ends with it needs it. */
async function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Said> {
  const [out, err]: [string[], string[]] = [[], []]
  const terminal = { print: (line: string) => void out.push(line), tell: (line: string) => void err.push(line) }
  const code = await runCommandLine(args, { terminal, env })
  return { code, out: out.join('\n'), err: err.join('\n') }
}

function begin(args: readonly string[]): ChildProcess {
  const { DATABASE_URL: _, ...env } = process.env
  return spawn(process.execPath, [MAIN, ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] })
}

const cleanups: (() => unknown)[] = []
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

describe('pawl', () => {
  test('says what it can, and what is wrong in one line', async () => {
    const help = await run(['--help'])
    expect(help.code).toBe(0)
    expect(help.out).toContain('migrate')
    expect(await run(['dance'])).toMatchObject({
      code: 2,
      out: '',
      err: expect.stringMatching(/^pawl: there is no command dance\..*$/),
    })
    expect(await run(['runs', '--colour', 'red'])).toMatchObject({
      code: 2,
      err: expect.stringMatching(/^pawl runs: Unknown option '--colour'\. There are --api, [^\n]*--cursor$/),
    })
    expect(await run(['migrate', 'now'])).toMatchObject({ code: 2, err: 'pawl migrate: got now, allowed is no argument' })
    expect(await run(['show', 'one', 'two'])).toMatchObject({ code: 2, err: 'pawl show: got two, allowed is <id>' })
    expect(await run(['spawn', 'double', '--version', 'x'])).toMatchObject({
      code: 2,
      err: 'pawl spawn: --version: got x, allowed is a whole number',
    })
    expect(await run(['keys', 'make'])).toMatchObject({
      code: 2,
      err: 'pawl keys: got make, allowed is create, list or revoke',
    })
    expect(await run(['runs', '--api', 'http://127.0.0.1:1'])).toMatchObject({
      code: 1,
      err: expect.stringContaining('the API cannot be reached (bad port)'),
    })
    expect(await run(['migrate'])).toMatchObject({ code: 2, err: 'pawl migrate: no database: give --url or set DATABASE_URL' })
    expect(await run(['spawn', 'double', '{n:1}'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('<input> is not JSON'),
    })
  })

  test('says the version of the package', async () => {
    expect(VERSION).toBe(manifest.version)
    expect(await run(['--version'])).toEqual({ code: 0, out: manifest.version, err: '' })
  })

  test('check lists the definitions of an application', async () => {
    const { code, out } = await run(['check', '--app', APP])
    expect(code).toBe(0)
    expect(out).toMatch(/double +1 +job/)
    expect(await run(['check', '--app', 'nowhere.ts'])).toMatchObject({
      code: 2,
      err: 'pawl check: --app: there is no file nowhere.ts',
    })
  })
})

describe('pawl migrate', () => {
  test('brings a database to this build, and prints the SQL that does the same', async () => {
    const empty = await freshDatabase(18, { empty: true })
    cleanups.push(empty.close)
    const first = await run(['migrate'], { DATABASE_URL: empty.connectionString })
    expect(first).toMatchObject({ code: 0, out: expect.stringContaining('the schema went from version 0') })
    const again = await run(['migrate', '--url', empty.connectionString])
    expect(again).toMatchObject({ code: 0, out: expect.stringContaining('nothing to do') })
    const printed = await run(['migrate', '--print', '--schema', 'elsewhere'])
    await empty.pool().query(printed.out)
    expect(await run(['migrate', '--url', empty.connectionString, '--schema', 'elsewhere'])).toMatchObject({
      out: expect.stringContaining('nothing to do'),
    })
  })

  test('tells a server that is away in one line, without the password', async () => {
    const { code, err } = await run(['migrate', '--url', 'postgres://somebody:secret@127.0.0.1:1/nothing'])
    expect(code).toBe(1)
    expect(err).toMatch(/^pawl migrate: [^\n]+$/)
    expect(err).not.toContain('secret')
  })
})

describe('pawl partitions', () => {
  test('C218 partitions the tables, says what it did, and does nothing the second time', async () => {
    const plain = await freshDatabase()
    cleanups.push(plain.close)
    const env = { DATABASE_URL: plain.connectionString }
    expect(await run(['partitions', '--every', 'year'], env)).toMatchObject({
      code: 2,
      err: expect.stringContaining('day, week, month'),
    })
    expect(await run(['partitions'], env)).toMatchObject({ code: 1, err: expect.stringContaining('every') })
    expect((await run(['partitions', '--every', 'day', '--print'], env)).out).toContain('PARTITION BY RANGE')
    const first = await run(['partitions', '--every', 'day'], env)
    expect(first).toMatchObject({ code: 0, out: expect.stringMatching(/^the tables are partitioned by day now\nmade \d{8}\n/) })
    expect(await run(['partitions'], env)).toMatchObject({ code: 0, out: expect.stringContaining('nothing to do') })
    expect((await run(['doctor'], env)).out).toMatch(/ok {4}partitions: by day, made until \d{4}-\d\d-\d\d/)
  })
})

describe('pawl against a server', () => {
  let fresh: FreshDatabase
  let host: NodeHost
  beforeAll(async () => {
    fresh = await freshDatabase()
    host = await node(pawl, { database: fresh.connectionString, rootKey: 'root-key' })
  })
  afterAll(async () => {
    await host.close()
    await fresh.close()
  })
  const call = (...args: string[]) => run(args, { PAWL_URL: host.url, PAWL_API_KEY: 'root-key' })

  test('keys makes a key that works, with the scopes it was given, until it is revoked', async () => {
    const database = { DATABASE_URL: fresh.connectionString }
    const made = await run(['keys', 'create', '--name', 'reader', '--scopes', 'runs:read', '--expires-in', '1 day'], database)
    expect(made).toMatchObject({ code: 0, out: expect.stringMatching(/^pawl_[\w-]{43}$/) })
    const withKey = (...args: string[]) => run(args, { PAWL_URL: host.url, PAWL_API_KEY: made.out })
    expect((await withKey('runs')).code).toBe(0)
    expect(await withKey('spawn', 'double', '{"n":1}')).toMatchObject({ code: 1, err: expect.stringContaining('(forbidden)') })
    const listed = await run(['keys', 'list'], database)
    expect(listed.out).toMatch(/reader +default +valid until/)
    expect(listed.out).not.toContain(made.out)
    const id = /key (\S+) "reader"/.exec(made.err)?.[1] ?? ''
    expect((await run(['keys', 'revoke', id], database)).code).toBe(0)
    expect((await run(['keys', 'list'], database)).out).toMatch(/reader +default +revoked/)
    expect(await run(['keys', 'create', '--scopes', 'everything'], database)).toMatchObject({ code: 2 })
  })

  test('spawn gives the id, and the result when it is asked to wait', async () => {
    const spawned = await call('spawn', 'double', '{"n":21}', '--wait', '20s')
    expect(spawned.code).toBe(0)
    expect(spawned.out.split('\n')).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/), '42'])
    expect(await call('spawn', 'nothing')).toMatchObject({ code: 1, err: expect.stringContaining('(unknown_definition)') })
  })

  test('signal, runs and show take a machine to its end and tell of it', async () => {
    const { out: id } = await call('spawn', 'door', '{"n":7}')
    expect((await call('signal', 'open', '{"by":"me"}', '--key', 'door:7')).code).toBe(0)
    await createClient<typeof pawl>({ url: host.url, key: 'root-key' }).result('door', id, { wait: '20s' })
    const { out: listed } = await call('runs', '--definition', 'door', '--status', 'completed')
    expect(listed).toMatch(new RegExp(`${id} +completed +door`))
    const { out: shown } = await call('show', id)
    expect(shown).toMatch(/result +"?me"?/)
    expect(shown).toMatch(/shut +1 +wait/)
    expect(JSON.parse((await call('show', id, '--json')).out)).toMatchObject({ id, status: 'completed', result: 'me' })
    expect(await call('show', crypto.randomUUID())).toMatchObject({ code: 1, err: expect.stringContaining('(not_found)') })
    expect(await call('signal', 'open')).toMatchObject({ code: 2 })
  })

  test('C180 C181 pause and resume a queue, a definition and a run', async () => {
    const { out: id } = await call('spawn', 'double', '{"n":1}', '--delay', '1h')
    for (const target of [
      ['definition', 'double'],
      ['queue', 'default'],
      ['run', id],
    ] as const) {
      expect(await call('pause', ...target)).toMatchObject({ code: 0, out: `${target.join(' ')}: paused` })
      expect(await call('resume', ...target)).toMatchObject({ code: 0, out: `${target.join(' ')}: resumed` })
    }
    expect(await call('pause', 'planet', 'earth')).toMatchObject({ code: 2 })
    expect(await call('pause', 'queue', 'earth')).toMatchObject({ code: 1, err: expect.stringContaining('(not_found)') })
  })

  test('C182 cancel and retry take one run, or all that match', async () => {
    const later = async () => (await call('spawn', 'double', '{"n":1}', '--delay', '1h', '--queue', 'later')).out
    const [one] = [await later(), await later(), await later()]
    expect(await call('cancel', one!, '--reason', 'not needed')).toMatchObject({ code: 0, out: `run ${one}: cancelled` })
    expect(await call('cancel', one!)).toMatchObject({ code: 0, out: `run ${one}: already cancelled` })
    expect(await call('cancel', '--queue', 'later', '--status', 'pending')).toMatchObject({
      code: 0,
      out: '2 runs are cancelled, or asked to end',
    })
    expect(await call('retry', one!)).toMatchObject({ code: 0, out: `run ${one}: retried` })
    expect(await call('retry', '--queue', 'later', '--status', 'cancelled')).toMatchObject({ code: 0, out: '2 runs are retried' })
    for (const wrong of [[], [one!, '--queue', 'later'], ['--status', 'gone']])
      expect(await call('cancel', ...wrong)).toMatchObject({ code: 2, out: '' })
    expect(await call('retry', crypto.randomUUID())).toMatchObject({ code: 1, err: expect.stringContaining('(not_found)') })
  })

  test('emit says whether the event is new; stats how much there is, and when the last tick was', async () => {
    expect(await call('emit', 'fire', '{"floor":3}')).toMatchObject({ code: 0, out: 'event fire is emitted' })
    expect((await call('emit', 'fire', '{"floor":4}')).out).toBe('event fire was there before, and is as it was')
    await call('spawn', 'double', '{"n":1}', '--delay', '1h', '--queue', 'counted')
    const { code, out } = await call('stats')
    expect(code).toBe(0)
    expect(out).toMatch(/^QUEUE +DUE +READY/)
    expect(out).toMatch(/\ncounted +0 +0 +1 +0 +0 +0 +0/)
    expect(out).toMatch(/\n\d+ runs: \d+ pending/)
    expect(out).toMatch(/last tick: /)
    expect(JSON.parse((await call('stats', '--json')).out)).toMatchObject({ exact: true, health: { status: 'ok' } })
  })

  test('doctor finds nothing wrong here, and says what is wrong elsewhere; without a place to look at it finds nothing well', async () => {
    expect(await run(['doctor'])).toMatchObject({ code: 2, out: '', err: expect.stringContaining('nothing to look at') })
    const well = await run(['doctor', '--url', fresh.connectionString, '--api', host.url])
    expect(well.out).not.toContain('FAIL')
    expect(well.code).toBe(0)
    const empty = await freshDatabase(18, { empty: true })
    cleanups.push(empty.close)
    const ill = await run(['doctor', '--url', empty.connectionString, '--api', 'http://127.0.0.1:1'])
    expect(ill.code).toBe(1)
    expect(ill.out).toMatch(/FAIL +schema:[^\n]*migrated/)
    expect(ill.out).toMatch(/FAIL +API:/)
  })
})

describe('the process', () => {
  test('prints to its output, errors beside it, and ends with the code', async () => {
    const child = begin(['migrate'])
    const line = once(createInterface({ input: child.stderr! }), 'line')
    expect((await once(child, 'close'))[0]).toBe(2)
    expect((await line)[0]).toBe('pawl migrate: no database: give --url or set DATABASE_URL')
  })
})

describe('pawl dev', () => {
  /** Keeps requests until the test answers them. */
  async function startHolder() {
    let arrived: (response: ServerResponse) => void = () => {}
    const response = new Promise<ServerResponse>((resolve) => {
      arrived = resolve
    })
    const server = createServer((_, held) => arrived(held))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    cleanups.push(() => server.close())
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, response }
  }

  test('C050 SIGTERM in the middle of a run lets it finish, and the process ends with 0', async () => {
    const fresh = await freshDatabase()
    cleanups.push(fresh.close)
    const holder = await startHolder()
    const child = begin(['dev', '--app', APP, '--url', fresh.connectionString, '--port', '0'])
    cleanups.push(() => child.kill('SIGKILL'))
    const [line] = await once(createInterface({ input: child.stdout! }), 'line')
    const client = createClient<typeof pawl>({ url: String(line).split('/v1')[0] ?? '' })
    const { id } = await client.spawn('held', { url: holder.url })
    const response = await holder.response
    const stopping = once(createInterface({ input: child.stderr! }), 'line')
    child.kill('SIGTERM')
    expect((await stopping)[0]).toContain('SIGTERM')
    response.end('done')
    expect((await once(child, 'close'))[0]).toBe(0)
    const { rows } = await fresh.pool().query('SELECT id, status FROM pawl.runs WHERE environment_id > 0')
    expect(rows).toEqual([{ id, status: 'completed' }])
  })
})
