import { expect, test } from 'vitest'
import { startBehindProxy } from '../support/behind-proxy.ts'
import { TRAP_DEFINITIONS } from './definitions.ts'

test('trap 18: a spawn that relied on a lane that is gone, and whose reply was lost, is not told as made when it was not', async () => {
  const { engine, proxy, onSend } = await startBehindProxy(18, TRAP_DEFINITIONS)
  await engine.spawnId('task', 1)
  await engine.tick()
  // the database was put back to what it was before
  await engine.sql('DELETE FROM pawl.lanes')
  let lose = true
  onSend(() => {
    if (lose) proxy.faults.dropReply()
    lose = false
  })
  const id = await engine.spawnId('task', 2)
  expect(await engine.sql('SELECT id FROM pawl.runs WHERE id = $1', [id])).toEqual([id])
})
