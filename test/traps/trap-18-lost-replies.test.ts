import { expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { uuidv7 } from '../../src/core/ids.ts'
import { job } from '../../src/core/job.ts'
import { cron } from '../../src/core/trigger.ts'
import { startBehindProxy } from '../support/behind-proxy.ts'
import { forEachVersion } from '../support/database.ts'
import type { TestEngine } from '../support/engine.ts'
import { untilBlocked } from '../support/races.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'

forEachVersion('trap 18: a server that carries out COMMIT, and whose answer is lost', (version) => {
  test.each([
    // of such a one it cannot be told whether it is there or its lane is not: it is sent once more, with the lane
    ['nothing that names it', 3, () => ({})],
    ['a key', 2, () => ({ key: 'k' })],
    ['an id', 2, () => ({ id: uuidv7() })],
    ['an idempotency key', 2, () => ({ receipt: { key: 'r', fingerprint: 'f' } })],
  ])('trap 18: a spawn with %s is told as it was, and made one run', async (_, sends, options) => {
    const { engine, loseReplyOf } = await startLosing(version)
    const before = await countRuns(engine)
    loseReplyOf('insert_runs')
    expect(await engine.spawn('flow', 1, options())).toMatchObject({ kind: 'created', status: 'pending' })
    expect(engine.sent.filter((names) => names.some((name) => name.startsWith('insert_runs')))).toHaveLength(sends)
    expect(await countRuns(engine)).toBe(before + 1)
    expect(await engine.tick()).toMatchObject({ completed: 1 })
  })

  test.each([
    ['an id', null],
    ['a key', null],
    ['a key and an idempotency key', { key: 'r', fingerprint: 'f' }],
  ])('trap 18: a signal to %s is told as it was, and arrives once', async (to, receipt) => {
    const { engine, loseReplyOf } = await startLosing(version)
    const id = await engine.spawnId('flow', 1, { key: 'k' })
    loseReplyOf('deliver_signal')
    const signal = { tenant: 'default', name: 'a', payload: '1', receipt }
    const delivery = await engine.store.signal({ ...signal, to: to === 'an id' ? { id } : { key: 'k', definition: null } })
    expect(delivery).toMatchObject({ kind: 'delivered', runId: id, replayed: false })
    expect(engine.sent.filter((names) => names.includes('deliver_signal'))).toHaveLength(2)
    expect(await engine.sql('SELECT name FROM pawl.signals WHERE run_id = $1', [id])).toEqual(['a'])
  })

  test('trap 18: a signal to a key that is free again when it is resent is not guessed at', async () => {
    const { engine, onSend, loseReplyOf } = await startLosing(version)
    const id = await engine.spawnId('flow', 1, { key: 'k' })
    let sends = 0
    loseReplyOf('deliver_signal')
    onSend(async (names) => {
      if (!names.includes('deliver_signal')) return
      sends += 1
      if (sends === 2) await engine.store.cancel(id, { tenant: 'default', by: null })
    })
    const calls = createCalls(engine)
    const sending = calls.signal({ to: { key: 'k' }, name: 'a', payload: 1 })
    await expect(sending).rejects.toMatchObject({ code: 'unknown_outcome', kind: 'unknown' })
    expect(await engine.sql('SELECT name FROM pawl.signals WHERE run_id = $1', [id])).toEqual(['a'])
  })

  test('trap 18: a flush is applied once, and the step it ended does not run again', async () => {
    const effects: unknown[] = []
    const effect = job({ name: 'effect', input: z.number(), run: ({ input }) => void effects.push(input) })
    const { engine, loseReplyOf } = await startLosing(version, [effect])
    const ids = await engine.spawnMany('effect', [1, 2, 3])
    loseReplyOf('apply_outcomes')
    expect(await engine.tick()).toMatchObject({ completed: 3, stale: 0, rescued: 0 })
    expect(effects.sort()).toEqual([1, 2, 3])
    for (const id of ids) expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['done'])
  })

  test.each(['insert_runs', 'advance_schedule'])('trap 18: a slot of a schedule is fired once (%s)', async (statement) => {
    const hourly = job({ name: 'hourly', triggers: [cron('0 * * * *')], run: () => null })
    const { engine, loseReplyOf } = await startLosing(version, [hourly])
    await engine.tick()
    engine.advance(3_600_000)
    loseReplyOf(statement)
    await engine.tick()
    await engine.tick()
    expect(await countRuns(engine)).toBe(1)
    expect(await engine.sql('SELECT last_at IS NOT NULL AND next_at > last_at FROM pawl.schedules')).toEqual([true])
  })

  test('C024 trap 18: an outcome that resending cannot settle is unknown; reconciling by its key answers the one run', async () => {
    const { engine, proxy } = await startLosing(version)
    const calls = createCalls(engine)
    const call = { definition: 'task', input: 'once', idempotencyKey: 'order-1' }
    proxy.faults.dropReply(3)
    await expect(calls.spawn(call)).rejects.toMatchObject({ code: 'unknown_outcome', kind: 'unknown' })
    const found = await calls.reconcile('order-1')
    expect(found).toEqual({ kind: 'run', id: expect.any(String), status: 'pending', created: true, replayed: true })
    expect(await calls.spawn(call)).toMatchObject({ id: found.id, created: true, replayed: true })
    expect(await countRuns(engine)).toBe(1)
    await expect(calls.reconcile('order-2')).rejects.toMatchObject({ code: 'not_found', field: 'idempotencyKey' })
    await expect(calls.reconcile('order-1', { tenant: 'acme' })).rejects.toMatchObject({ code: 'not_found' })
  })

  test('C024 trap 18: the same of a signal', async () => {
    const { engine, proxy } = await startLosing(version)
    const calls = createCalls(engine)
    const id = await engine.spawnId('flow')
    const call = { to: { id }, name: 'a', payload: 1, idempotencyKey: 'pay-1' }
    proxy.faults.dropReply(3)
    await expect(calls.signal(call)).rejects.toMatchObject({ code: 'unknown_outcome' })
    const found = await calls.reconcile('pay-1')
    expect(found).toEqual({ kind: 'signal', id: expect.any(String), runId: id, replayed: true })
    expect(await calls.signal(call)).toMatchObject({ id: found.id, replayed: true })
    expect(await engine.sql('SELECT name FROM pawl.signals WHERE run_id = $1', [id])).toEqual(['a'])
  })

  test('C024 trap 18: a request that was surely not sent is unreachable, one that may have been before stays unknown', async () => {
    const { engine, proxy, onSend } = await startLosing(version)
    const calls = createCalls(engine)
    const call = { definition: 'task', input: 'away', idempotencyKey: 'away' }
    await proxy.faults.refuse()
    await expect(calls.spawn(call)).rejects.toMatchObject({ code: 'database_unreachable', kind: 'unreachable' })
    await proxy.faults.accept()
    expect(await countRuns(engine)).toBe(0)
    let sends = 0
    proxy.faults.dropReply()
    onSend(async () => {
      sends += 1
      if (sends > 1) await proxy.faults.refuse()
    })
    await expect(calls.spawn(call)).rejects.toMatchObject({ code: 'unknown_outcome', kind: 'unknown' })
    onSend(async () => {})
    await proxy.faults.accept()
    expect(await calls.reconcile('away')).toMatchObject({ kind: 'run', created: true })
    expect(await countRuns(engine)).toBe(1)
  })

  test.each([
    ['', 1],
    [', the first of its environment', 0],
  ])('trap 18: reconciling waits for a request that is being written%s', async (_, before) => {
    const { engine } = await startLosing(version)
    const calls = createCalls(engine)
    await engine.spawnMany('task', Array.from({ length: before }))
    const pool = engine.fresh.pool({ max: 1 })
    const client = await pool.connect()
    await client.query('BEGIN')
    const spawned = await createCalls({ ...engine, store: { ...engine.store, ...engine.store.within(client) } }).spawn({
      definition: 'task',
      idempotencyKey: 'slow',
    })
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    const reconciling = Promise.allSettled([calls.reconcile('slow')])
    try {
      await untilBlocked(engine.fresh.connectionString, { blockedBy: rows[0]?.pid ?? 0 })
    } finally {
      await client.query('COMMIT')
      client.release()
    }
    expect(await reconciling).toMatchObject([{ status: 'fulfilled', value: { kind: 'run', id: spawned.id } }])
  })
})

/** An engine behind a proxy that may lose replies, once they have been sent. */
async function startLosing(version: 15 | 18, definitions: Parameters<typeof startBehindProxy>[1] = TRAP_DEFINITIONS) {
  const { engine, proxy, onSend } = await startBehindProxy(version, definitions)
  let armed: string | undefined
  let before: (names: readonly string[]) => unknown = () => {}
  onSend(async (names) => {
    await before(names)
    if (armed === undefined || !names.some((name) => name.startsWith(armed as string))) return
    armed = undefined
    proxy.faults.dropReply()
  })
  return {
    engine,
    proxy,
    /** The next batch with such a statement is carried out, and its reply lost. */
    loseReplyOf: (statement: string) => {
      armed = statement
    },
    onSend: (hook: typeof before) => {
      before = hook
    },
  }
}

async function countRuns(engine: TestEngine): Promise<number> {
  return (await engine.sql<number>('SELECT count(*)::int FROM pawl.runs WHERE environment_id > 0'))[0] ?? -1
}
