import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { createCalls } from '../../src/client/calls.ts'
import { waitUntilStill } from '../../src/client/wait.ts'
import { DatabaseError } from '../../src/core/database.ts'
import { uuidv7 } from '../../src/core/ids.ts'
import type { Status } from '../../src/core/status.ts'
import type { RunRecord } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { type CallsSubject, callsSubject } from './subject.ts'

forEachVersion('a run that was spawned', (version) => {
  let subject: CallsSubject
  let order = 0
  let id = ''
  let pool: ReturnType<CallsSubject['fresh']['pool']>
  beforeAll(async () => {
    subject = await callsSubject(version)
    pool = subject.fresh.pool({ max: 1 })
  })
  beforeEach(async () => {
    order += 1
    id = (await subject.calls.spawn({ definition: 'order', input: { order, customer: 'ada' } })).id
  })
  afterAll(() => subject.close())

  const inbox = async (runId: string) => {
    const { rows } = await pool.query('SELECT name, payload FROM pawl.signals WHERE run_id = $1 ORDER BY id', [runId])
    return rows
  }

  test('takes a signal by id and by key, with its payload, in one request each', async () => {
    const before = subject.database.requests
    const first = await subject.calls.signal({ to: { id }, name: 'paid', payload: { cents: 5 } })
    expect(first).toMatchObject({ runId: id, replayed: false })
    await subject.calls.signal({ to: { key: `order:${order}` }, name: 'paid', payload: { cents: 6 } })
    await subject.calls.signal({ to: { key: `order:${order}`, definition: 'order' }, name: 'paid', payload: { cents: 7 } })
    expect(subject.database.requests - before).toBe(3)
    expect(await inbox(id)).toEqual([5, 6, 7].map((cents) => ({ name: 'paid', payload: { cents } })))
  })

  test.each([
    ['a name that nobody declares', { name: 'payed', payload: { cents: 1 } }, 'invalid_signal', undefined],
    ['a payload that does not match', { name: 'paid', payload: { cents: 'x' } }, 'invalid_signal', '/cents'],
    ['no payload where one is declared', { name: 'paid' }, 'invalid_signal', ''],
    ['a payload that nobody takes', { name: 'note', payload: 7 }, 'invalid_signal', ''],
  ])('refuses %s, and nothing is delivered', async (_, signal, code, pointer) => {
    const sending = subject.calls.signal({ to: { id }, ...signal })
    await expect(sending).rejects.toMatchObject({ code, status: 422 })
    const error = await sending.catch((thrown: { errors?: { pointer: string }[] }) => thrown)
    expect((error as { errors?: { pointer: string }[] }).errors?.[0]?.pointer).toBe(pointer)
    expect(await inbox(id)).toEqual([])
  })

  test('where two definitions declare a signal differently, the one of the target counts', async () => {
    const survey = await subject.calls.spawn({ definition: 'survey', input: {} })
    await subject.calls.signal({ to: { id }, name: 'note', payload: 'hello' })
    await subject.calls.signal({ to: { id: survey.id }, name: 'note', payload: { stars: 5 } })
    await expect(subject.calls.signal({ to: { id: survey.id }, name: 'note', payload: 'hello' })).rejects.toMatchObject({
      code: 'invalid_signal',
    })
    await expect(subject.calls.signal({ to: { id: uuidv7() }, name: 'note', payload: 'hello' })).rejects.toMatchObject({
      code: 'no_target',
    })
    expect(await inbox(id)).toHaveLength(1)
  })

  test.each([
    ['an unknown id', { id: uuidv7() }],
    ['an id that is none', { id: 'x' }],
    ['an unknown key', { key: 'order:none' }],
  ])('C120 %s is no target', async (_, to) => {
    const sending = subject.calls.signal({ to, name: 'paid', payload: { cents: 1 } })
    await expect(sending).rejects.toMatchObject({ code: 'no_target', status: 404 })
  })

  test('another tenant has no target here, and finds no run', async () => {
    const other = { tenant: 'acme' }
    await expect(subject.calls.signal({ to: { id }, name: 'paid', payload: { cents: 1 } }, other)).rejects.toMatchObject({
      code: 'no_target',
    })
    await expect(subject.calls.getRun(id, other)).rejects.toMatchObject({ code: 'not_found' })
    await expect(subject.calls.cancel(id, other)).rejects.toMatchObject({ code: 'not_found' })
    await expect(subject.calls.retry(id, {}, other)).rejects.toMatchObject({ code: 'not_found' })
  })

  test('C122 the same signal under one idempotency key arrives once, however often it is sent', async () => {
    const call = { to: { id }, name: 'paid', payload: { cents: 5 }, idempotencyKey: `pay:${id}` }
    const first = await subject.calls.signal(call)
    const again = await Promise.all(Array.from({ length: 9 }, () => subject.calls.signal(call)))
    expect(again).toEqual(again.map(() => ({ ...first, replayed: true })))
    await expect(subject.calls.signal({ ...call, payload: { cents: 6 } })).rejects.toMatchObject({ code: 'idempotency_mismatch' })
    expect(await inbox(id)).toHaveLength(1)
  })

  test('a definition that is not registered is refused as the address of a signal', async () => {
    const sending = subject.calls.signal({ to: { key: 'k', definition: 'oder' }, name: 'paid', payload: { cents: 1 } })
    await expect(sending).rejects.toMatchObject({ code: 'unknown_definition' })
  })

  test('C120 cancel says what it did, an ended run takes no signal, and retry starts it again', async () => {
    expect(await subject.calls.cancel(id)).toEqual({ id, did: 'cancelled', status: 'cancelled' })
    expect(await subject.calls.cancel(id)).toMatchObject({ did: 'already_cancelled' })
    await expect(subject.calls.signal({ to: { id }, name: 'paid', payload: { cents: 1 } })).rejects.toMatchObject({
      code: 'no_target',
    })
    expect(await inbox(id)).toEqual([])
    expect(await subject.calls.retry(id)).toMatchObject({ id, status: 'pending' })
    await expect(subject.calls.retry(id)).rejects.toMatchObject({ code: 'not_retryable', status: 409 })
    expect((await subject.calls.getRun(id)).status).toBe('pending')
  })

  test('retry is refused while another run holds the key', async () => {
    await subject.calls.cancel(id)
    const holder = await subject.calls.spawn({ definition: 'order', input: { order, customer: 'bob' } })
    expect(holder.created).toBe(true)
    await expect(subject.calls.retry(id)).rejects.toMatchObject({ code: 'key_taken', got: holder.id })
  })

  test.each(['cancel', 'retry', 'getRun'] as const)('%s of an unknown run is not found', async (verb) => {
    for (const unknown of [uuidv7(), 'x']) {
      await expect(subject.calls[verb](unknown)).rejects.toMatchObject({ code: 'not_found', status: 404 })
    }
  })
})

