import { createExecutionContext, waitOnExecutionContext } from 'cloudflare:test'
import { beforeAll, describe, test } from 'vitest'
import { cloudflare } from '../../src/hosts/cloudflare.ts'
import { BUDGETS } from '../../src/worker/budgets.ts'
import { pawl } from '../support/scenario-definitions.ts'
import { onMovingClock, runScenario, SCENARIOS, type ScenarioHost } from '../support/scenarios.ts'
import { type EdgeEnv, freshEdgeEnv, openEdgeDatabase } from './edge-database.ts'

const KEY = 'root-key-of-the-tests'

describe('the catalogue of scenarios, in workerd over the Neon endpoint', () => {
  const clock = onMovingClock(pawl)
  const paid = BUDGETS['workers-paid']
  // what a kick would run is left to the ticks of the scenarios
  const budget = { ...paid, kick: { ...paid.kick, batch: 0, concurrency: 0 } }
  const worker = cloudflare<EdgeEnv>(clock.pawl, { database: openEdgeDatabase, rootKey: () => KEY, budget })
  let env: EdgeEnv
  beforeAll(async () => {
    env = await freshEdgeEnv()
  })

  const host: ScenarioHost = {
    advance: clock.advance,
    request: async (method, path, headers, body) => {
      const context = createExecutionContext()
      const request = new Request(`https://worker.example${path}`, {
        method,
        headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      })
      const response = await worker.fetch(request, env, context)
      const text = await response.text()
      await waitOnExecutionContext(context)
      return {
        status: response.status,
        headers: response.headers as unknown as Headers,
        body: text === '' ? null : JSON.parse(text),
      }
    },
  }

  test.each(SCENARIOS.map((scenario) => [scenario.id, scenario] as const))('C242 %s', async (_, scenario) => {
    await runScenario(scenario, host)
  })
})
