import { expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import type { Admission, ClaimedRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { type EngineOptions, moment, sharedEngines } from '../support/engine.ts'
import { claimRequest, finishes } from '../traps/outcomes.ts'

const MINUTE = 60_000

const report = job({
  name: 'report',
  input: z.object({ of: z.string(), text: z.string().optional() }),
  unique: { by: ['of'], onConflict: 'reschedule' },
  run: ({ input }) => input.text ?? null,
})
const task = job({ name: 'task', input: z.json(), retry: { maxAttempts: 2 }, run: () => null })
const narrow = limit('narrow', { concurrency: 1 })
/** What is not interesting about an answer left out. */
const short = (answer: Admission | undefined) =>
  answer && 'id' in answer ? { kind: answer.kind, id: answer.id, effect: 'effect' in answer ? answer.effect : undefined } : answer

forEachVersion('rescheduling on conflict', (version) => {
  const engines = sharedEngines(version)
  const start = (options: Partial<EngineOptions> = {}) => engines.start({ definitions: [report, task], frozen: true, ...options })

  test('C023 a duplicate moves the start of a run that is not yet due, later, earlier and to now', async () => {
    const engine = await start()
    const id = await engine.spawnId('report', { of: 'a', text: 'first' }, { delay: '1h' })
    const moved = { kind: 'occupied', id, status: 'pending', effect: 'rescheduled' }
    const later = new Date(engine.clock() + 120 * MINUTE)
    expect(await engine.spawn('report', { of: 'a' }, { at: later })).toEqual(moved)
    expect(await engine.run(id)).toMatchObject({ scheduledFor: later.getTime(), availableAt: later.getTime() })
    expect(await engine.spawn('report', { of: 'a' }, { delay: '30m' })).toEqual(moved)
    expect(await engine.tick()).toMatchObject({ claimed: 0, nextDueAt: engine.clock() + 30 * MINUTE })
    expect(await engine.spawn('report', { of: 'a' })).toEqual(moved)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
    // it is moved, and nothing else of it is changed
    expect(await engine.run(id)).toMatchObject({ input: { of: 'a', text: 'first' }, result: 'first' })
  })

  test('C023 a run that is due leaves the claim window when it is moved to later, and comes back then', async () => {
    const engine = await start()
    const id = await engine.spawnId('report', { of: 'a' })
    expect(await engine.spawn('report', { of: 'a' }, { delay: '1m' })).toMatchObject({ id, effect: 'rescheduled' })
    expect(await engine.tick()).toMatchObject({ claimed: 0, more: false })
    engine.advance(MINUTE)
    expect(await engine.tick()).toMatchObject({ promoted: 1, claimed: 1, completed: 1 })
  })

  test('C023 one that is due and is asked for now keeps its place', async () => {
    const engine = await start()
    const id = await engine.spawnId('report', { of: 'a' })
    const before = await engine.run(id)
    engine.advance(1_000)
    expect(await engine.spawn('report', { of: 'a' })).toMatchObject({ id, effect: 'rescheduled' })
    expect((await engine.run(id)).availableAt).toBe(before.availableAt)
    expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
  })

  test('C023 a run that executes, has begun or has ended is left as it is', async () => {
    const running = moment()
    const go = moment()
    const held = job({
      name: 'held',
      input: z.string(),
      unique: { onConflict: 'reschedule', whileRetained: true },
      retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: '1h' } },
      run: async ({ input, attempt }) => {
        if (input !== 'held') return attempt > 1 ? null : Promise.reject(new Error('again'))
        running.happen()
        await go.promise
        return null
      },
    })
    const engine = await start({ definitions: [held] })
    const failing = await engine.spawnId('held', 'failing')
    expect(await engine.tick()).toMatchObject({ claimed: 1 })
    const executing = await engine.spawnId('held', 'held')
    const ticking = engine.tick()
    await running.promise
    for (const [id, input] of [
      [executing, 'held'],
      [failing, 'failing'],
    ] as const) {
      const before = await engine.run(id)
      expect(short(await engine.spawn('held', input, { delay: '2h' }))).toEqual({ kind: 'occupied', id, effect: undefined })
      expect(await engine.run(id)).toEqual(before)
    }
    go.happen()
    await ticking
    expect(await engine.spawn('held', 'held', { delay: '2h' })).toEqual({
      kind: 'occupied',
      id: executing,
      status: 'completed',
      effect: undefined,
    })
  })

  test('C022 C023 a period that begins with the schedule moves along with the start', async () => {
    const weekly = job({
      name: 'weekly',
      input: z.object({ of: z.string() }),
      unique: { by: ['of'], period: '1h', from: 'schedule', onConflict: 'reschedule' },
      run: () => null,
    })
    const engine = await start({ definitions: [weekly] })
    const id = await engine.spawnId('weekly', { of: 'a' }, { delay: '10m' })
    expect(await engine.spawn('weekly', { of: 'a' }, { delay: '2h' })).toMatchObject({ id, effect: 'rescheduled' })
    engine.advance(120 * MINUTE)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
    engine.advance(59 * MINUTE)
    expect(await engine.spawn('weekly', { of: 'a' })).toMatchObject({ kind: 'occupied', id })
    engine.advance(MINUTE)
    expect(await engine.spawn('weekly', { of: 'a' })).toMatchObject({ kind: 'created' })
  })

  test('C023 a call may say so itself, for a key as well, or leave the other run alone', async () => {
    const engine = await start()
    const keyed = await engine.spawnId('task', 1, { key: 'k', delay: '1h' })
    expect(short(await engine.spawn('task', 2, { key: 'k' }))).toEqual({ kind: 'occupied', id: keyed, effect: undefined })
    expect(await engine.spawn('task', 2, { key: 'k', delay: '2h', onConflict: 'reschedule' })).toMatchObject({
      id: keyed,
      effect: 'rescheduled',
    })
    expect((await engine.run(keyed)).availableAt).toBe(engine.clock() + 120 * MINUTE)
    const unique = await engine.spawnId('report', { of: 'a' }, { delay: '1h' })
    expect(short(await engine.spawn('report', { of: 'a' }, { onConflict: 'keep' }))).toEqual({
      kind: 'occupied',
      id: unique,
      effect: undefined,
    })
  })

  test('C023 C015 the answer to an idempotency key is the one first given, and moves nothing again', async () => {
    const engine = await start()
    const id = await engine.spawnId('report', { of: 'a' }, { delay: '1h' })
    const asked = { delay: '2h', receipt: { key: 'r', fingerprint: 'f' } } as const
    expect(await engine.spawn('report', { of: 'a' }, asked)).toMatchObject({ kind: 'occupied', id, effect: 'rescheduled' })
    engine.advance(1_000)
    const { availableAt } = await engine.run(id)
    expect(await engine.spawn('report', { of: 'a' }, asked)).toMatchObject({
      kind: 'replayed',
      id,
      created: false,
      effect: 'rescheduled',
    })
    expect((await engine.run(id)).availableAt).toBe(availableAt)
  })

  test('C023 a run blocked on a limit waits no longer in its line once it is moved, and joins it again', async () => {
    const alone = job({
      name: 'alone',
      input: z.string(),
      concurrencyKey: () => 'one',
      unique: { onConflict: 'reschedule' },
      run: () => null,
    })
    const engine = await start({ definitions: [alone], budget: { batch: 10 } })
    const ids = [await engine.spawnId('alone', 'a'), await engine.spawnId('alone', 'b')]
    // only a claim that holds the counter and sees it full blocks a run
    const claimed = [await engine.store.claim(claimRequest(engine)), await engine.store.claim(claimRequest(engine))]
    const [holder] = claimed.flatMap(({ runs }) => runs)
    const waiting = ids.find((id) => id !== holder?.id) as string
    const input = waiting === ids[0] ? 'a' : 'b'
    expect((await engine.run(waiting)).blockedOn).not.toBeNull()
    expect(await engine.spawn('alone', input, { delay: '1m' })).toMatchObject({ id: waiting, effect: 'rescheduled' })
    expect((await engine.run(waiting)).blockedOn).toBeNull()
    await engine.store.flush({ outcomes: [finishes(holder as ClaimedRun)], endedClaims: [] }, null)
    expect(await engine.tick()).toMatchObject({ claimed: 0 })
    engine.advance(MINUTE)
    expect(await engine.tick()).toMatchObject({ promoted: 1, claimed: 1, completed: 1 })
  })

  test.each(['reschedule', 'debounce'] as const)(
    'C023 C270 a run that has been handed room and is moved to later (%s) leaves the room to the next in line',
    async (kind) => {
      const input = z.object({ of: z.string() })
      const moved =
        kind === 'debounce'
          ? { debounce: { by: ['of'], wait: '1s', max: '1h' } as const }
          : { unique: { onConflict: 'reschedule' } as const }
      const mover = job({ name: 'mover', input, limits: [narrow], ...moved, run: () => null })
      const follower = job({ name: 'follower', limits: [narrow], run: () => null })
      const engine = await start({ definitions: [mover, follower] })
      const claim = async () => (await engine.store.claim(claimRequest(engine))).runs
      const blocked = async (id: string) => (await engine.run(id)).blockedOn !== null
      await engine.spawnId('follower')
      // the counter may have to be made first
      const [holder] = [...(await claim()), ...(await claim())]
      const first = await engine.spawnId('mover', { of: 'a' })
      engine.advance(1_000)
      const bystander = await engines.start({ definitions: [task], frozen: true, beside: engine })
      bystander.advance(engine.clock() - bystander.clock())
      await bystander.tick()
      await claim()
      const second = await engine.spawnId('follower')
      await claim()
      expect([await blocked(first), await blocked(second)]).toEqual([true, true])
      await engine.store.flush({ outcomes: [finishes(holder as ClaimedRun)], endedClaims: [] }, null)
      expect([await blocked(first), await blocked(second)]).toEqual([false, true])
      expect(await engine.spawn('mover', { of: 'a' }, kind === 'debounce' ? {} : { delay: '1m' })).toMatchObject({ id: first })
      expect(await engine.tick()).toMatchObject({ claimed: 1, completed: 1 })
      expect((await engine.run(second)).status).toBe('completed')
    },
  )

  test('C023 C112 the deadlines of a run that is moved to earlier count from then', async () => {
    const soon = job({
      name: 'soon',
      input: z.string(),
      startWithin: '10m',
      unique: { onConflict: 'reschedule' },
      run: () => null,
    })
    const engine = await start({ definitions: [soon] })
    const id = await engine.spawnId('soon', 'a', { delay: '10h' })
    await engine.store.pauseRun(id, { tenant: 'default', by: null })
    await engine.spawn('soon', 'a')
    engine.advance(9 * MINUTE)
    await engine.tick()
    expect((await engine.run(id)).status).toBe('pending')
    engine.advance(MINUTE)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled', error: { deadline: 'startWithin' } })
  })
})
