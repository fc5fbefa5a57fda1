import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import type { Statement } from '../../src/core/database.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { cron } from '../../src/core/trigger.ts'
import { neonHttp } from '../../src/db/drivers/neon-http.ts'
import { type NeonEndpoint, startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import { around, startEngine, type TestEngine } from '../support/engine.ts'
import { claim, claimRequest } from '../traps/outcomes.ts'

const HOUR_MS = 3_600_000

const charge = job({
  name: 'charge',
  input: z.object({ cents: z.number() }),
  concurrencyKey: ({ cents }) => `amount:${cents % 2}`,
  retry: { maxAttempts: 2, backoff: { kind: 'fixed', base: '1m' } },
  run: ({ input, attempt }) => {
    if (input.cents === 13 && attempt === 1) throw new Error('unlucky')
    return { charged: input.cents }
  },
})
const order = machine({
  name: 'order',
  state: z.object({ id: z.number(), paid: z.number().optional() }),
  signals: { paid: z.object({ cents: z.number() }) },
  output: z.object({ total: z.number(), late: z.boolean() }),
  key: ({ id }) => `order:${id}`,
  retention: '1h',
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('paid', { goto: 'charge', timeout: '30m' }),
    charge: ({ signals, timedOut, done, join, state }) => {
      const paid = signals.first('paid')
      if (timedOut || !paid) return done({ total: 0, late: true })
      const calls = [1, 2, 13].map((cents) =>
        charge.with({ cents: cents * paid.payload.cents }, { key: `charge:${state.id}:${cents}` }),
      )
      return join(calls, { goto: 'end', state: { ...state, paid: paid.payload.cents } })
    },
    end: ({ children, done }) =>
      done({
        total: children(charge).reduce((sum, one) => sum + (one.status === 'completed' ? one.result.charged : 0), 0),
        late: false,
      }),
  },
})
/** Hourly, and not within the first 45 minutes, whatever the hour in which the test runs. */
const MINUTE = new Date(Date.now() + 46 * 60_000).getUTCMinutes()
const nightly = job({ name: 'nightly', triggers: [cron(`${MINUTE} * * * *`)], run: () => 'swept' })

describe('over stateless HTTP', () => {
  let fresh: FreshDatabase
  let endpoint: NeonEndpoint
  let engine: TestEngine
  const texts = new Map<string, string>()
  beforeAll(async () => {
    fresh = await freshDatabase(18)
    endpoint = await startNeonEndpoint({ target: fresh.connectionString })
    const note = (statements: readonly Statement[]) => {
      for (const { name, text } of statements) texts.set(name, text)
    }
    engine = await startEngine({
      definitions: [order, charge, nightly],
      on: fresh,
      frozen: true,
      connect: () => neonHttp(endpoint.connectionString, { endpoint: endpoint.httpUrl }),
      wrap: (database) =>
        around(database, (statements, send) => {
          note(statements)
          return send()
        }),
    })
  })
  afterAll(async () => {
    await engine.close()
    await endpoint.close()
    await fresh.close()
  })

  test('C249 C225 waits, signals, joins, gates, retries, timeouts, rescue, schedules and retention work over a driver without sessions', async () => {
    const paid = await engine.spawnId('order', { id: 1 })
    const late = await engine.spawnId('order', { id: 2 })
    const cancelled = await engine.spawnId('order', { id: 3 })
    expect(await engine.spawn('order', { id: 1 })).toMatchObject({ kind: 'occupied', id: paid })
    expect(await engine.tick()).toMatchObject({ waiting: 3 })
    expect(await engine.signal({ key: 'order:1' }, 'paid', { cents: 1 })).toMatchObject({ kind: 'delivered', woke: true })
    expect(await engine.store.cancel(cancelled, { tenant: 'default', by: 'me' })).toMatchObject({ did: 'cancelled' })
    expect(await engine.tick()).toMatchObject({ retried: 1 })
    engine.advance(60_000)
    await engine.tick()
    expect(await engine.run(paid)).toMatchObject({ status: 'completed', result: { total: 16, late: false } })
    engine.advance(30 * 60_000)
    await engine.tick()
    expect((await engine.run(late)).result).toEqual({ total: 0, late: true })
    const lost = await engine.spawnId('charge', { cents: 4 })
    const { definitions } = engine.registry
    const claim = { claimId: crypto.randomUUID(), definitions, queues: null, limit: 10, maxBytes: 1_000_000, leaseMs: 30_000 }
    const { runs } = await engine.store.claim({ ...claim, laneCursor: 0, alone: false, besides: [], peek: true })
    expect(runs.map(({ id }) => id)).toEqual([lost])
    engine.advance(30_000)
    expect(await engine.tick()).toMatchObject({ rescued: 1, completed: 1 })
    engine.advance(2 * HOUR_MS)
    const report = await engine.tick()
    expect(report.fired).toBe(1)
    expect(report.pruned).toBeGreaterThan(0)
    expect(await engine.store.getRun(paid, { tenant: 'default' })).toBeNull()
  })

  test('C249 C226 the request budgets hold over HTTP, as the endpoint counts them', async () => {
    await engine.tick()
    const idle = endpoint.requests
    await engine.tick()
    expect(endpoint.requests - idle).toBe(1)
    const before = endpoint.requests
    await engine.spawn('nightly')
    expect(endpoint.requests - before).toBe(1)
  })

  test('C249 C170 what a saturated key denies leaves the window in bulk', async () => {
    await engine.tick()
    await engine.spawnMany('charge', [{ cents: 2 }])
    expect(await claim(engine)).toHaveLength(1)
    const denied = Array.from({ length: 30 }, () => ({ cents: 2 }))
    await engine.spawnMany('charge', [...denied, { cents: 1 }])
    const answers = []
    for (const limit of [4, 4, 0, 4]) {
      const { runs, setAside } = await engine.store.claim(claimRequest(engine, { limit }))
      answers.push([runs.length, setAside])
    }
    expect(answers).toEqual([
      [0, 4],
      [1, 26],
      [0, 0],
      [0, 0],
    ])
  })

  test('C249 no statement uses what a pooled or stateless connection lacks', () => {
    expect([...texts.keys()]).toEqual(
      expect.arrayContaining(['claim_gated_runs', 'block_denied', 'apply_outcomes', 'park_parents', 'deliver_signal']),
    )
    for (const [name, text] of texts) {
      // a setting that ends with its transaction is left in no connection
      expect(text, name).not.toMatch(/\bset_config\((?!'\w+', '\w+', true\))/i)
      expect(text, name).not.toMatch(
        /\bpg_(try_)?advisory_lock\b|\bLISTEN\b|\bNOTIFY\b|\bTEMP(ORARY)?\b|^\s*SET\b|\bcurrval\b|\blastval\b/i,
      )
      // tables are named with their schema: nothing depends on a search_path
      expect(text, name).not.toMatch(
        /\b(?:FROM|JOIN|UPDATE|INTO)\s+(?:runs|ready|claims|signals|history|lanes|uniques|receipts|limit_counters|meta)\b/,
      )
    }
  })
})
