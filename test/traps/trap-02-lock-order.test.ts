import { expect, onTestFinished, test } from 'vitest'
import type { ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, startEngine, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { child, children, claim, finishes, flush, joins, orderedId, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'
import { lockRun } from './session.ts'

let groups = 0

forEachVersion('trap 2: locks are taken in one order', (version) => {
  const { start } = sharedEngines(version)
  const startFlow = () => start({ definitions: TRAP_DEFINITIONS, version, connections: 16 })

  test('trap 2: two flushes, each with a parent of a child in the other, do not deadlock', async () => {
    const engine = await startFlow()
    const { id, inHand } = await crossedFamilies(engine)
    const [low, high] = [inHand(4), inHand(7)]
    // each flush is stopped where it has its own first row and not yet the rest
    const heldEight = await lockRow(engine, id(8))
    const heldNine = await lockRow(engine, id(9))
    const one = flush(engine, [finishes(low), finishes(inHand(8))])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: heldEight.pid })
    const other = flush(engine, [finishes(high), finishes(inHand(9))])
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /pawl/ }, 2)
    await Promise.all([heldEight.release(), heldNine.release()])
    for (const { outcomes } of await Promise.all([one, other])) {
      expect(outcomes.map((outcome) => outcome.kind)).toEqual(['applied', 'applied'])
    }
    expectNoResend(engine)
  })

  test('trap 2: a flush of parents alone locks them in the order of their ids, however rows lie and tables are joined', async () => {
    const engine = await startEngine({ definitions: TRAP_DEFINITIONS, version })
    onTestFinished(engine.close)
    // what is turned off counts as dear, and dear plans would be compiled for longer than all the rest takes
    for (const setting of ['jit', 'enable_nestloop', 'enable_mergejoin', 'enable_indexscan', 'enable_bitmapscan']) {
      await engine.sql(`ALTER DATABASE "${engine.fresh.name}" SET ${setting} = off`)
    }
    const { id, inHand } = await crossedFamilies(engine)
    // parents alone: stopped at the second of them in the one order
    const heldHigh = await lockRow(engine, id(7))
    const parents = flush(engine, [finishes(inHand(7)), finishes(inHand(4))])
    await untilBlocked(engine.fresh.connectionString, { blockedBy: heldHigh.pid })
    const heldLow = engine.sql('SELECT id FROM pawl.runs WHERE id = $1 FOR UPDATE SKIP LOCKED', [id(4)])
    expect(await heldLow).toEqual([])
    await heldHigh.release()
    await parents
    expectNoResend(engine)
  })

  test('trap 2: cancelling a child and flushing its parent do not deadlock', async () => {
    const engine = await startFlow()
    const { id, inHand } = await crossedFamilies(engine)
    const held = await lockRow(engine, id(7))
    const cancelled = engine.store.cancel(id(8), { tenant: 'default', by: null })
    await untilBlocked(engine.fresh.connectionString, { blockedBy: held.pid })
    const flushed = flush(engine, [finishes(inHand(7)), finishes(inHand(8))])
    await untilBlocked(engine.fresh.connectionString, { queryMatches: /pawl/ }, 2)
    await held.release()
    expect(await cancelled).toMatchObject({ did: 'requested' })
    expect((await flushed).outcomes.map((outcome) => outcome.kind)).toEqual(['applied', 'applied'])
    expectNoResend(engine)
  })

  test(
    'C144 trap 2: families that are flushed, cancelled and signalled from 16 connections never deadlock',
    async () => {
      const engine = await startFlow()
      await inWaves(`trap 2 on PostgreSQL ${version}, families from 16 connections`, RACES, 24, async (size) => {
        await hammerFamilies(engine, Math.max(2, Math.ceil(size / 6)))
      })
      expectNoResend(engine)
    },
    raceTimeout(RACES),
  )
})

const RACES = raceCount(300)

/** No batch was sent twice, so none was rolled back by a deadlock. */
function expectNoResend(engine: TestEngine): void {
  expect(engine.database.requests).toBe(engine.sent.length)
}

function lockRow(engine: TestEngine, id: string) {
  return lockRun(engine.fresh.connectionString, id)
}

/** Running at once: parents 4 and 7 that needed one child only, 8 (child of 7) and 9 (child of 4), which are late. Rows lie in reverse order. */
async function crossedFamilies(engine: TestEngine) {
  groups += 1
  const group = groups
  const id = (order: number) => orderedId(order, group * 2 + (engine.fresh.version === 18 ? 1 : 0))
  for (const order of [7, 4]) await engine.spawnId('flow', null, { id: id(order) })
  const [low, high] = await claim(engine)
  await flush(engine, [
    joins(high!, [await child(engine, 'task', { id: id(8) }), await child(engine, 'task', { id: id(6) })], 1),
    joins(low!, [await child(engine, 'task', { id: id(9) }), await child(engine, 'task', { id: id(5) })], 1),
  ])
  const inHand = new Map((await claim(engine)).map((run) => [run.id, run]))
  await flush(engine, [finishes(inHand.get(id(5))!), finishes(inHand.get(id(6))!)])
  for (const parent of await claim(engine)) inHand.set(parent.id, parent)
  return { id, inHand: (order: number): ClaimedRun => inHand.get(id(order))! }
}

/** Parents with early joins, their late children, signals and cancellations, each request on its own, all at once. */
async function hammerFamilies(engine: TestEngine, families: number): Promise<void> {
  for (let family = 0; family < families; family += 1) await engine.spawn('flow')
  const parked = await claim(engine)
  await Promise.all(parked.map(async (parent) => flush(engine, [joins(parent, await children(engine, 'task', 4), 1)])))
  const first = await claim(engine)
  const byParent = new Map(first.map((run) => [run.parentId, first.filter((other) => other.parentId === run.parentId)]))
  await flush(
    engine,
    [...byParent.values()].map((siblings) => finishes(siblings[0]!)),
  )
  const parents = await claim(engine)
  expect(parents).toHaveLength(families)
  const late = [...byParent.values()].flatMap((siblings) => siblings.slice(1))
  const mixed = shuffle([...parents.map((run) => waits(run, ['a'])), ...late.map((run) => finishes(run))])
  const flushes = chunks(mixed, 3).map((outcomes) => () => flush(engine, outcomes))
  const cancels = late
    .filter((_, index) => index % 3 === 0)
    .map(
      ({ id }) =>
        () =>
          engine.store.cancel(id, { tenant: 'default', by: null }),
    )
  const signals = parents.map(
    ({ id }) =>
      () =>
        engine.signal({ id }, 'a'),
  )
  await Promise.all(shuffle([...flushes, ...cancels, ...signals]).map((send) => send()))
  const woken = await claim(engine)
  expect(woken.map((run) => run.id).sort()).toEqual(parents.map((run) => run.id).sort())
  await flush(
    engine,
    woken.map((run) => finishes(run)),
  )
}

function shuffle<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((left, right) => left.at - right.at)
    .map(({ item }) => item)
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, index) => items.slice(index * size, (index + 1) * size))
}
