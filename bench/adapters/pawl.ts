import * as z from 'zod'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { migrate } from '../../src/db/migrate.ts'
import { createPawl, job, limit, machine } from '../../src/index.ts'
import { multiplyRow, withClient } from '../database.ts'
import { ownVersion } from '../installed.ts'
import type { Adapter, Engine } from './adapter.ts'

/** pawl as an application uses it: history, guards and the indexes of all list filters are on, because they are always on. */

interface Setting {
  readonly connections: number
  readonly batch: number
  /** Exchanges in flight. One more than connections keeps the next one ready when a reply comes. */
  readonly lanes: number
}

const SETTINGS: Readonly<Record<string, Setting>> = {
  client: { connections: 10, batch: 100, lanes: 1 },
  '1×100': { connections: 1, batch: 100, lanes: 2 },
  '1×500': { connections: 1, batch: 500, lanes: 2 },
  '1×100, one in flight': { connections: 1, batch: 100, lanes: 1 },
  '4×100': { connections: 4, batch: 100, lanes: 4 },
  '4×250': { connections: 4, batch: 250, lanes: 4 },
}

/** An hour: no measurement takes as long, so no pass ends before it. */
const WALL_MS = 3_600_000

export const pawl: Adapter = createAdapter('pawl', () => false)

/** Every tenth run has to pass a gate of fifty, one per partition of a hundred. */
export const pawlLimited: Adapter = createAdapter('pawl-limited', (i) => i % 10 === 0)

/** Every run has to pass one gate of eight shards, wide enough for all that is in hand. */
export const pawlSharded: Adapter = createAdapter('pawl-sharded', () => true)

/** `passesGate`: which of the no-op runs have to. */
function createAdapter(name: string, passesGate: (index: number) => boolean): Adapter {
  return {
    name,
    version: ownVersion(),
    setup: async (url) => {
      const database = nodePostgres({ connectionString: url, max: 1 })
      await migrate(database)
      await database.close()
    },
    open: async (url, setting, onStart) =>
      createEngine(url, SETTINGS[setting] ?? unknownSetting(setting), { onStart, name, passesGate }),
    pendingSql: `SELECT EXISTS (SELECT FROM pawl.ready) OR EXISTS (SELECT FROM pawl.claims) OR EXISTS (SELECT FROM pawl.runs WHERE notable = 'waiting') AS pending`,
    addFinished: (url, count) =>
      withClient(url, async (client) => {
        const id = `('00000000-0000-7000-8000-' || lpad(to_hex(g), 12, '0'))::uuid`
        await multiplyRow(client, { table: 'pawl.runs', count, where: `status = 'completed'`, columns: { id } })
        await multiplyRow(client, { table: 'pawl.history', count, where: 'true', columns: { run_id: id } })
      }),
  }
}

const perPartition = limit('per-partition', { concurrency: 50 })
const sharded = limit('sharded', { concurrency: 4_000, shards: 8 })

interface Options {
  readonly onStart: () => void
  readonly name: string
  readonly passesGate: (index: number) => boolean
}

function unknownSetting(setting: string): never {
  throw new Error(`pawl has no setting "${setting}"`)
}

function createDefinitions({ onStart, name }: Options) {
  const noop = job({ name: 'noop', input: z.object({ i: z.number() }), run: onStart })
  const limits =
    name === 'pawl-sharded' ? [sharded] : [perPartition.by(({ i }: { readonly i: number }) => `p${Math.floor(i / 10) % 100}`)]
  const gated = job({ name: 'gated', input: z.object({ i: z.number() }), limits, run: onStart })
  const chain = machine({
    name: 'chain',
    state: z.object({ i: z.number() }),
    initial: 'first',
    steps: {
      first: ({ next }) => {
        onStart()
        return next('second')
      },
      second: ({ next }) => {
        onStart()
        return next('third')
      },
      third: ({ done }) => {
        onStart()
        return done(undefined)
      },
    },
  })
  const family = machine({
    name: 'family',
    state: z.object({ children: z.number() }),
    initial: 'spawn',
    steps: {
      spawn: ({ state, join }) =>
        join(
          Array.from({ length: state.children }, (_, i) => noop.with({ i })),
          { goto: 'end' },
        ),
      end: ({ done }) => done(undefined),
    },
  })
  return { noop, gated, chain, family }
}

async function createEngine(url: string, { connections, batch, lanes }: Setting, options: Options): Promise<Engine> {
  const { noop, gated, chain, family } = createDefinitions(options)
  const definitions = options.name === 'pawl' ? [noop, chain, family] : [noop, gated, chain, family]
  const callOf = (i: number) => (options.passesGate(i) ? gated : noop).with({ i })
  const database = nodePostgres({ connectionString: url, max: connections })
  let kick = () => {}
  const connected = createPawl({ definitions }).connect({
    database,
    onCommit: () => kick(),
  })
  const budget = { wallMs: WALL_MS, requests: Number.MAX_SAFE_INTEGER, concurrency: batch * lanes, batch, lanes, lingerMs: 0 }
  const ticker = connected.createTicker({ budget })
  return {
    enqueue: async (i) => void (await connected.spawn(noop, { i })),
    enqueueBatch: async (from, count) => {
      await connected.spawnMany(Array.from({ length: count }, (_, index) => callOf(from + index)))
    },
    enqueueChains: async (count) => {
      await connected.spawnMany(Array.from({ length: count }, (_, i) => chain.with({ i })))
    },
    fanOut: async (children) => void (await connected.spawn(family, { children })),
    start: async () => {
      kick = () => void ticker.kick('bench').catch(report)
      kick()
    },
    requests: () => database.requests,
    stop: async () => {
      await ticker.stop()
      await database.close()
    },
  }
}

function report(error: unknown): void {
  console.error(error)
}
