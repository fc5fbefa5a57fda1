import { expect, test } from 'vitest'
import { forEachVersion, freshDatabase } from '../support/database.ts'
import { explain, nodesOf } from '../support/plans.ts'
import { cases } from './claim-cases.ts'

/** Tables that grow with the work, and their partitions. */
const GROWING = /^(runs|history|signals)_/

forEachVersion('the statements of the hot path on partitioned tables', (version) => {
  test('C218 read no partition from one end to the other, though the plan is of when it was new', async () => {
    const fresh = await freshDatabase(version, { partitioned: 'week' })
    const client = await fresh.pool({ max: 1 }).connect()
    await client.query('SET plan_cache_mode = force_generic_plan')
    const scanned: string[] = []
    for (const [n, { name, statement }] of cases.entries()) {
      await client.query(`PREPARE case${n} AS ${statement.text}`)
      const nodes = nodesOf(await explain(client, `case${n}`, statement))
      if (nodes.some((node) => node['Node Type'] === 'Seq Scan' && GROWING.test(node['Relation Name'] ?? ''))) scanned.push(name)
    }
    client.release()
    await fresh.close()
    expect(scanned).toEqual([])
  })
})
