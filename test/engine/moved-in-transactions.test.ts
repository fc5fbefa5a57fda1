import pg from 'pg'
import { expect, onTestFinished, test } from 'vitest'
import * as z from 'zod'
import { createTransactionCalls } from '../../src/client/transaction.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { forEachVersion } from '../support/database.ts'
import { newRun, sharedEngines, type TestEngine } from '../support/engine.ts'
import { holdRowLock } from '../support/races.ts'
import { claim, claimOne, finishes, flush } from '../traps/outcomes.ts'

const hourly = limit('hourly', { rate: { count: 1, per: '1 hour' } })
const narrow = limit('narrow', { concurrency: 1 })
const HOUR = 3_600_000
const limits = { hourly, narrow }
const NAMES = ['hourly', 'narrow'] as const
const definitions = Object.values(limits).map((limited) =>
  job({ name: limited.name, input: z.unknown(), limits: [limited], run: () => null }),
)

/** One that stands in the window with room kept for it, and one that waits for that room. */
async function standing(engine: TestEngine, definition: keyof typeof limits) {
  await engine.store.declareLimits([...engine.registry.limits].map(([name, policy]) => ({ name, policy })))
  await engine.tick()
  await engine.spawnId(definition)
  const holder = await claimOne(engine)
  const first = await engine.spawnId(definition, {}, { key: 'first' })
  const next = await engine.spawnId(definition)
  expect(await claim(engine)).toEqual([])
  await flush(engine, [finishes(holder)])
  if (definition === 'hourly') engine.advance(HOUR)
  // it passes room on as well, and is not to be what helps
  await engine.store.upkeep({ source: 'test', nextInMs: 60_000, minRetentionSeconds: 3_600 })
  await claim(engine, { queues: ['nobody'] })
  expect([(await engine.run(first)).blockedOn, (await engine.run(next)).blockedOn]).toEqual([null, expect.any(String)])
  return { first, next }
}

async function begin(engine: TestEngine): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: engine.fresh.connectionString })
  await client.connect()
  onTestFinished(() => client.end())
  await client.query('BEGIN')
  return client
}

const countersOf = (engine: TestEngine, lock = '') =>
  engine.sql<string>(
    `SELECT gate FROM pawl.limit_counters WHERE environment_id = (SELECT id FROM pawl.environments WHERE name = $1) ORDER BY gate ${lock}`,
    [engine.environment],
  )

const moving = (engine: TestEngine, definition: string) =>
  newRun(engine.registry, definition, {}, { key: 'first', delay: '1 day', onConflict: 'reschedule' })

forEachVersion('runs that a caller’s transaction moves', (version) => {
  const { start } = sharedEngines(version)

  test.each(NAMES)('%s: nobody waits for the transaction but who wants the run that it has moved', async (definition) => {
    const engine = await start({ definitions, version, frozen: true })
    await standing(engine, definition)
    const client = await begin(engine)
    await engine.store.within(client).spawn([await moving(engine, definition)])
    expect(await countersOf(engine, 'FOR UPDATE SKIP LOCKED')).toEqual(await countersOf(engine))
    await client.query('COMMIT')
  })

  test.each(NAMES)('%s: what the transaction is told is done is committed with it', async (definition) => {
    const engine = await start({ definitions, version, frozen: true })
    const { first, next } = await standing(engine, definition)
    const lock = await holdRowLock(engine.fresh.connectionString, 'SELECT FROM pawl.runs WHERE id = $1 FOR NO KEY UPDATE', [next])
    const client = await begin(engine)
    await client.query("SET LOCAL lock_timeout = '100ms'")
    const [answer] = await engine.store.within(client).spawn([await moving(engine, definition)])
    expect(answer).toMatchObject({ id: first, effect: 'rescheduled' })
    const { command } = await client.query('COMMIT')
    await lock.release()
    expect(command).toBe('COMMIT')
    expect((await engine.run(first)).availableAt).toBe(engine.clock() + 24 * HOUR)
  })

  test.each(NAMES)('%s: the room goes to who comes next with the first tick after the commit', async (definition) => {
    const engine = await start({ definitions, version, frozen: true })
    const { next } = await standing(engine, definition)
    const client = await begin(engine)
    await engine.store.within(client).spawn([await moving(engine, definition)])
    await engine.tick()
    expect(await engine.run(next)).toMatchObject({ status: 'pending' })
    await client.query('COMMIT')
    await engine.tick()
    expect(await engine.run(next)).toMatchObject({ status: 'completed' })
  })

  test.each(NAMES)('%s: the same of a batch of the caller’s', async (definition) => {
    const engine = await start({ definitions, version, frozen: true })
    const { next } = await standing(engine, definition)
    const client = await begin(engine)
    for (const { text, params } of engine.store.planSpawn(await moving(engine, definition)).statements)
      await client.query(text, params)
    await client.query('COMMIT')
    await engine.tick()
    expect(await engine.run(next)).toMatchObject({ status: 'completed' })
  })

  test.each(NAMES)('%s: a run that a rolled back savepoint has moved stands where it stood', async (definition) => {
    const engine = await start({ definitions, version, frozen: true })
    const { first, next } = await standing(engine, definition)
    const client = await begin(engine)
    await client.query('SAVEPOINT a')
    await engine.store.within(client).spawn([await moving(engine, definition)])
    await client.query('ROLLBACK TO SAVEPOINT a')
    await client.query('COMMIT')
    expect(await claim(engine)).toMatchObject([{ id: first }])
    expect(await engine.run(next)).toMatchObject({ blockedOn: expect.any(String) })
  })

  test('what has become due earlier in the transaction is told of after its commit, as what is new', async () => {
    const engine = await start({ definitions, version, frozen: true })
    let kicks = 0
    const onCommit = () => {
      kicks += 1
    }
    const calls = createTransactionCalls({ store: engine.store, registry: engine.registry, onCommit })
    const call = { definition: 'narrow', input: {}, key: 'first', onConflict: 'reschedule', idempotencyKey: 'k' } as const
    await engine.spawnId('narrow', {}, { key: 'first', delay: '1 day' })
    const client = await begin(engine)
    const moved = await calls.spawn(client, call)
    const { afterCommit } = await calls.spawnMany(client, [{ ...call, idempotencyKey: 'l' }])
    const again = await calls.spawn(client, call)
    await client.query('COMMIT')
    expect([moved, again]).toMatchObject([
      { created: false, rescheduled: true, replayed: false },
      { created: false, rescheduled: true, replayed: true },
    ])
    moved.afterCommit()
    afterCommit()
    expect(kicks).toBe(2)
    again.afterCommit()
    expect(kicks).toBe(2)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
  })
})
