import { expect, test } from 'vitest'
import type { NewResolution, ResolveAnswer } from '../../src/core/resolution.ts'
import { isTerminal } from '../../src/core/status.ts'
import type { CancelAnswer, ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { children, claim, claimRequest, fails, finishes, flush, joins, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'

/** The capabilities ask for 1,000 of each, which the soak runs. */
const RACES = raceCount(200)
const WIDTH = 20
const BY = { tenant: 'default', by: 'ann' }

type Race = (engine: TestEngine, size: number) => Promise<void>

const RACES_OF_CANCEL: readonly (readonly [string, Race])[] = [
  ['a claim', againstClaims],
  ['a wake-up', againstWakes],
  ['a retry', againstRetries],
  ['the spawning of children', againstChildren],
  ['the end of children', againstEndsOfChildren],
  ['a deadline', againstDeadlines],
  ['a decision on what is uncertain', againstDecisions],
]

forEachVersion('races of cancelling', (version) => {
  const { start } = sharedEngines(version)

  test.each(RACES_OF_CANCEL)(
    'C060 trap 2: a cancellation and %s at the same time leave one end, nothing runs after it, and nothing deadlocks',
    async (name, race) => {
      const engine = await start({ definitions: TRAP_DEFINITIONS, version, connections: 16 })
      await inWaves(`PostgreSQL ${version}, cancel and ${name}`, RACES, WIDTH, (size) => race(engine, size))
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES),
  )
})

const cancel = (engine: TestEngine, id: string) => engine.store.cancel(id, BY) as Promise<CancelAnswer>
const spawn = (engine: TestEngine, size: number, definition: string) =>
  Promise.all(Array.from({ length: size }, () => engine.spawnId(definition)))

/** What each pair of requests is sent as: which of them goes first alternates. */
function pairs<T>(ids: readonly T[], one: (item: T) => Promise<unknown>, other: (item: T) => Promise<unknown>) {
  return ids.flatMap((id, index) => (index % 2 === 0 ? [one(id), other(id)] : [other(id), one(id)]))
}

/** One end each, and it is the last word. */
async function expectOneEnd(engine: TestEngine, ids: readonly string[]): Promise<void> {
  for (const id of ids) {
    const outcomes = (await engine.history(id)).map(({ outcome }) => outcome)
    const ends = outcomes.filter((outcome) => ['done', 'fail', 'cancel'].includes(outcome)).length
    expect([
      ends - outcomes.filter((outcome) => outcome === 'retried').length,
      isTerminal((await engine.run(id)).status),
    ]).toEqual([1, true])
  }
  expect(await claim(engine)).toEqual([])
  const left = 'SELECT count(*)::int FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id WHERE r.id = ANY ($1)'
  expect(await engine.sql(left, [ids])).toEqual([0])
}

async function finishAll(engine: TestEngine, runs: readonly ClaimedRun[]): Promise<void> {
  if (runs.length > 0)
    await flush(
      engine,
      runs.map((run) => finishes(run)),
    )
}

async function endAllDue(engine: TestEngine): Promise<void> {
  for (let moved = true; moved; ) moved = (await engine.store.endDue()).moved
}

async function againstClaims(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'task')
  const claims = Array.from({ length: 6 }, () => claim(engine, { limit: 6 }))
  const [answers, ...taken] = await Promise.all([Promise.all(ids.map((id) => cancel(engine, id))), ...claims])
  const runs = [...taken.flat(), ...(await claim(engine))]
  const ended = new Set(answers.filter(({ did }) => did === 'cancelled').map(({ id }) => id))
  expect(runs.filter((run) => ended.has(run.id))).toEqual([])
  expect(runs.length + ended.size).toBe(size)
  await finishAll(engine, runs)
  await expectOneEnd(engine, ids)
}

async function againstWakes(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'flow')
  await flush(
    engine,
    (await claim(engine)).map((run) => waits(run, ['a'])),
  )
  const answers = new Map<string, CancelAnswer>()
  const racing = pairs(
    ids,
    async (id) => answers.set(id, await cancel(engine, id)),
    (id) => engine.signal({ id }, 'a'),
  )
  const [early] = await Promise.all([claim(engine, { limit: 5 }), ...racing])
  const runs = [...early, ...(await claim(engine))]
  for (const run of runs) expect(answers.get(run.id)?.did).toBe('requested')
  await finishAll(engine, runs)
  await expectOneEnd(engine, ids)
}

async function againstRetries(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'task')
  await flush(
    engine,
    (await claim(engine)).map((run) => fails(run)),
  )
  const racing = pairs(
    ids,
    (id) => cancel(engine, id),
    (id) => engine.store.retry(id, { tenant: 'default' }),
  )
  await Promise.all(racing)
  await finishAll(engine, await claim(engine))
  await expectOneEnd(engine, ids)
}

