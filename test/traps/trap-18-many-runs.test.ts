import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import type { SpawnCall, SpawnItem } from '../../src/core/calls.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { startBehindProxy } from '../support/behind-proxy.ts'
import { forEachVersion } from '../support/database.ts'
import type { TestEngine } from '../support/engine.ts'
import { holdRowLock, untilBlocked } from '../support/races.ts'

const definitions = [
  job({ name: 'plain', input: z.number(), run: () => null }),
  job({ name: 'gated', input: z.number(), limits: [limit('few', { concurrency: 4, shards: 4 })], run: () => null }),
]

/** What names a run, so that it can be asked for again; or nothing. */
const TOKENS: Readonly<Record<string, (n: number) => Partial<SpawnCall>>> = {
  'idempotency keys': (n) => ({ idempotencyKey: `order-${n}` }),
  'ids of their own': (n) => ({ id: `0190a1b2-0000-7000-8000-${String(n).padStart(12, '0')}` }),
  keys: (n) => ({ key: `key-${n}` }),
  'one of each, turn by turn': (n) =>
    [{ idempotencyKey: `o-${n}` }, { key: `k-${n}` }, { id: `0190a1b2-0000-7000-9000-${String(n).padStart(12, '0')}` }][n % 3]!,
}

const callsOf = (count: number, token: (n: number) => Partial<SpawnCall> = () => ({})): readonly SpawnCall[] =>
  Array.from({ length: count }, (_, n) => ({ definition: n % 2 === 0 ? 'plain' : 'gated', input: n, ...token(n) }))
const plainOf = (count: number) => Array.from({ length: count }, (_, n) => ({ definition: 'plain', input: n }))

const idsOf = (items: readonly SpawnItem[]) => items.map((item) => (item.ok ? item.value.id : item.error.code))

/** Every run is there once, with its row of the window, and nothing holds a key for none. */
async function expectAll(engine: TestEngine, count: number): Promise<void> {
  const inputs = 'SELECT (input #>> ARRAY[]::text[])::int AS n FROM pawl.runs WHERE environment_id > 0 ORDER BY n'
  expect(await engine.sql<number>(inputs)).toEqual(Array.from({ length: count }, (_, n) => n))
  expect(
    await engine.sql('SELECT count(*)::int FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id WHERE r.environment_id > 0'),
  ).toEqual([count])
  expect(
    await engine.sql(
      'SELECT u.token FROM pawl.uniques u WHERE u.environment_id > 0 AND NOT EXISTS (SELECT FROM pawl.runs r WHERE r.id = u.run_id)',
    ),
  ).toEqual([])
}

/** A large batch arrives in pieces, each of which counts for the proxy. */
const EVERY = 1_000_000

