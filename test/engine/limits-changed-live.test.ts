import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { type LimitPolicy, limit } from '../../src/core/limit.ts'
import type { ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest, finishes, flush, moves } from '../traps/outcomes.ts'
import { raceCount, raceTimeout } from '../traps/race-count.ts'

const limited = limit('limited', { concurrency: 32, rate: { count: 32, per: '1 day' } })
const definitions = [
  job({ name: 'light', input: z.unknown(), limits: [limited], run: () => null }),
  job({ name: 'heavy', input: z.unknown(), limits: [limited.weighing(6)], run: () => null }),
]

const policy = (shards: number, concurrency?: number, burst?: number, perMs = 20): LimitPolicy => ({
  concurrency,
  rate: burst === undefined ? undefined : { count: burst, perMs: perMs * burst, burst },
  shards,
})

const declare = (engine: TestEngine, to: LimitPolicy) => engine.store.declareLimits([{ name: 'limited', policy: to }])
const many = (count: number) => Array.from({ length: count }, () => ({}))
const heldOf = (engine: TestEngine) =>
  engine.sql<number>(
    'SELECT coalesce(sum(c.held), 0)::int FROM pawl.limit_counters c JOIN pawl.environments e ON e.id = c.environment_id WHERE e.name = $1',
    [engine.environment],
  )

/** How many have ended; a tick that finds nothing to do does not look for it again and again. */
async function tickUntilDone(engine: TestEngine, count: number): Promise<number> {
  let done = 0
  for (let ticks = 0; done < count && ticks < 60; ticks += 1) {
    const { completed, requests } = await engine.tick()
    expect(requests).toBeLessThan(15)
    done += completed
    engine.advance(20)
  }
  return done
}

/** The sequence that is declared, round and round: kinds, sizes and shards change with each. */
const CHANGES: readonly LimitPolicy[] = [
  policy(1, 8),
  policy(1, 3),
  policy(2, 6, 4),
  policy(1, undefined, 5),
  policy(1, 2, 8),
  policy(4, 8, 8),
  policy(1, 4),
  policy(4, undefined, 8),
  policy(1, 1, 1),
  policy(4, 12),
  policy(4, 6),
  policy(4, 8, 5),
  policy(2, 8),
  policy(8, 8),
  policy(3, 7, 9),
]

/** What is counted of the time in which one policy is declared. */
interface Era {
  readonly policy: LimitPolicy
  /** Each shard goes by itself, and what was held before may be more than one has now: then only what this policy let in is within it. */
  readonly isSharded: boolean
  /** Claims that began before are over: all later ones went by this policy. */
  isPure: boolean
  since: number
  started: number
}

interface InHand {
  readonly weight: number
  /** Whose policy let it in; null where it was changed meanwhile. */
  readonly era: Era | null
}

const WEIGHTS: Readonly<Record<string, number>> = { light: 1, heavy: 6 }

/** Every third goes on to another step and keeps its slot meanwhile. */
const isKeeper = ({ id }: ClaimedRun) => Number.parseInt(id.slice(-4), 16) % 3 === 0

/** Eight claimers, and somebody who changes the limit whenever so many runs more have ended. */
class Churn {
  readonly engine: TestEngine
  readonly inHand = new Map<string, InHand>()
  /** Whose slots they keep while they are not in hand. */
  readonly kept = new Map<string, Era | null>()
  readonly faults: string[] = []
  readonly claims = new Set<Promise<unknown>>()
  left: number
  era: Era

  constructor(engine: TestEngine, left: number) {
    this.engine = engine
    this.left = left
    this.era = { policy: CHANGES[0]!, isSharded: false, isPure: false, since: 0, started: 0 }
  }

  unitsOf(weight: number, amount: number | undefined): number {
    return Math.min(weight, Math.max(1, Math.floor((amount ?? weight) / this.era.policy.shards)))
  }

  check(): void {
    const { policy: now, isSharded, since, started } = this.era
    const counted = [...this.inHand.values()].filter(({ era }) => !isSharded || era === this.era)
    const held = counted.reduce((sum, { weight }) => sum + this.unitsOf(weight, now.concurrency), 0)
    if (held > (now.concurrency ?? held)) this.faults.push(`${held} in hand of ${JSON.stringify(now)}`)
    if (now.rate === undefined) return
    const tokens = now.rate.burst + ((this.engine.clock() - since) * now.rate.count) / now.rate.perMs
    if (started > tokens + 0.001) this.faults.push(`${started} started for ${tokens} tokens of ${JSON.stringify(now)}`)
  }

  async claim() {
    const { era } = this
    const isPure = era.isPure
    const claiming = this.engine.store.claim(claimRequest(this.engine, { limit: 4 }))
    this.claims.add(claiming)
    const { runs } = await claiming
    this.claims.delete(claiming)
    const owner = isPure && era === this.era ? era : null
    // one that has kept its slot asks for nothing
    for (const { id, definition, heldGates } of runs)
      this.inHand.set(id, { weight: WEIGHTS[definition] ?? 1, era: heldGates.length > 0 ? (this.kept.get(id) ?? null) : owner })
    const fresh = runs.filter(({ heldGates }) => heldGates.length === 0)
    if (fresh.length === 0 || owner === null) return runs
    era.started += fresh.reduce((sum, { definition }) => sum + this.unitsOf(WEIGHTS[definition] ?? 1, era.policy.rate?.burst), 0)
    this.check()
    return runs
  }