async function againstChildren(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'flow')
  const own = await children(engine, 'task', size * 2)
  const parents = await claim(engine)
  const racing = pairs(
    parents,
    (run) => cancel(engine, run.id),
    (run) => {
      const at = parents.indexOf(run) * 2
      return flush(engine, [joins(run, own.slice(at, at + 2))])
    },
  )
  await Promise.all(racing)
  await endAllDue(engine)
  const born = await engine.sql<string>('SELECT id FROM pawl.runs WHERE parent_id = ANY ($1)', [ids])
  await expectOneEnd(engine, [...ids, ...born])
  const notCancelled = `SELECT id FROM pawl.runs WHERE (id = ANY ($1) OR parent_id = ANY ($1)) AND status <> 'cancelled'`
  expect(await engine.sql(notCancelled, [ids])).toEqual([])
}

async function againstEndsOfChildren(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'flow')
  const own = await children(engine, 'task', size * 2)
  const parents = await claim(engine)
  await flush(
    engine,
    parents.map((run, index) => joins(run, own.slice(index * 2, index * 2 + 2))),
  )
  const born = await claim(engine)
  const writes = born.map((run, index) => () => flush(engine, [index % 3 === 0 ? fails(run) : finishes(run)]))
  const racing = [...ids.map((id) => () => cancel(engine, id)), ...writes, ...[1, 2, 3].map(() => () => engine.store.endDue())]
  await Promise.all(racing.sort(() => Math.random() - 0.5).map((send) => send()))
  await endAllDue(engine)
  await finishAll(engine, await claim(engine))
  await expectOneEnd(engine, [...ids, ...born.map(({ id }) => id)])
}

async function againstDeadlines(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'task')
  await engine.sql(
    `UPDATE pawl.runs SET deadline_at = now() - interval '1 hour', policy = '{"maxTotalMs": 1, "sinceMs": 0}' WHERE id = ANY ($1)`,
    [ids],
  )
  const ending = Array.from({ length: 3 }, () => engine.store.endDue())
  const [taken] = await Promise.all([
    engine.store.claim(claimRequest(engine, { limit: 5 })),
    ...ids.map((id) => cancel(engine, id)),
    ...ending,
  ])
  await finishAll(engine, [...taken.runs, ...(await claim(engine))])
  await expectOneEnd(engine, ids)
}

const DECISIONS = ['success', 'failure', 'replay'] as const
const decisionOn = (decision: (typeof DECISIONS)[number]): NewResolution => ({
  resolution: { id: 'd-1', decision, by: 'ann', fingerprint: decision },
  result: decision === 'success' ? '"paid"' : null,
  error: decision === 'failure' ? '{"code": "declined", "message": "declined"}' : null,
})

/** A replay that came first is cancelled; one that came second is refused, and the run waits for another decision with the request kept. */
async function againstDecisions(engine: TestEngine, size: number): Promise<void> {
  const ids = await spawn(engine, size, 'task')
  await flush(
    engine,
    (await claim(engine)).map((run) => ({
      ...finishes(run),
      kind: 'uncertain',
      status: 'uncertain',
      uncertainty: '{"by": "handler"}',
    })),
  )
  const decided = new Map(ids.map((id, index) => [id, DECISIONS[index % 3] as (typeof DECISIONS)[number]]))
  const cancelled = new Map<string, CancelAnswer>()
  const resolved = new Map<string, ResolveAnswer>()
  const racing = pairs(
    ids.toSorted(() => Math.random() - 0.5),
    async (id) => cancelled.set(id, await cancel(engine, id)),
    async (id) => resolved.set(id, await engine.store.resolve(id, BY, decisionOn(decided.get(id) ?? 'success'))),
  )
  await Promise.all(racing)
  for (const id of ids) {
    const run = await engine.run(id)
    const seen = [decided.get(id), cancelled.get(id)?.did, resolved.get(id)?.kind, run.status]
    const legal = [
      ...['requested', 'already_ended'].flatMap((did) => [
        ['success', did, 'resolved', 'completed'],
        ['failure', did, 'resolved', 'failed'],
      ]),
      ['replay', 'cancelled', 'resolved', 'cancelled'],
      ['replay', 'requested', 'cancel_requested', 'uncertain'],
    ]
    expect(legal).toContainEqual(seen)
    if (cancelled.get(id)?.did === 'requested') expect(run.cancellation).not.toBeNull()
  }
  const undecided = ids.filter((id) => resolved.get(id)?.kind === 'cancel_requested')
  const { resolution, ...rest } = decisionOn('success')
  const last = { ...rest, resolution: { ...resolution, id: 'd-2' } }
  for (const id of undecided) expect(await engine.store.resolve(id, BY, last)).toEqual({ kind: 'resolved', status: 'completed' })
  expect(await claim(engine)).toEqual([])
}
