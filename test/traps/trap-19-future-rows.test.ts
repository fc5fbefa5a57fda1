import { expect, test } from 'vitest'
import { forEachVersion } from '../support/database.ts'
import { sharedEngines } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'
import { claim, claimOne, fails, finishes, flush, retries } from './outcomes.ts'

forEachVersion('trap 19: future runs at an urgent priority', (version) => {
  const { start } = sharedEngines(version)
  const startTasks = () => start({ definitions: TRAP_DEFINITIONS, version, frozen: true })

  test('trap 19: future runs are outside the window however urgent they are, so they are in nobody’s way', async () => {
    const engine = await startTasks()
    const at = (ms: number) => new Date(engine.clock() + ms)
    for (let index = 0; index < 30; index += 1) {
      await engine.spawn('task', index, index % 2 === 0 ? { priority: -100, delay: 60_000 } : { priority: -100, at: at(60_000) })
    }
    const ordinary = await engine.spawnId('task', 'now', { priority: 100 })
    expect(
      await engine.sql('SELECT run_id FROM pawl.ready y JOIN pawl.runs r ON r.id = y.run_id WHERE r.priority IN (-100, 100)'),
    ).toEqual([ordinary])
    expect((await claim(engine, { limit: 1 })).map((run) => run.id)).toEqual([ordinary])
    engine.advance(59_999)
    expect(await claim(engine)).toEqual([])
    engine.advance(1)
    expect(await claim(engine)).toHaveLength(30)
  })

  test('trap 19: a delayed retry leaves the window until it is due, then has its old priority', async () => {
    const engine = await startTasks()
    const urgent = await engine.spawnId('task', 'urgent', { priority: -100 })
    await flush(engine, [retries(await claimOne(engine), 5_000)])
    const ordinary = await engine.spawnId('task', 'ordinary')
    expect(await claimOne(engine, { limit: 1 })).toMatchObject({ id: ordinary })
    engine.advance(5_000)
    await engine.spawnId('task', 'later')
    expect(await claimOne(engine, { limit: 1 })).toMatchObject({ id: urgent })
  })

  test('trap 19: what is cancelled before it is due never comes into the window', async () => {
    const engine = await startTasks()
    const id = await engine.spawnId('task', null, { delay: 1_000 })
    await engine.store.cancel(id, { tenant: 'default', by: null })
    engine.advance(2_000)
    expect(await claim(engine)).toEqual([])
    const ended = await engine.spawnId('task')
    await flush(engine, [fails(await claimOne(engine))])
    await engine.store.retry(ended, { tenant: 'default' })
    await flush(engine, [finishes(await claimOne(engine))])
    expect(await engine.run(id)).toMatchObject({ status: 'cancelled' })
  })
})
