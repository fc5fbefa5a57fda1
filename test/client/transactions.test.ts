import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { createPawl } from '../../src/index.ts'
import { forEachVersion } from '../support/database.ts'
import { TEST_BUDGET } from '../support/engine.ts'
import { type CallersSubject, callersOf } from './callers.ts'

const mail = job({ name: 'mail', input: z.object({ to: z.string() }), run: ({ input }) => input.to })
const order = machine({
  name: 'order',
  input: z.object({ order: z.number() }),
  state: z.object({ order: z.number() }),
  signals: { paid: z.object({ cents: z.number() }) },
  output: z.number(),
  key: ({ order: id }) => `order:${id}`,
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('paid', { goto: 'end' }),
    end: ({ signals, done }) => done(signals.first('paid')?.payload.cents ?? 0),
  },
})
const listener = machine({
  name: 'listener',
  state: z.object({}),
  events: { opened: z.object({ day: z.number() }) },
  output: z.number(),
  initial: 'wait',
  steps: {
    wait: ({ waitFor }) => waitFor('opened', { goto: 'end' }),
    end: ({ signals, done }) => done(signals.first('opened')?.payload.day ?? 0),
  },
})
const definitions = [mail, order, listener] as const

/** Pawl over what the application has, and a ticker that runs when it is told. */
async function startApplication(callers: CallersSubject) {
  let kicks = 0
  const pawl = createPawl({ definitions }).connect({
    database: callers.database,
    onCommit: () => {
      kicks += 1
    },
  })
  const ticker = pawl.createTicker({ budget: TEST_BUDGET })
  return { ...callers, pawl, tick: () => ticker.tick('test'), kicks: () => kicks }
}

type Application = Awaited<ReturnType<typeof startApplication>>

class Change extends Error {}

