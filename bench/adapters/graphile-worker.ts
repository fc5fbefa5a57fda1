import { Logger, makeWorkerUtils, type Runner, run } from 'graphile-worker'
import { installedVersion } from '../installed.ts'
import type { Adapter, Engine } from './adapter.ts'

/** graphile-worker with its local queue and batched completion, the fastest it documents. It deletes jobs that have completed. */

interface Setting {
  readonly concurrentJobs: number
  readonly localQueue: number | undefined
}

const SETTINGS: Readonly<Record<string, Setting>> = {
  client: { concurrentJobs: 1, localQueue: undefined },
  'default c10': { concurrentJobs: 10, localQueue: undefined },
  'local queue 500, c24': { concurrentJobs: 24, localQueue: 500 },
  'local queue 500, c100': { concurrentJobs: 100, localQueue: 500 },
}

const POOL = 10
const silent = new Logger(() => () => {})

export const graphileWorker: Adapter = {
  name: 'graphile-worker',
  version: installedVersion('graphile-worker'),
  setup: async (url) => {
    const utils = await makeWorkerUtils({ connectionString: url, logger: silent })
    await utils.migrate()
    await utils.release()
  },
  open: async (url, setting, onStart) => createEngine(url, SETTINGS[setting] ?? unknownSetting(setting), onStart),
  pendingSql: 'SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS pending',
}

function unknownSetting(setting: string): never {
  throw new Error(`graphile-worker has no setting "${setting}"`)
}

async function createEngine(url: string, setting: Setting, onStart: () => void): Promise<Engine> {
  const utils = await makeWorkerUtils({ connectionString: url, maxPoolSize: POOL, logger: silent })
  let runner: Runner | undefined
  return {
    enqueue: async (i) => void (await utils.addJob('noop', { i })),
    enqueueBatch: async (from, count) => {
      const jobs = Array.from({ length: count }, (_, index) => ({ identifier: 'noop', payload: { i: from + index } }))
      await utils.addJobs(jobs)
    },
    start: async () => {
      const { concurrentJobs, localQueue } = setting
      const batched = { localQueue: { size: localQueue ?? -1 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }
      const worker = {
        connectionString: url,
        concurrentJobs,
        maxPoolSize: Math.max(POOL, 12),
        ...(localQueue === undefined ? {} : batched),
      }
      runner = await run({
        taskList: { noop: onStart },
        logger: silent,
        noHandleSignals: true,
        parsedCronItems: [],
        preset: { worker },
      })
    },
    stop: async () => {
      await runner?.stop()
      await utils.release()
    },
  }
}
