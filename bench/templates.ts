import type { Adapter } from './adapters/adapter.ts'
import { createDatabase, dropDatabase, urlOf, withClient } from './database.ts'

/** Databases that are prepared once per adapter and copied for each measurement, so that every repetition begins alike. */
export type TemplateName = 'empty' | 'waiting-20k' | 'waiting-200k' | 'finished-1m' | 'chains-2k'

export const DRAINED = 20_000
export const CHAINS = 2_000
export const STEPS_PER_CHAIN = 3
const WAITING = 200_000
const FINISHED = 1_000_000
const BATCH = 1_000

export interface Templates {
  /** The name of the database; prepares it at the first call. */
  find(adapter: Adapter, template: TemplateName): Promise<string>
}

export function createTemplates(serverUrl: string): Templates {
  const ready = new Set<string>()
  const find = async (adapter: Adapter, template: TemplateName): Promise<string> => {
    const name = `bench_template_${adapter.name}_${template}`.replaceAll('-', '_')
    if (ready.has(name)) return name
    const base = template === 'empty' ? undefined : await find(adapter, 'empty')
    await createDatabase(serverUrl, name, base)
    const url = urlOf(serverUrl, name)
    await fill(adapter, url, template)
    // an empty table that was vacuumed is taken to stay empty, which no installation is: a new one was never vacuumed
    if (template !== 'empty') await withClient(url, (client) => client.query('VACUUM ANALYZE'))
    ready.add(name)
    return name
  }
  return { find }
}

async function fill(adapter: Adapter, url: string, template: TemplateName): Promise<void> {
  switch (template) {
    case 'empty':
      await withClient(url, (client) => client.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements'))
      return adapter.setup(url)
    case 'waiting-20k':
      return enqueue(adapter, url, DRAINED)
    case 'waiting-200k':
      return enqueue(adapter, url, WAITING)
    case 'finished-1m':
      await finishOne(adapter, url)
      await adapter.addFinished?.(url, FINISHED)
      return enqueue(adapter, url, DRAINED)
    case 'chains-2k': {
      const engine = await adapter.open(url, 'client', () => {})
      await engine.enqueueChains?.(CHAINS)
      return engine.stop()
    }
  }
}

async function enqueue(adapter: Adapter, url: string, count: number): Promise<void> {
  const engine = await adapter.open(url, 'client', () => {})
  for (let from = 0; from < count; from += BATCH) await engine.enqueueBatch(from, Math.min(BATCH, count - from))
  await engine.stop()
}

/** The run of which the finished ones are copies. */
async function finishOne(adapter: Adapter, url: string): Promise<void> {
  const engine = await adapter.open(url, 'client', () => {})
  await engine.enqueue(0)
  await engine.start()
  await withClient(url, async (client) => {
    for (let pending = true; pending; ) {
      const { rows } = await client.query<{ pending: boolean }>(adapter.pendingSql)
      pending = rows[0]?.pending === true
    }
  })
  await engine.stop()
}

export async function dropTemplates(serverUrl: string): Promise<void> {
  const names = await withClient(serverUrl, async (client) => {
    const { rows } = await client.query<{ name: string }>(
      `SELECT datname AS name FROM pg_database WHERE datname LIKE 'bench\\_%'`,
    )
    return rows.map((row) => row.name)
  })
  for (const name of names) await dropDatabase(serverUrl, name)
}
