import { expect, test } from 'vitest'
import { statementsOfFlush } from '../../src/db/flush.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { child, children, claim, claimOne, contextOf, fails, finishes, flush, goesOn, joins, retries, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'
import { openSession } from './session.ts'

forEachVersion('trap 11: children', (version) => {
  const { start } = sharedEngines(version)
  const startFlow = () => start({ definitions: TRAP_DEFINITIONS, version, connections: 16 })

  test('C140 trap 11: nobody can claim a child before the barrier of its parent is committed with it', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const outcome = joins(await claimOne(engine), await children(engine, 'task', 3))
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [outcome], endedClaims: [] }, id))
      await session.run(statement)
    expect(await claim(engine)).toEqual([])
    await session.commit()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 3 })
    expect(await claim(engine)).toHaveLength(3)
  })

  test('C140 trap 11: a batch that fails leaves neither children nor a parked parent', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const outcome = joins(await claimOne(engine), await children(engine, 'task', 3))
    const session = await openSession(engine.fresh.connectionString)
    for (const statement of statementsOfFlush(contextOf(engine), { outcomes: [outcome], endedClaims: [] }, id))
      await session.run(statement)
    await session.abandon()
    expect(await engine.run(id)).toMatchObject({ status: 'running', joinRemaining: null })
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE parent_id = $1', [id])).toEqual([0])
  })

  test('C143 trap 11: a child whose key another run holds does not come to be and is not counted', async () => {
    const engine = await startFlow()
    await engine.spawnId('task', null, { key: 'taken' })
    const other = await claimOne(engine)
    const id = await engine.spawnId('flow')
    const specs = [
      await child(engine, 'task', { key: 'taken' }),
      await child(engine, 'task', { key: 'free' }),
      await child(engine, 'task'),
    ]
    await flush(engine, [joins(await claimOne(engine), specs)])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 2 })
    const two = await claim(engine)
    await flush(
      engine,
      two.map((run) => finishes(run)),
    )
    expect((await claimOne(engine)).children).toHaveLength(2)
    await flush(engine, [finishes(other)])
  })

  test('C143 trap 11: a join that needs more children than came to be waits for those that did', async () => {
    const engine = await startFlow()
    await engine.spawnId('task', null, { key: 'held' })
    await claimOne(engine)
    const id = await engine.spawnId('flow')
    const specs = [
      await child(engine, 'task', { key: 'held' }),
      await child(engine, 'task', { key: 'held' }),
      await child(engine, 'task'),
    ]
    await flush(engine, [joins(await claimOne(engine), specs, 3)])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    await flush(engine, [finishes(await claimOne(engine))])
    expect(await claimOne(engine)).toMatchObject({ id })
  })

  test('C142 trap 11: a join none of whose children came to be goes on at once', async () => {
    const engine = await startFlow()
    await engine.spawnId('task', null, { key: 'occupied' })
    await claimOne(engine)
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), [await child(engine, 'task', { key: 'occupied' })])])
    expect(await claimOne(engine)).toMatchObject({ id, children: [] })
  })

  test('trap 11: a stale join spawns no child and takes no key', async () => {
    const engine = await startFlow()
    await engine.spawnId('flow')
    const late = await claimOne(engine, { leaseMs: 1_000, alone: false })
    engine.advance(5_000)
    expect(await claim(engine, { peek: true })).toHaveLength(1)
    const specs = [await child(engine, 'task', { key: 'never' }), await child(engine, 'task')]
    expect((await flush(engine, [joins(late, specs)])).outcomes).toEqual([{ kind: 'stale' }])
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE parent_id = $1', [late.id])).toEqual([0])
    expect((await engine.spawn('task', null, { key: 'never' })).kind).toBe('created')
  })

  test('C145 trap 11: a child counts once, however often its end is sent and whoever sends it late', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 3))])
    const [first] = await claim(engine, { limit: 1, leaseMs: 1_000, alone: false })
    await flush(engine, [finishes(first!)])
    expect((await flush(engine, [finishes(first!)])).outcomes).toEqual([{ kind: 'applied', status: 'completed' }])
    expect(await engine.run(id)).toMatchObject({ joinRemaining: 2 })
    const [lost] = await claim(engine, { limit: 1, leaseMs: 1_000, alone: false })
    engine.advance(5_000)
    const [again] = (await claim(engine, { peek: true })).filter((run) => run.id === lost!.id)
    expect((await flush(engine, [fails(lost!)])).outcomes).toEqual([{ kind: 'stale' }])
    expect(await engine.run(id)).toMatchObject({ joinRemaining: 2 })
    await flush(engine, [finishes(again!)])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
  })

  test('trap 11: a late child of an older join changes nothing in the newer one', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 2), 1)])
    const [quick, late] = await claim(engine)
    await flush(engine, [finishes(quick!)])
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 2))])
    expect(await engine.run(id)).toMatchObject({ joinRemaining: 2 })
    await flush(engine, [finishes(late!)])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 2 })
  })

  test('C152 trap 11: results of children outlive their retention until the step that reads them is committed', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 3))])
    const siblings = await claim(engine)
    await flush(
      engine,
      siblings.slice(0, 2).map((run, index) => finishes(run, `${index}`)),
    )
    engine.advance(30 * DAY)
    await prune(engine)
    await flush(engine, [finishes((await rescue(engine, siblings[2]!.id))!, '2')])
    await prune(engine)
    const first = await claimOne(engine)
    await prune(engine)
    expect(first.children.map(({ result }) => result)).toEqual([0, 1, 2])
    await flush(engine, [retries(first)])
    await prune(engine)
    const second = await claimOne(engine)
    expect(second.children.map(({ result }) => result)).toEqual([0, 1, 2])
    await flush(engine, [goesOn(second, 'end')])
    engine.advance(30 * DAY)
    await prune(engine)
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE parent_id = $1', [id])).toEqual([0])
  })

  test('trap 11: retrying an ended run while it is pruned either finds it or leaves no key behind', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('task', null, { key: 'pruned' })
    await flush(engine, [fails(await claimOne(engine))])
    const pruning = await openSession(engine.fresh.connectionString)
    await pruning.execute(`DELETE FROM pawl.runs WHERE id = '${id}'`)
    const retried = engine.store.retry(id, { tenant: 'default' })
    await untilBlocked(engine.fresh.connectionString, { blockedBy: pruning.pid })
    await pruning.commit()
    expect(await retried).toEqual({ kind: 'not_found' })
    expect((await engine.spawn('task', null, { key: 'pruned' })).kind).toBe('created')
  })

  test('trap 11: a signal for a parent that waits for its children is kept and does not wake it', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 1))])
    const only = await claimOne(engine)
    expect(await engine.signal({ id }, 'a', 1)).toMatchObject({ kind: 'delivered', woke: false })
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    await flush(engine, [finishes(only)])
    const parent = await claimOne(engine)
    await flush(engine, [waits(parent, ['a'])])
    expect(await claimOne(engine)).toMatchObject({ id, inbox: [{ name: 'a', payload: 1 }] })
  })

  test(
    'C144 C145 trap 11: children that finish at once, each in a request of its own and twice, count exactly and wake once',
    async () => {
      const engine = await startFlow()
      await inWaves(`trap 11 on PostgreSQL ${version}, child and child`, RACES, 20, async (size) => {
        const id = await engine.spawnId('flow')
        await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', size))])
        const siblings = await claim(engine)
        const last = siblings.at(-1)!
        const others = siblings.slice(0, -1).flatMap((run) => [flush(engine, [finishes(run)]), flush(engine, [finishes(run)])])
        await Promise.all(others)
        expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
        await flush(engine, [finishes(last)])
        const parent = await claimOne(engine)
        expect(parent.children.filter((one) => one.status === 'completed')).toHaveLength(size)
        await flush(engine, [finishes(parent)])
      })
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES),
  )

  test(
    'C145 trap 11: late children that finish while their parent parks on new ones never touch the new join',
    async () => {
      const engine = await startFlow()
      await inWaves(`trap 11 on PostgreSQL ${version}, child and park`, RACES, 10, (size) => raceParks(engine, size))
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES),
  )

  test(
    'C150 C151 C269 trap 11: children that end well or not, all at once and while the deadline passes, wake their parent once',
    async () => {
      const engine = await startFlow()
      await inWaves(`trap 11 on PostgreSQL ${version}, quorum, deadline and children`, RACES, 12, (size) =>
        raceQuorums(engine, size),
      )
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES),
  )
})

