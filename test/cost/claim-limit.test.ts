import { expect, onTestFinished, test } from 'vitest'
import { claimRuns } from '../../src/db/statements/claim-runs.ts'
import { fillWorld } from '../support/claim-world.ts'
import { forEachVersion, freshDatabase } from '../support/database.ts'
import { claimParams } from './claim-params.ts'

forEachVersion('a claim beside lanes that all have work', (version) => {
  test.each([1, 3, 10])('takes %i when it asks for as many, though there are more lanes', async (limit) => {
    const fresh = await freshDatabase(version)
    onTestFinished(fresh.close)
    const client = await fresh.pool({ max: 1 }).connect()
    await fillWorld(client, { finished: 10, due: 100, future: 10, foreign: 100, running: 5, waiting: 10, blocked: 10 })
    const { text, params } = claimRuns('pawl', { ...claimParams, limit })
    const { rows } = await client.query(text, [...params])
    client.release()
    expect(rows).toHaveLength(limit)
  })
})
