import { PgBoss, type WorkOptions } from 'pg-boss'
import { multiplyRow, withClient } from '../database.ts'
import { installedVersion } from '../installed.ts'
import type { Adapter, Engine } from './adapter.ts'

/** pg-boss with batched fetch and bursts; `notify` wakes it by LISTEN and NOTIFY instead of polling. */

interface Setting {
  readonly queue: 'noop' | 'noop_notify'
  readonly work: WorkOptions
}

const batched = (batchSize: number, localConcurrency: number): Setting => ({
  queue: 'noop',
  work: { batchSize, localConcurrency, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
})

const SETTINGS: Readonly<Record<string, Setting>> = {
  client: batched(100, 1),
  '1×100': batched(100, 1),
  '4×100': batched(100, 4),
  '10×100': batched(100, 10),
  '1×1000': batched(1_000, 1),
  notify: { queue: 'noop_notify', work: {} },
}

const POOL = 10

export const pgBoss: Adapter = {
  name: 'pg-boss',
  version: installedVersion('pg-boss'),
  setup: async (url) => {
    const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false })
    boss.on('error', report)
    await boss.start()
    await boss.createQueue('noop')
    await boss.createQueue('noop_notify', { notify: true })
    await boss.stop({ graceful: false, close: true })
  },
  open: async (url, setting, onStart) => createEngine(url, SETTINGS[setting] ?? unknownSetting(setting), onStart),
  pendingSql: `SELECT EXISTS (SELECT FROM pgboss.job WHERE name LIKE 'noop%' AND state < 'completed') AS pending`,
  addFinished: (url, count) =>
    withClient(url, (client) =>
      multiplyRow(client, { table: 'pgboss.job', count, where: `name = 'noop'`, columns: { id: 'gen_random_uuid()' } }),
    ),
}

function unknownSetting(setting: string): never {
  throw new Error(`pg-boss has no setting "${setting}"`)
}

function report(error: unknown): void {
  console.error(error)
}

async function createEngine(url: string, { queue, work }: Setting, onStart: () => void): Promise<Engine> {
  const boss = new PgBoss({ connectionString: url, max: POOL, useListenNotify: queue === 'noop_notify' })
  boss.on('error', report)
  await boss.start()
  return {
    enqueue: async (i) => void (await boss.send(queue, { i })),
    enqueueBatch: async (from, count) => {
      await boss.insert(
        queue,
        Array.from({ length: count }, (_, index) => ({ data: { i: from + index } })),
      )
    },
    start: async () => {
      await boss.work(queue, work, async (jobs) => {
        for (const _ of jobs) onStart()
      })
    },
    stop: () => boss.stop({ graceful: true, close: true, timeout: 10_000 }),
  }
}