  /** What it has claimed stays in hand for some claims more. */
  async work(worker: number): Promise<void> {
    const mine: (readonly ClaimedRun[])[] = []
    for (let idle = 0, turn = worker; (this.left > 0 && idle < 3_000) || mine.length > 0; turn += 1) {
      const runs = await this.claim()
      if (runs.length > 0) mine.push(runs)
      idle = runs.length === 0 ? idle + 1 : 0
      await new Promise((resolve) => setImmediate(resolve))
      if (turn % 4 === 0 || runs.length === 0) await this.finish(mine.shift() ?? [])
    }
  }

  async finish(runs: readonly ClaimedRun[]): Promise<void> {
    for (const { id } of runs) {
      this.kept.set(id, this.inHand.get(id)?.era ?? null)
      this.inHand.delete(id)
    }
    const outcomes = runs.map((run) =>
      run.visit === 1 && isKeeper(run) ? { ...moves(run, 'run'), slots: 'keep' as const } : finishes(run),
    )
    this.left -= outcomes.filter(({ kind }) => kind === 'done').length
    if (runs.length > 0) await flush(this.engine, outcomes)
    else await this.rest()
  }

  /** What a tick without work does besides. */
  async rest(): Promise<void> {
    this.engine.advance(5)
    await this.engine.store.upkeep({ source: 'test', nextInMs: 60_000, minRetentionSeconds: 1_000_000 })
  }

  async change(every: number): Promise<void> {
    for (let n = 0; this.left > 0 && this.faults.length === 0; n += 1) {
      const next = CHANGES[n % CHANGES.length]!
      await declare(this.engine, next)
      const isSharded = next.shards > 1 || this.era.policy.shards > 1
      const era: Era = { policy: next, isSharded, isPure: false, since: 0, started: 0 }
      this.era = era
      const before = this.left
      await Promise.all(this.claims)
      Object.assign(era, { isPure: true, since: this.engine.clock() })
      for (let turns = 0; this.left > Math.max(0, before - every) && turns < 1_000_000; turns += 1)
        await new Promise((resolve) => setImmediate(resolve))
    }
  }
}

const COUNT = raceCount(200)

forEachVersion('limits that are changed live', (version) => {
  const { start } = sharedEngines(version)
  const begin = async (first: LimitPolicy) => {
    const engine = await start({ definitions, version, frozen: true, connections: 16 })
    // the first tick declares what the code says
    await engine.tick()
    await declare(engine, first)
    return engine
  }

  test.each([
    ['more slots than tokens', policy(2, 10, 4)],
    ['more tokens than slots', policy(2, 4, 10)],
    ['as many, not shared out evenly', policy(3, 7, 8)],
    ['one of each', policy(4, 4, 4)],
    ['all of the slots, and fewer tokens', policy(1, 4, 2)],
    ['all of the slots, and more tokens', policy(1, 2, 4)],
  ])('C165 C171 a run heavier than a shard that has %s has its turn, before and behind light ones', async (_, lowered) => {
    const engine = await begin(policy(1, 32, 32))
    await engine.spawnMany('light', many(3))
    await engine.spawnMany('heavy', many(3))
    await engine.spawnMany('light', many(3))
    const inHand = await claim(engine, { limit: 1 })
    await declare(engine, lowered)
    await flush(
      engine,
      inHand.map((run) => finishes(run)),
    )
    expect(await tickUntilDone(engine, 8)).toBe(8)
    expect(await heldOf(engine)).toEqual([0])
  })

  test.each([
    ['slots in shards', policy(8, 64)],
    ['slots and tokens in shards', policy(8, 64, 64)],
    ['tokens alone, in shards', policy(8, undefined, 64)],
  ])('C171 who waits for a limit of one shard is let in with the next tick when it is given more %s', async (_, raised) => {
    const engine = await begin(policy(1, 8))
    await engine.spawnMany('light', many(24))
    expect(await claim(engine)).toHaveLength(8)
    expect(await claim(engine)).toHaveLength(0)
    await declare(engine, raised)
    expect(await engine.tick()).toMatchObject({ completed: 16 })
  })

  test('C171 a limit spread over more shards makes no room for who waits, as long as one of them holds all that it has', async () => {
    const engine = await begin(policy(1, 8))
    await engine.spawnMany('light', many(12))
    const inHand = await claim(engine)
    expect(await claim(engine)).toHaveLength(0)
    await declare(engine, policy(8, 8))
    expect(await engine.tick()).toMatchObject({ completed: 0 })
    await flush(
      engine,
      inHand.map((run) => finishes(run)),
    )
    expect(await tickUntilDone(engine, 4)).toBe(4)
  })

  test(
    'C171 C165 with eight claimers at work: never more than the new one allows, nobody is left behind, and every slot is free at the end',
    async () => {
      const engine = await begin(policy(1, 8))
      const each = COUNT / 2
      await engine.spawnMany('light', many(each))
      await engine.spawnMany('heavy', many(each))
      const churn = new Churn(engine, COUNT)
      await Promise.all([churn.change(12), ...Array.from({ length: 8 }, (_, worker) => churn.work(worker))])
      expect(churn.faults).toEqual([])
      expect(churn.left).toBe(0)
      expect(await heldOf(engine)).toEqual([0])
    },
    raceTimeout(COUNT),
  )
})