const RACES = raceCount(300)
const DAY = 86_400_000

async function prune(engine: TestEngine): Promise<void> {
  await engine.sql("UPDATE pawl.environments SET upkeep_at = '-infinity'")
  await engine.store.upkeep({ source: 'test', nextInMs: 0, minRetentionSeconds: 0 })
}

/** Takes that run again after its lease has lapsed. */
async function rescue(engine: TestEngine, id: string) {
  return (await claim(engine, { peek: true })).find((run) => run.id === id)
}

/** Parents with a late child of their first join, which ends at the moment when the parent parks on its second. */
async function raceParks(engine: TestEngine, size: number): Promise<void> {
  await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
  const first = await claim(engine)
  for (const parent of first) await flush(engine, [joins(parent, await children(engine, 'task', 2), 1)])
  const tasks = await claim(engine)
  const families = first.map((parent) => tasks.filter((run) => run.parentId === parent.id))
  await flush(
    engine,
    families.map(([quick]) => finishes(quick!)),
  )
  const parents = await claim(engine)
  const next = await Promise.all(parents.map(() => children(engine, 'task', 1)))
  await Promise.all([
    ...parents.map((parent, index) => flush(engine, [joins(parent, next[index]!)])),
    ...families.map(([, late]) => flush(engine, [finishes(late!)])),
  ])
  for (const parent of parents) expect(await engine.run(parent.id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
  await flush(
    engine,
    (await claim(engine)).map((run) => finishes(run)),
  )
  const woken = await claim(engine)
  expect(woken.map((run) => run.id).sort()).toEqual(parents.map((run) => run.id).sort())
  await flush(
    engine,
    woken.map((run) => finishes(run)),
  )
}

/** Parents of three children that need two good ones: of each, a different lot fail; half of the parents' deadlines pass meanwhile. */
async function raceQuorums(engine: TestEngine, size: number): Promise<void> {
  await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
  const parents = await claim(engine)
  for (const [index, parent] of parents.entries()) {
    const deadlineMs = index % 2 === 0 ? 1_000 : null
    await flush(engine, [
      joins(parent, await children(engine, 'task', 3), 2, { failFast: index % 5 === 4, deadlineMs: deadlineMs ?? undefined }),
    ])
  }
  const tasks = await claim(engine)
  engine.advance(1_000)
  const taken: string[] = []
  const takes = async () => {
    for (const run of await claim(engine, { limit: size })) taken.push(run.id)
  }
  const ends = tasks.map((run, index) => flush(engine, [index % 3 === 0 ? fails(run) : finishes(run)]))
  await Promise.all([...ends.slice(0, size), takes(), ...ends.slice(size), takes()])
  await takes()
  expect([...taken].sort()).toEqual(parents.map(({ id }) => id).sort())
  for (const { id } of parents) {
    // parked, and woken by one of them: the claim comes on top
    const run = await engine.run(id)
    expect({ status: run.status, outcomes: (await engine.history(id)).length }).toEqual({ status: 'running', outcomes: 1 })
  }
  await engine.sql(
    "UPDATE pawl.runs SET status = 'completed', claimed_by = NULL, finished_at = now() WHERE status = 'running' AND id = ANY ($1)",
    [parents.map(({ id }) => id)],
  )
}
