import { expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { child, children, claim, claimOne, finishes, flush, joins, waits } from './outcomes.ts'

forEachVersion('trap 4: no statement writes one row twice', (version) => {
  const { start } = sharedEngines(version)

  test('trap 4: a parent that parks and its late child that finishes, in one batch, are both written', async () => {
    const engine = await start({ definitions: TRAP_DEFINITIONS, version })
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 2), 1)])
    const [quick, late] = await claim(engine)
    await flush(engine, [finishes(quick!)])
    const parent = await claimOne(engine)
    const next = await children(engine, 'task', 2)
    await flush(engine, [joins(parent, next), finishes(late!)])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 2 })
    expect(await engine.run(late!.id)).toMatchObject({ status: 'completed' })
    const siblings = await claim(engine)
    expect(siblings.map((run) => run.id)).toEqual(next.map((run) => run.id).sort())
    await flush(
      engine,
      siblings.map((run) => finishes(run)),
    )
    expect((await claimOne(engine)).children).toHaveLength(2)
  })

  test('trap 4: a parent that waits for a signal and its late child that finishes, in one batch, are both written', async () => {
    const engine = await start({ definitions: TRAP_DEFINITIONS, version })
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 2), 1)])
    const [quick, late] = await claim(engine)
    await flush(engine, [finishes(quick!)])
    await flush(engine, [waits(await claimOne(engine), ['a']), finishes(late!)])
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', awaits: ['a'] })
    expect(await engine.run(late!.id)).toMatchObject({ status: 'completed' })
    expect(await claim(engine)).toEqual([])
  })

  test('C144 trap 4: children of one parent that finish in one batch count each, in one write of the parent', async () => {
    const engine = await start({ definitions: TRAP_DEFINITIONS, version })
    const id = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 5))])
    const siblings = await claim(engine)
    await flush(
      engine,
      siblings.slice(0, 3).map((run) => finishes(run)),
    )
    expect(await engine.run(id)).toMatchObject({ status: 'waiting', joinRemaining: 2 })
    await flush(
      engine,
      siblings.slice(3).map((run) => finishes(run)),
    )
    expect((await claimOne(engine)).children).toHaveLength(5)
  })

  test('C146 trap 4: a child that ends while it is itself the parent of one that ends in the same batch', async () => {
    const engine = await start({ definitions: TRAP_DEFINITIONS, version })
    const grandparent = await engine.spawnId('flow')
    await flush(engine, [joins(await claimOne(engine), [await child(engine, 'flow')])])
    await flush(engine, [joins(await claimOne(engine), await children(engine, 'task', 2), 1)])
    const [quick, late] = await claim(engine)
    await flush(engine, [finishes(quick!)])
    const parent = await claimOne(engine)
    await flush(engine, [finishes(parent), finishes(late!)])
    expect(await claimOne(engine)).toMatchObject({ id: grandparent, children: [{ id: parent.id, status: 'completed' }] })
  })
})
