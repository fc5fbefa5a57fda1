import { expect, onTestFinished, test } from 'vitest'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { freshDatabase } from '../support/database.ts'
import { around, startEngine } from '../support/engine.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'

test('trap 18: a spawn that relied on a lane that is gone, and whose reply was lost, is not told as made when it was not', async () => {
  const fresh = await freshDatabase(18)
  const proxy = await startFaultProxy(fresh.connectionString)
  let lose = false
  const engine = await startEngine({
    definitions: TRAP_DEFINITIONS,
    on: fresh,
    connect: () => nodePostgres({ connectionString: proxy.connectionString, max: 4 }),
    wrap: (database) =>
      around(database, async (_, send) => {
        if (lose) proxy.faults.dropReply()
        lose = false
        return send()
      }),
  })
  onTestFinished(async () => {
    await engine.close()
    await proxy.close()
    await fresh.close()
  })
  await engine.spawnId('task', 1)
  await engine.tick()
  // the database was put back to what it was before
  await engine.sql('DELETE FROM pawl.lanes')
  lose = true
  const id = await engine.spawnId('task', 2)
  expect(await engine.sql('SELECT id FROM pawl.runs WHERE id = $1', [id])).toEqual([id])
})
