import { expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { children, claim, claimOne, finishes, flush, goesOn, joins, moves } from './outcomes.ts'

const LEASE_MS = 1_000

forEachVersion('trap 16: a write after the lease', (version) => {
  const { start } = sharedEngines(version)
  const startFlow = () => start({ definitions: TRAP_DEFINITIONS, version, frozen: true })

  test('C046 trap 16: an outcome is refused once the lease has expired, though nobody has swept', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine, { leaseMs: LEASE_MS })
    engine.advance(LEASE_MS)
    expect((await flush(engine, [finishes(run)])).outcomes).toEqual([{ kind: 'stale' }])
    expect(await engine.run(id)).toMatchObject({ status: 'running', seq: run.seq })
    expect(await engine.history(id)).toEqual([])
    expect((await engine.store.claim({ ...emptyClaim(), peek: true })).rescued).toBe(1)
  })

  test('C046 trap 16: an outcome is written up to the last millisecond of the lease', async () => {
    const engine = await startFlow()
    await engine.spawnId('flow')
    const run = await claimOne(engine, { leaseMs: LEASE_MS })
    engine.advance(LEASE_MS - 1)
    expect((await flush(engine, [finishes(run)])).outcomes).toEqual([{ kind: 'applied', status: 'completed' }])
  })

  test('C047 trap 16: a beat after the lease does not bring it back', async () => {
    const engine = await startFlow()
    await engine.spawnId('flow')
    const run = await claimOne(engine, { leaseMs: LEASE_MS })
    engine.advance(LEASE_MS)
    expect(await engine.store.keep([run], LEASE_MS)).toMatchObject({ lostClaims: [run.claimId] })
    expect((await flush(engine, [finishes(run)])).outcomes).toEqual([{ kind: 'stale' }])
  })

  test('C045 trap 16: whoever was taken over changes nothing: no child, no history, no signal consumed', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const old = await claimOne(engine, { leaseMs: LEASE_MS, alone: false })
    engine.advance(LEASE_MS)
    const owner = await claimOne(engine, { peek: true })
    expect(owner.id).toBe(id)
    expect((await flush(engine, [joins(old, await children(engine, 'task', 3))])).outcomes).toEqual([{ kind: 'stale' }])
    expect(await engine.sql('SELECT count(*)::int FROM pawl.runs WHERE parent_id = $1', [id])).toEqual([0])
    expect((await flush(engine, [finishes(owner)])).outcomes).toEqual([{ kind: 'applied', status: 'completed' }])
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['lost', 'done'])
  })

  test('the guard: an outcome of an earlier step is stale, though the claim and its lease are the same', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    await flush(engine, [goesOn(run, 'middle')])
    const second = { ...run, seq: run.seq + 1, step: 'middle', visit: 2 }
    await flush(engine, [goesOn(second, 'end')])
    // the history of that seq is this claim's own: told as applied, and nothing is written
    await flush(engine, [finishes(run)])
    expect(await engine.run(id)).toMatchObject({ status: 'running', step: 'end', seq: run.seq + 2 })
    expect((await engine.history(id)).map(({ outcome }) => outcome)).toEqual(['continue', 'continue'])
  })

  test('the guard: sent again, an outcome is told as applied and changes nothing', async () => {
    const engine = await startFlow()
    const id = await engine.spawnId('flow')
    const run = await claimOne(engine)
    const outcome = moves(run, 'middle')
    await flush(engine, [outcome])
    expect((await flush(engine, [outcome])).outcomes).toEqual([{ kind: 'applied', status: 'pending' }])
    expect(await engine.run(id)).toMatchObject({ status: 'pending', seq: run.seq + 1, visit: 2 })
    expect(await claim(engine)).toHaveLength(1)
  })
})

function emptyClaim() {
  return {
    claimId: crypto.randomUUID(),
    definitions: [],
    queues: null,
    limit: 1,
    maxBytes: 1,
    leaseMs: LEASE_MS,
    laneCursor: 0,
    alone: false,
    besides: [],
  }
}
