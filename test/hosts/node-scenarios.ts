import { afterAll, beforeAll, describe, test } from 'vitest'
import { type NodeHost, node } from '../../src/hosts/node.ts'
import type { CloneOptions } from '../support/clone.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import { pawl } from '../support/scenario-definitions.ts'
import { onMovingClock, runScenario, SCENARIOS, type ScenarioHost } from '../support/scenarios.ts'

const KEY = 'root-key-of-the-tests'

/** The whole catalogue on a Node host over a database of that kind. `proves`: the ids of what it proves. */
export function describeScenarios(title: string, proves: string, options: CloneOptions = {}): void {
  describe(title, () => {
    const clock = onMovingClock(pawl)
    let fresh: FreshDatabase
    let server: NodeHost
    beforeAll(async () => {
      fresh = await freshDatabase(18, options)
      server = await node(clock.pawl, { database: fresh.connectionString, rootKey: KEY, loop: false })
    })
    afterAll(async () => {
      await server.close()
      await fresh.close()
    })

    const host: ScenarioHost = {
      advance: clock.advance,
      request: async (method, path, headers, body) => {
        const init = { method, headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...headers } }
        const response = await fetch(`${server.url}${path}`, {
          ...init,
          ...(body !== undefined && { body: JSON.stringify(body) }),
        })
        const text = await response.text()
        return { status: response.status, headers: response.headers, body: text === '' ? null : JSON.parse(text) }
      },
    }

    test.each(SCENARIOS.map((scenario) => [scenario.id, scenario] as const))(`${proves} %s`, async (_, scenario) => {
      await runScenario(scenario, host)
    })
  })
}
