import { expect, test } from 'vitest'
import * as z from 'zod'
import { machine } from '../../src/core/machine.ts'
import type { NewEvent } from '../../src/core/store.ts'
import { runTopic } from '../../src/core/topics.ts'
import { statementsOfEvent } from '../../src/db/event-statements.ts'
import { statementsOfFlush } from '../../src/db/flush.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { flow, task } from './definitions.ts'
import { claim, claimOne, contextOf, finishes, flush, moves, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'
import { lockRun, openSession } from './session.ts'

const listener = machine({
  name: 'listener',
  state: z.object({}),
  events: { e: z.unknown() },
  initial: 'start',
  steps: { start: ({ waitFor }) => waitFor('e', { goto: 'end' }), end: ({ done }) => done(undefined) },
})
const definitions = [listener, flow, task]
const EVENT: Omit<NewEvent, 'receipt'> = { tenant: 'default', name: 'e', payload: '{"n":1}', retentionMs: 60_000 }
const emit = (engine: TestEngine, event: Partial<NewEvent> = {}) => engine.store.emit({ ...EVENT, receipt: null, ...event })
const parks = (run: Parameters<typeof waits>[0]) => waits(run, ['event:e'])

forEachVersion('trap 1: what everybody may hear', (version) => {
  const { start } = sharedEngines(version)
  const begin = () => start({ definitions, version, connections: 16 })

  test('trap 1: an emit waits for a park that is under way, then wakes it', async () => {
    const engine = await begin()
    const id = await engine.spawnId('listener', {})
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [parks(run)], endedClaims: [] }, run.id))
      await session.run(statement)
    const emission = emit(engine)
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    expect(await emission).toMatchObject({ kind: 'emitted', created: true, woke: true })
    expect(await claimOne(engine)).toMatchObject({ id, inbox: [{ name: 'event:e', payload: { n: 1 } }] })
    expect(await claim(engine)).toEqual([])
  })

  test('trap 1: a park waits for an emit that is under way, and finds its event', async () => {
    const engine = await begin()
    const id = await engine.spawnId('listener', {})
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfEvent(contextOf(engine), EVENT, { nonce: run.id, messageId: null }))
      await session.run(statement)
    const park = flush(engine, [parks(run)])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    expect((await park).outcomes).toEqual([{ kind: 'applied', status: 'waiting' }])
    expect(await claimOne(engine)).toMatchObject({ id, inbox: [{ name: 'event:e', payload: { n: 1 } }] })
  })

  test('trap 1: an emit that is rolled back wakes nobody, and a park that waited for it waits on', async () => {
    const engine = await begin()
    const id = await engine.spawnId('listener', {})
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfEvent(contextOf(engine), EVENT, { nonce: run.id, messageId: null }))
      await session.run(statement)
    const park = flush(engine, [parks(run)])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.abandon()
    await park
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', awaits: ['event:e'] })
    expect(await emit(engine)).toMatchObject({ created: true, woke: true })
    expect(await claimOne(engine)).toMatchObject({ id })
  })

  test('trap 2: a waiter whose row is held by a flush is not waited for behind the lock of the name, and told right after', async () => {
    const engine = await begin()
    const ids = [await engine.spawnId('listener', {}), await engine.spawnId('listener', {})]
    for (const run of await claim(engine)) await flush(engine, [parks(run)])
    const held = await lockRun(engine.fresh.connectionString, ids[0]!)
    const emission = emit(engine)
    // the event is there and the other run is awake, while the emit's second batch waits for the row
    await untilBlocked(engine.fresh.connectionString, { blockedBy: held.pid })
    expect(await claimOne(engine)).toMatchObject({ id: ids[1] })
    await held.release()
    expect(await emission).toMatchObject({ created: true })
    expect(await claimOne(engine)).toMatchObject({ id: ids[0], inbox: [{ name: 'event:e' }] })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.outbox')).toEqual([0])
  })

  test('trap 1: a run that parks on the end of another while that ends waits for it, and is answered at once', async () => {
    const engine = await begin()
    const target = await engine.spawnId('task')
    const ending = await claimOne(engine)
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [finishes(ending, '7')], endedClaims: [] }, run.id))
      await session.run(statement)
    const park = flush(engine, [waits(run, [runTopic(target)])])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    await park
    const woken = await claimOne(engine)
    expect(woken).toMatchObject({
      id,
      inbox: [{ name: runTopic(target), payload: { id: target, status: 'completed', result: 7 } }],
    })
  })

  test('trap 1: a run that ends while another parks on its end waits for it, and its end is left to be told', async () => {
    const engine = await begin()
    const target = await engine.spawnId('task')
    const ending = await claimOne(engine)
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const session = await openSession(engine.fresh.connectionString)
    const parking = waits(run, [runTopic(target)])
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [parking], endedClaims: [] }, run.id))
      await session.run(statement)
    // it was claimed before anybody awaited it, and does not know
    expect(ending.awaited).toBe(false)
    const end = flush(engine, [finishes(ending, '7')])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: session.pid })
    await session.commit()
    expect((await end).outcomes).toEqual([{ kind: 'applied', status: 'completed' }])
    expect(await claim(engine)).toEqual([])
    expect(await engine.store.relay(100)).toEqual({ told: 1, more: false })
    expect(await claimOne(engine)).toMatchObject({ id, inbox: [{ payload: { id: target, result: 7 } }] })
  })

  test(
    'C131 C118 trap 1: parking and emitting at the same time wakes every run once, whichever comes first',
    async () => {
      const engine = await begin()
      let waves = 0
      await inWaves(`trap 1 on PostgreSQL ${version}, park and emit`, RACES, 20, async (size) => {
        waves += 1
        const topic = `event:e${waves}`
        const ids = await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
        const runs = await claim(engine)
        const parking = runs.map((run) => () => flush(engine, [waits(run, [topic])]))
        const emitting = Array.from({ length: 3 }, () => () => emit(engine, { name: `e${waves}` }))
        const half = Math.floor(parking.length / 2)
        const acts = [...parking.slice(0, half), ...emitting, ...parking.slice(half)]
        const answers = await Promise.all(acts.map((act) => act()))
        expect(answers.filter((answer) => 'kind' in answer && answer.kind === 'emitted' && answer.created)).toHaveLength(1)
        await engine.store.relay(100)
        const woken = await claim(engine)
        expect(woken.map((run) => run.id)).toEqual([...ids].sort())
        expect(woken.every((run) => run.inbox.length === 1)).toBe(true)
        await flush(
          engine,
          woken.map((run) => finishes(run)),
        )
        expect(await claim(engine)).toEqual([])
      })
      expect(await engine.sql(LEFT_OVER, [engine.environment])).toEqual([0])
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES),
  )

  test(
    'C148 trap 1: parking on the end of a run while it ends wakes every waiter once, whichever comes first',
    async () => {
      const engine = await begin()
      await inWaves(`trap 1 on PostgreSQL ${version}, await and end`, RACES, 20, async (size) => {
        await Promise.all(Array.from({ length: size }, () => engine.spawnId('task')))
        const targets = await claim(engine)
        await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
        const runs = await claim(engine)
        await Promise.all(
          runs.flatMap((run, index) => {
            // each waits for two, so that flushes lock several rows of others
            const topics = [targets[index]!, targets[(index + 1) % size]!].map(({ id }) => runTopic(id))
            const park = () => flush(engine, [waits(run, topics)])
            const end = () => flush(engine, [finishes(targets[index]!, `${index}`)])
            return index % 2 === 0 ? [park(), end()] : [end(), park()]
          }),
        )
        await engine.store.relay(1_000)
        const woken = await claim(engine)
        expect(woken.map((run) => run.id)).toEqual(runs.map((run) => run.id))
        await flush(
          engine,
          woken.map((run) => moves(run, 'end')),
        )
        await flush(
          engine,
          (await claim(engine)).map((run) => finishes(run)),
        )
        expect(await claim(engine)).toEqual([])
      })
      expect(await engine.sql(LEFT_OVER, [engine.environment])).toEqual([0])
      const awaited =
        'SELECT count(*)::int FROM pawl.runs r JOIN pawl.environments e ON e.id = r.environment_id WHERE r.awaited AND e.name = $1'
      expect(await engine.sql(awaited, [engine.environment])).toEqual([0])
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES),
  )
})

const RACES = raceCount(100)

/** Registrations and messages that nobody will ever need. */
const LEFT_OVER = `
  SELECT ((SELECT count(*) FROM pawl.event_waits w WHERE w.environment_id = e.id) + (SELECT count(*) FROM pawl.outbox o WHERE o.environment_id = e.id))::int
  FROM pawl.environments e WHERE e.name = $1`
