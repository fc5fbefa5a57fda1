import { expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import type { Calls } from '../../src/core/calls.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import type { ResolveCall } from '../../src/core/resolution.ts'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines, type TestEngine } from '../support/engine.ts'
import { claimOf, LEASE_MS } from './claim-request.ts'

const pay = job({
  name: 'pay',
  output: z.object({ receipt: z.string() }),
  error: z.object({ bank: z.string() }),
  key: () => 'order:1',
  run: ({ uncertain }) => uncertain({ reason: 'no answer' }),
})

const callsOf = ({ store, registry }: TestEngine): Calls => createCalls({ store, registry })
const ALICE = { by: 'alice' }

forEachVersion('resolving', (version) => {
  const { start } = sharedEngines(version)

  async function uncertainRun(engine: TestEngine): Promise<string> {
    const id = await engine.spawnId('pay')
    await engine.tick()
    expect((await engine.run(id)).status).toBe('uncertain')
    return id
  }

  test('C056 a confirmed success ends the run with its result, who decided it and why', async () => {
    const engine = await start({ definitions: [pay], frozen: true })
    const id = await uncertainRun(engine)
    const calls = callsOf(engine)
    const decision: ResolveCall = { id: 'd-1', decision: 'success', result: { receipt: 'r-9' }, details: { ticket: 'T-1' } }
    expect(await calls.resolve(id, decision, ALICE)).toEqual({ id, did: 'resolved', decision: 'success', status: 'completed' })
    expect(await engine.run(id)).toMatchObject({
      status: 'completed',
      result: { receipt: 'r-9' },
      error: null,
      attempt: 1,
      finishedAt: engine.clock(),
      uncertainty: {
        by: 'handler',
        reason: 'no answer',
        resolution: {
          id: 'd-1',
          decision: 'success',
          by: 'alice',
          details: { ticket: 'T-1' },
          at: new Date(engine.clock()).toISOString(),
        },
      },
    })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['uncertain', 'resolved'])
    // its key is free again
    expect(await engine.spawn('pay')).toMatchObject({ kind: 'created' })
  })

  test('C056 the same decision again is known to be applied, another under its id or after it is a conflict', async () => {
    const engine = await start({ definitions: [pay] })
    const id = await uncertainRun(engine)
    const calls = callsOf(engine)
    const decision: ResolveCall = { id: 'd-1', decision: 'failure', error: { message: 'declined', data: { bank: 'b' } } }
    await calls.resolve(id, decision, ALICE)
    expect(await engine.run(id)).toMatchObject({
      status: 'failed',
      error: { code: 'failed', message: 'declined', data: { bank: 'b' }, cause: 'confirmed' },
    })
    const before = await engine.history(id)
    expect(await calls.resolve(id, decision, ALICE)).toEqual({
      id,
      did: 'already_applied',
      decision: 'failure',
      status: 'failed',
    })
    const others: ResolveCall[] = [
      { id: 'd-1', decision: 'success', result: { receipt: 'x' } },
      { id: 'd-1', decision: 'failure', error: 'something else' },
      { id: 'd-2', decision: 'failure', error: { message: 'declined', data: { bank: 'b' } } },
    ]
    for (const other of others) await expect(calls.resolve(id, other, ALICE)).rejects.toMatchObject({ code: 'conflict' })
    await expect(calls.resolve(id, decision, { by: 'bob' })).rejects.toMatchObject({ code: 'conflict' })
    expect(await engine.history(id)).toEqual(before)
  })

  test('C056 a replay runs the step again with the same idempotency key, and decisions of before are still known', async () => {
    const seen: unknown[] = []
    const twice = job({
      name: 'pay',
      retry: { maxAttempts: 1 },
      run: ({ idempotencyKey, attempt, uncertain }) => {
        seen.push([idempotencyKey, attempt])
        return attempt < 3 ? uncertain({ reason: `try ${attempt}` }) : 'paid'
      },
    })
    const engine = await start({ definitions: [twice] })
    const id = await uncertainRun(engine)
    const calls = callsOf(engine)
    const first: ResolveCall = { id: 'd-1', decision: 'replay' }
    expect(await calls.resolve(id, first, ALICE)).toMatchObject({ did: 'resolved', status: 'pending' })
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({
      status: 'uncertain',
      uncertainty: { reason: 'try 2', earlier: [{ reason: 'try 1', resolution: { id: 'd-1', decision: 'replay' } }] },
    })
    // carried out already: it does not authorise a second replay
    expect(await calls.resolve(id, first, ALICE)).toMatchObject({ did: 'already_applied', status: 'uncertain' })
    await calls.resolve(id, { id: 'd-2', decision: 'replay' }, ALICE)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: 'paid', attempt: 3 })
    expect(seen).toEqual([1, 2, 3].map((attempt) => [`${id}:1`, attempt]))
  })

  test('C056 an abandoned run that is replayed and abandoned again is held again', async () => {
    const held = job({ name: 'pay', onAbandoned: 'hold', run: () => 'paid' })
    const engine = await start({ definitions: [held], frozen: true })
    const id = await engine.spawnId('pay')
    for (const n of [1, 2]) {
      expect((await engine.store.claim(claimOf(engine, 1))).runs).toHaveLength(1)
      engine.advance(LEASE_MS)
      await engine.store.claim(claimOf(engine, 1, { definitions: [{ name: 'another', version: 1 }] }))
      expect(await engine.run(id)).toMatchObject({ status: 'uncertain', losses: n })
      await callsOf(engine).resolve(id, { id: `d-${n}`, decision: 'replay' }, ALICE)
    }
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', attempt: 3 })
  })

  test('C056 a result that does not match, a decision without a name, and what is not of it are refused, and nothing is written', async () => {
    const engine = await start({ definitions: [pay] })
    const id = await uncertainRun(engine)
    const calls = callsOf(engine)
    const refused: [ResolveCall, string][] = [
      [{ id: 'd', decision: 'success', result: { receipt: 5 } }, 'invalid_result'],
      [{ id: 'd', decision: 'success' }, 'invalid_result'],
      [{ id: 'd', decision: 'failure', error: { message: 'x', data: { bank: 1 } } }, 'invalid_error'],
      [{ id: 'd', decision: 'failure', error: '' }, 'invalid_request'],
      [{ id: '', decision: 'replay' }, 'invalid_request'],
      [{ id: 'd', decision: 'replay', result: 1 } as ResolveCall, 'invalid_request'],
      [{ id: 'd', decision: 'other' } as unknown as ResolveCall, 'invalid_request'],
      [{ id: 'd', decision: 'replay', details: 'x'.repeat(65_536) }, 'payload_too_large'],
    ]
    for (const [call, code] of refused) await expect(calls.resolve(id, call, ALICE)).rejects.toMatchObject({ code })
    await expect(calls.resolve(id, { id: 'd', decision: 'replay' })).rejects.toMatchObject({ field: 'by' })
    await expect(calls.resolve(id, { id: 'd', decision: 'replay' }, { ...ALICE, tenant: 'other' })).rejects.toMatchObject({
      code: 'not_found',
    })
    expect(await engine.run(id)).toMatchObject({ status: 'uncertain', seq: 2 })
  })

  test('C056 a run that is not uncertain cannot be resolved, and an uncertain one cannot be retried', async () => {
    const engine = await start({ definitions: [pay] })
    const [waiting, calls] = [await engine.spawnId('pay'), callsOf(engine)]
    const decision: ResolveCall = { id: 'd', decision: 'replay' }
    await expect(calls.resolve(waiting, decision, ALICE)).rejects.toMatchObject({ code: 'conflict' })
    await engine.tick()
    await expect(calls.retry(waiting)).rejects.toMatchObject({
      code: 'not_retryable',
      message: expect.stringContaining('resolved'),
    })
  })

  test('C056 with a cancellation requested a replay is refused, and confirming keeps both facts', async () => {
    const engine = await start({ definitions: [pay] })
    const id = await uncertainRun(engine)
    const calls = callsOf(engine)
    expect(await calls.cancel(id, ALICE)).toMatchObject({ did: 'requested', status: 'uncertain' })
    await expect(calls.resolve(id, { id: 'd', decision: 'replay' }, ALICE)).rejects.toMatchObject({ code: 'conflict' })
    await calls.resolve(id, { id: 'e', decision: 'success', result: { receipt: 'r' } }, ALICE)
    const run = await engine.run(id)
    expect(run).toMatchObject({ status: 'completed', uncertainty: { reason: 'no answer', resolution: { decision: 'success' } } })
    expect(run.cancelRequestedAt).not.toBeNull()
  })

  test('C056 a parent that waits for an uncertain child goes on once the child is resolved', async () => {
    const parent = machine({
      name: 'parent',
      state: z.object({}),
      output: z.array(z.string()),
      initial: 'split',
      steps: {
        split: ({ join }) => join([pay.with(null)], { goto: 'end' }),
        end: ({ children, done }) =>
          done(children(pay).map((child) => (child.status === 'completed' ? child.result.receipt : ''))),
      },
    })
    const engine = await start({ definitions: [parent, pay] })
    const id = await engine.spawnId('parent', {})
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 1 })
    const [child] = await engine.sql<string>("SELECT id FROM pawl.runs WHERE status = 'uncertain' AND parent_id = $1", [id])
    await callsOf(engine).resolve(child!, { id: 'd', decision: 'success', result: { receipt: 'r-1' } }, ALICE)
    await engine.tick()
    expect(await engine.run(id)).toMatchObject({ status: 'completed', result: ['r-1'] })
  })

  test('C056 of many decisions at the same moment one is carried out', async () => {
    const engine = await start({ definitions: [pay], connections: 8 })
    const id = await uncertainRun(engine)
    const calls = callsOf(engine)
    const settled = await Promise.allSettled(
      Array.from({ length: 16 }, (_, n) => calls.resolve(id, { id: `d-${n}`, decision: 'replay' }, ALICE)),
    )
    expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect((await engine.history(id)).filter(({ outcome }) => outcome === 'resolved')).toHaveLength(1)
  })
})