forEachVersion('trap 18: many runs, and a connection that is lost between their batches', (version) => {
  test.each(Object.entries(TOKENS))(
    'C023 C024 trap 18: with %s: a batch whose reply never comes is told as unknown, the one before as it is, and asked for again all are there once',
    async (_, token) => {
      const { engine, proxy, onBatch } = await startCounting(version)
      const calls = createCalls(engine)
      const asked = callsOf(1_500, token)
      onBatch(2, () => proxy.faults.dropReply(EVERY))
      const told = await calls.spawnMany(asked)
      expect(told.slice(0, 1_000).every((item) => item.ok && item.value.created)).toBe(true)
      expect(new Set(told.slice(1_000).map((item) => !item.ok && item.error.code))).toEqual(new Set(['unknown_outcome']))
      // the last that is lost
      proxy.faults.dropReply()
      const again = await calls.spawnMany(asked)
      expect(again.every(({ ok }) => ok)).toBe(true)
      expect(idsOf(again).slice(0, 1_000)).toEqual(idsOf(told).slice(0, 1_000))
      await expectAll(engine, 1_500)
    },
  )

  test.each(Object.entries(TOKENS))(
    'C023 trap 18: with %s: a batch that is cut off before it is carried out, once, is sent again, and twice over it is none that was written',
    async (_, token) => {
      const { engine, proxy, onBatch } = await startCounting(version)
      const calls = createCalls(engine)
      const asked = callsOf(600, token)
      // on a connection that is open
      await engine.tick()
      onBatch(1, () => proxy.faults.dropRequest())
      expect((await calls.spawnMany(asked)).every((item) => item.ok && item.value.created && !item.value.replayed)).toBe(true)
      await expectAll(engine, 600)
      const more = callsOf(1_500, token)
      onBatch(2, () => proxy.faults.refuse())
      const told = await calls.spawnMany(more)
      await proxy.faults.accept()
      expect(told.slice(0, 1_000).map((item) => item.ok && item.value.created && !item.value.replayed)).toEqual(
        Array.from({ length: 1_000 }, (_, n) => n >= 600),
      )
      expect(new Set(told.slice(1_000).map((item) => !item.ok && item.error.code))).toEqual(new Set(['unknown_outcome']))
      await expectAll(engine, 1_000)
      const again = await calls.spawnMany(more)
      expect(idsOf(again).slice(0, 1_000)).toEqual(idsOf(told).slice(0, 1_000))
      await expectAll(engine, 1_500)
    },
  )

  test('C023 trap 18: plain runs without a token: lost replies double nothing, and what was not sent is told to be that', async () => {
    const { engine, proxy, onBatch } = await startCounting(version)
    const calls = createCalls(engine)
    onBatch(1, () => proxy.faults.dropReply())
    const told = await calls.spawnMany(plainOf(1_500))
    expect(told.every((item) => item.ok && item.value.created)).toBe(true)
    await expectAll(engine, 1_500)
    onBatch(2, () => proxy.faults.refuse())
    const cut = await calls.spawnMany(plainOf(2_500))
    await proxy.faults.accept()
    expect(cut.filter(({ ok }) => ok)).toHaveLength(1_000)
    const codes = cut.map((item) => (item.ok ? 'ok' : item.error.code))
    expect([codes[999], codes[1_000], codes[1_999], codes[2_000], codes[2_499]]).toEqual([
      'ok',
      'unknown_outcome',
      'unknown_outcome',
      'database_unreachable',
      'database_unreachable',
    ])
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0')).toEqual([2_500])
  })

  test('C023 trap 18: a session that is killed between the two halves of a batch leaves none of it, and it is written whole', async () => {
    const { engine } = await startCounting(version)
    const calls = createCalls(engine)
    await calls.spawnMany(plainOf(1))
    // a run of the second half is waited for
    await engine.sql(
      `CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END'`,
    )
    await engine.sql(
      `CREATE TRIGGER halt BEFORE INSERT ON pawl.runs FOR EACH ROW WHEN (NEW.input = '450') EXECUTE FUNCTION halt()`,
    )
    const held = await holdRowLock(engine.fresh.connectionString, 'SELECT pg_advisory_xact_lock(77)')
    onTestFinished(held.abandon)
    const asked = plainOf(601).slice(1)
    const spawning = calls.spawnMany(asked)
    const [blocked] = await untilBlocked(engine.fresh.connectionString, { blockedBy: held.pid })
    await engine.sql('SELECT pg_terminate_backend($1)', [blocked!.pid])
    await held.abandon()
    expect((await spawning).every((item) => item.ok && item.value.created)).toBe(true)
    await expectAll(engine, 601)
  })

  test.each([3, 450])(
    'C023 run %d of 600 that the server refuses takes none of the others along, and is the only one told so',
    async (bad) => {
      const { engine } = await startCounting(version)
      await engine.sql(
        `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no'' USING ERRCODE = ''22P05''; END'`,
      )
      await engine.sql(
        `CREATE TRIGGER refuse BEFORE INSERT ON pawl.runs FOR EACH ROW WHEN (NEW.input = '${bad}') EXECUTE FUNCTION refuse()`,
      )
      const told = await createCalls(engine).spawnMany(plainOf(600))
      expect(told.flatMap((item, n) => (item.ok ? [] : [n]))).toEqual([bad])
      const missing = `SELECT n FROM generate_series(0, 599) n WHERE NOT EXISTS (SELECT FROM pawl.runs r WHERE r.environment_id > 0 AND r.input = to_jsonb(n))`
      expect(await engine.sql(missing)).toEqual([bad])
      expect(
        await engine.sql('SELECT count(*)::int FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id WHERE r.environment_id > 0'),
      ).toEqual([599])
    },
  )

  test('C023 trap 18: sessions that are killed at any moment while many are spawned: what is told is true, and asking again completes it', async () => {
    const { engine } = await startCounting(version)
    const calls = createCalls(engine)
    const asked = callsOf(1_500, TOKENS['one of each, turn by turn'])
    const killer = new pg.Client({ connectionString: engine.fresh.connectionString })
    await killer.connect()
    onTestFinished(() => killer.end())
    const kill = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%receipts%' AND state <> 'idle'`
    for (let round = 0; round < 3; round += 1) {
      const spawning = calls.spawnMany(asked).then(
        (items) => items,
        (error) => [{ ok: false as const, error }],
      )
      let over = false
      const killing = (async () => {
        while (!over) await killer.query(kill)
      })()
      const told = await spawning
      over = true
      await killing
      const claimed = told.flatMap((item) => (item.ok ? [item.value.id] : []))
      expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE id = ANY ($1)', [claimed])).toEqual([claimed.length])
    }
    expect((await calls.spawnMany(asked)).every(({ ok }) => ok)).toBe(true)
    await expectAll(engine, 1_500)
  })
})

/** An engine behind a proxy; something may be done right before the n-th batch of inserts from now. */
async function startCounting(version: 15 | 18) {
  const { engine, proxy, onSend } = await startBehindProxy(version, definitions)
  let [left, hook]: [number, () => unknown] = [0, () => {}]
  onSend(async (names) => {
    if (!names.some((name) => name.startsWith('insert_runs'))) return
    left -= 1
    if (left === 0) await hook()
  })
  return {
    engine,
    proxy,
    onBatch: (n: number, what: () => unknown) => {
      left = n
      hook = what
    },
  }
}