describe('waiting for a run', () => {
  /** A run that has these statuses, one per look, on a clock of its own. */
  function pacedRun(statuses: readonly Status[]) {
    const pauses: number[] = []
    let nowMs = 0
    let looks = 0
    const look = () => Promise.resolve({ status: statuses[Math.min(looks++, statuses.length - 1)] } as RunRecord)
    const pause = (ms: number) => {
      pauses.push(ms)
      nowMs += ms
      return Promise.resolve()
    }
    return { pauses, look, pacing: { nowMs: () => nowMs, pause } }
  }

  test('answers when it stands still, with growing pauses', async () => {
    const { pauses, look, pacing } = pacedRun(['pending', 'running', 'waiting', 'completed'])
    expect((await waitUntilStill(look, 20_000, pacing)).status).toBe('completed')
    expect(pauses).toEqual([50, 75, 112.5])
  })

  test.each(['completed', 'failed', 'cancelled', 'discarded', 'uncertain'] as const)(
    'does not wait for a %s one',
    async (status) => {
      const { pauses, look, pacing } = pacedRun([status])
      expect((await waitUntilStill(look, 20_000, pacing)).status).toBe(status)
      expect(pauses).toEqual([])
    },
  )

  test('looks once when there is no time, and never longer than 25 s or 40 times', async () => {
    const none = pacedRun(['pending'])
    expect((await waitUntilStill(none.look, 0, none.pacing)).status).toBe('pending')
    expect(none.pauses).toEqual([])
    const long = pacedRun(['pending'])
    await waitUntilStill(long.look, 3_600_000, long.pacing)
    expect(long.pauses.reduce((sum, ms) => sum + ms, 0)).toBe(25_000)
    expect(long.pauses.length).toBeLessThan(40)
    expect(Math.max(...long.pauses)).toBe(1_000)
  })

  test('a database that cannot be reached is said, not waited for', async () => {
    const store = { getRun: () => Promise.reject(new DatabaseError('reset', { fate: 'lost' })) }
    const calls = createCalls({ store: store as never, registry: { definitions: [] } as never })
    await expect(calls.waitForRun(uuidv7(), 1_000)).rejects.toMatchObject({ code: 'database_unreachable' })
  })
})