forEachVersion('in a transaction of the caller’s', (version) => {
  describe.each(callersOf(version))('over $name', (callers) => {
    let app: Application
    let orders = 0
    beforeAll(async () => {
      app = await startApplication(await callers.open(version))
      // a lane that is there, and one (`order`) that is not
      await app.pawl.spawn(mail, { to: 'first' })
      await app.tick()
    }, 120_000)
    afterAll(() => app.close())

    const statusOf = async (id: string) => (await app.look<string>('SELECT status FROM pawl.runs WHERE id = $1', [id]))[0]
    const parked = async () => {
      orders += 1
      const { id } = await app.pawl.spawn(order, { order: orders })
      await app.tick()
      expect(await statusOf(id)).toBe('waiting')
      return { id, key: `order:${orders}` }
    }

    test('C012 C135 a rolled back transaction leaves no run, no lane, no signal and nobody woken', async () => {
      const target = await parked()
      const ids: string[] = []
      const changing = app.transaction(async ({ tx, execute }) => {
        await execute('INSERT INTO orders VALUES (1)')
        ids.push((await app.pawl.spawn(mail, { to: 'a' }, { tx })).id)
        ids.push((await app.pawl.spawn(order, { order: 9_001 }, { tx, queue: 'rolled-back', idempotencyKey: 'roll' })).id)
        const { items } = await app.pawl.spawnMany([mail.with({ to: 'b' }), mail.with({ to: 'c' })], { tx })
        ids.push(...items.map((item) => (item.ok ? item.value.id : '')))
        await app.pawl.signal({ id: target.id }, 'paid', { cents: 1 }, { tx })
        throw new Change('of mind')
      })
      await expect(changing).rejects.toThrow(Change)
      expect(await app.look('SELECT id FROM orders')).toEqual([])
      expect(ids).toHaveLength(4)
      expect(await app.look('SELECT id FROM pawl.runs WHERE id = ANY ($1)', [ids])).toEqual([])
      expect(await app.look('SELECT key FROM pawl.receipts WHERE key = $1', ['roll'])).toEqual([])
      expect(await app.look('SELECT run_id FROM pawl.signals WHERE run_id = $1', [target.id])).toEqual([])
      expect(await app.tick()).toMatchObject({ claimed: 0 })
      expect(await statusOf(target.id)).toBe('waiting')
      // nothing is remembered of it either: the same queue and key again
      const again = await app.pawl.spawn(order, { order: 9_001 }, { queue: 'rolled-back', idempotencyKey: 'roll' })
      expect(again).toMatchObject({ created: true, replayed: false })
      expect(await statusOf(again.id)).toBe('pending')
      await app.pawl.cancel(again.id)
    })

    test('C012 C013 C135 a committed one has them all, nobody sees them before, and what it says afterwards is a kick', async () => {
      const target = await parked()
      const kicks = app.kicks()
      const { spawned, signalled } = await app.transaction(async ({ tx, execute }) => {
        await execute(`INSERT INTO orders VALUES (${orders})`)
        const made = await app.pawl.spawn(mail, { to: 'd' }, { tx, idempotencyKey: `commit-${orders}` })
        expect(made).toMatchObject({ created: true, replayed: false, status: 'pending' })
        const sent = await app.pawl.signal({ key: target.key, definition: order }, 'paid', { cents: 7 }, { tx })
        expect(sent).toMatchObject({ runId: target.id, replayed: false })
        // a hint before the commit neither loses nor runs anything
        made.afterCommit()
        if (callers.looksBeside) {
          expect(await statusOf(made.id)).toBeUndefined()
          expect(await app.tick()).toMatchObject({ claimed: 0 })
          expect(await statusOf(target.id)).toBe('waiting')
        }
        return { spawned: made, signalled: sent }
      })
      expect(await app.look('SELECT id FROM orders')).toContain(orders)
      expect(app.kicks()).toBe(kicks + 1)
      spawned.afterCommit()
      signalled.afterCommit()
      expect(app.kicks()).toBe(kicks + 3)
      expect(await app.tick()).toMatchObject({ completed: 2 })
      expect(await app.pawl.result(mail, spawned.id)).toMatchObject({ status: 'completed', result: 'd' })
      expect(await app.pawl.result(order, target.id)).toMatchObject({ status: 'completed', result: 7 })
    })

    test('C135 an event of a rolled back transaction wakes nobody; that of a committed one all who wait, once it is committed', async () => {
      const targets = [await app.pawl.spawn(listener, {}), await app.pawl.spawn(listener, {})]
      await app.tick()
      const emits = (tx: Parameters<Parameters<typeof app.transaction>[0]>[0]['tx'], day: number) =>
        app.pawl.emit('opened', { day }, { tx, retention: '1s' })
      const rolledBack = app.transaction(async ({ tx }) => {
        expect(await emits(tx, 1)).toMatchObject({ name: 'opened' })
        throw new Change()
      })
      await expect(rolledBack).rejects.toThrow(Change)
      expect(await app.tick()).toMatchObject({ claimed: 0 })
      const { afterCommit } = await app.transaction(async ({ tx }) => {
        const emitted = await emits(tx, 2)
        if (callers.looksBeside) expect(await app.tick()).toMatchObject({ claimed: 0 })
        return emitted
      })
      for (const { id } of targets) expect(await statusOf(id)).toBe('waiting')
      const kicks = app.kicks()
      afterCommit()
      expect(app.kicks()).toBe(kicks + 1)
      expect(await app.tick()).toMatchObject({ completed: 2 })
      for (const { id } of targets) expect(await app.pawl.result(listener, id)).toMatchObject({ status: 'completed', result: 2 })
    })

    test('C013 a run whose commit nobody tells of runs with the next tick', async () => {
      const { id } = await app.transaction(({ tx }) => app.pawl.spawn(mail, { to: 'e' }, { tx }))
      expect(await app.tick()).toMatchObject({ completed: 1 })
      expect(await statusOf(id)).toBe('completed')
    })

    test('a rolled back savepoint takes what was in it, and what it took is free again', async () => {
      orders += 1
      const input = { order: orders }
      const id = `0190a1b2-0000-7000-8000-${String(orders).padStart(12, '0')}`
      const idempotencyKey = `save-${orders}`
      const { kept, lost } = await app.transaction(async ({ tx, execute }) => {
        await execute('SAVEPOINT a')
        const first = await app.pawl.spawn(order, input, { tx, id, idempotencyKey })
        expect(first).toMatchObject({ id, created: true, replayed: false })
        expect(await app.pawl.spawn(order, input, { tx, id, idempotencyKey })).toMatchObject({ created: true, replayed: true })
        expect(await app.pawl.spawn(order, input, { tx })).toMatchObject({ id, created: false })
        const gone = await app.pawl.spawn(mail, { to: 'gone' }, { tx })
        await app.pawl.signal({ id }, 'paid', { cents: 1 }, { tx })
        await execute('ROLLBACK TO SAVEPOINT a')
        await execute('SAVEPOINT b')
        const second = await app.pawl.spawn(order, input, { tx, id, idempotencyKey })
        expect(second).toMatchObject({ id, created: true, replayed: false })
        await app.pawl.signal({ id }, 'paid', { cents: 2 }, { tx, idempotencyKey: `pay-${orders}` })
        await execute('RELEASE SAVEPOINT b')
        expect(await app.pawl.spawn(order, input, { tx, id })).toMatchObject({ id, created: false })
        return { kept: second, lost: gone }
      })
      expect(await statusOf(lost.id)).toBeUndefined()
      expect(await app.look<number>('SELECT count(*)::int FROM pawl.signals WHERE run_id = $1', [id])).toEqual([1])
      await app.tick()
      expect(await app.pawl.result(order, kept.id)).toMatchObject({ status: 'completed', result: 2 })
      // the decision that a savepoint wrote is replayed as it was
      expect(await app.pawl.spawn(order, input, { id, idempotencyKey })).toMatchObject({ created: true, replayed: true })
    })

    test.each(['REPEATABLE READ', 'SERIALIZABLE'])('%s is refused by name, and nothing is written', async (isolation) => {
      const before = await app.look<number>('SELECT count(*)::int FROM pawl.runs')
      const spawning = app.transaction(({ tx }) => app.pawl.spawn(mail, { to: 'f' }, { tx }), isolation)
      await expect(spawning).rejects.toMatchObject({
        code: 'invalid_request',
        field: 'isolation',
        got: isolation,
        allowed: 'READ COMMITTED',
      })
      expect(await app.look('SELECT count(*)::int FROM pawl.runs')).toEqual(before)
    })

    test('what the call itself is refused for leaves the transaction as it was', async () => {
      const { id } = await app.transaction(async ({ tx }) => {
        const to = { id: '00000000-0000-7000-8000-00000000dead' }
        await expect(app.pawl.signal(to, 'paid', { cents: 1 }, { tx })).rejects.toMatchObject({ code: 'no_target' })
        await app.pawl.spawn(mail, { to: 'g' }, { tx, idempotencyKey: `g-${orders}` })
        const other = app.pawl.spawn(mail, { to: 'h' }, { tx, idempotencyKey: `g-${orders}` })
        await expect(other).rejects.toMatchObject({ code: 'idempotency_mismatch' })
        return app.pawl.spawn(mail, { to: 'i' }, { tx })
      })
      expect(await statusOf(id)).toBe('pending')
      await app.tick()
    })

    test('a transaction that has failed, or is read-only, is said to be that', async () => {
      const failed = app.transaction(async ({ tx, execute }) => {
        await execute('SELECT 1/0').catch(() => {})
        await app.pawl.spawn(mail, { to: 'j' }, { tx })
      })
      await expect(failed).rejects.toMatchObject({ code: 'invalid_request', field: 'tx', got: 'a transaction that has failed' })
      const reading = app.transaction(async ({ tx, execute }) => {
        await execute('SET TRANSACTION READ ONLY')
        await app.pawl.spawn(mail, { to: 'k' }, { tx })
      })
      await expect(reading).rejects.toMatchObject({ code: 'invalid_request', field: 'tx', allowed: 'one that may write' })
    })
  })
})
