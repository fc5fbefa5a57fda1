import { expect, test } from 'vitest'
import type { ClaimedRun } from '../../src/core/store.ts'
import { runTopic } from '../../src/core/topics.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { flow, task } from './definitions.ts'
import { claim, finishes, flush, waits } from './outcomes.ts'
import { inWaves, raceCount, raceTimeout } from './race-count.ts'

const RACES = raceCount(120)
const WIDTH = 20
const WAIT_MS = 1_000

/** What one run was shown, step by step. */
interface Story {
  readonly names: readonly string[]
  readonly shown: string[]
  readonly timeouts: number[]
  claims: number
}

forEachVersion('trap 1: a signal, an event, the ends of two runs and a timeout', (version) => {
  const { start } = sharedEngines(version)

  test(
    'C130 C148 trap 1: all at the same instant wake a run once, show it each of them once, and the timeout at most once and first',
    async () => {
      const engine = await start({ definitions: [flow, task], version, connections: 16, frozen: true })
      let waves = 0
      await inWaves(`trap 1 on PostgreSQL ${version}, all at once`, RACES, WIDTH, async (size) => {
        waves += 1
        await raceAll(engine, size, waves)
      })
      const left = `SELECT (SELECT count(*) FROM pawl.event_waits) + (SELECT count(*) FROM pawl.outbox)
        + (SELECT count(*) FROM pawl.runs r JOIN pawl.environments e ON e.id = r.environment_id WHERE e.name = $1 AND r.awaited)`
      expect((await engine.sql(left, [engine.environment])).map(Number)).toEqual([0])
      expect(engine.database.requests).toBe(engine.sent.length)
    },
    raceTimeout(RACES * 3),
  )
})

async function raceAll(engine: TestEngine, size: number, wave: number): Promise<void> {
  await Promise.all(Array.from({ length: size }, () => engine.spawnId('task')))
  const targets = await claim(engine)
  await Promise.all(Array.from({ length: size }, () => engine.spawnId('flow')))
  const runs = await claim(engine)
  const event = `e${wave}`
  const namesOf = (index: number) => [
    'a',
    `event:${event}`,
    ...[targets[index]!, targets[(index + 1) % size]!].map(({ id }) => runTopic(id)),
  ]
  const stories = new Map(
    runs.map((run, index): [string, Story] => [run.id, { names: namesOf(index), shown: [], timeouts: [], claims: 0 }]),
  )
  const park = (run: ClaimedRun) => flush(engine, [waits(run, stories.get(run.id)!.names, WAIT_MS)])
  // the last of them park while everything happens
  const [parked, late] = [runs.slice(0, -3), runs.slice(-3)]
  await Promise.all(parked.map(park))
  engine.advance(WAIT_MS)
  const claimed = await Promise.all([
    claim(engine, { limit: 7 }),
    ...targets.slice(0, size / 2).map(async (run) => void (await flush(engine, [finishes(run, '1')]))),
    ...runs.slice(0, size / 2).map(async ({ id }) => void (await engine.signal({ id }, 'a', id))),
    claim(engine, { limit: 7 }),
    emit(engine, event),
    ...late.map(async (run) => void (await park(run))),
    claim(engine, { limit: 7 }),
    ...runs.slice(size / 2).map(async ({ id }) => void (await engine.signal({ id }, 'a', id))),
    emit(engine, event),
    flush(
      engine,
      targets.slice(size / 2).map((run) => finishes(run, '1')),
    ).then(() => undefined),
  ])
  await engine.store.relay(1_000)
  await readOn(engine, stories, [...claimed.flatMap((taken) => taken ?? []), ...(await claim(engine))])
  for (const [id, story] of stories) await expectTrue(engine, id, story)
}

async function emit(engine: TestEngine, name: string): Promise<undefined> {
  await engine.store.emit({ tenant: 'default', name, payload: '1', retentionMs: 60_000, receipt: null })
}

/** Each run reads what it is shown, and waits on for the rest until it has seen all. */
async function readOn(engine: TestEngine, stories: ReadonlyMap<string, Story>, first: readonly ClaimedRun[]): Promise<void> {
  expect(first.map(({ id }) => id).sort()).toEqual([...stories.keys()].sort())
  for (let woken = first; woken.length > 0; woken = await claim(engine)) {
    const outcomes = woken.map((run) => {
      const story = stories.get(run.id)!
      expect(run.timedOut || run.inbox.length > 0).toBe(true)
      if (run.timedOut) story.timeouts.push(story.claims)
      story.claims += 1
      story.shown.push(...run.inbox.map(({ name }) => name))
      const rest = story.names.filter((name) => !story.shown.includes(name))
      return rest.length === 0 ? finishes(run) : waits(run, rest)
    })
    await flush(engine, outcomes)
    await engine.store.relay(1_000)
  }
}

async function expectTrue(engine: TestEngine, id: string, story: Story): Promise<void> {
  expect(story.shown.toSorted()).toEqual(story.names.toSorted())
  expect(story.timeouts).toEqual(story.timeouts.length > 0 ? [0] : [])
  expect((await engine.history(id)).map(({ outcome }) => outcome).toSorted()).toEqual([
    'done',
    ...Array.from({ length: story.claims }, () => 'wait'),
  ])
  expect(await engine.run(id)).toMatchObject({ status: 'completed' })
}
