import { setImmediate as turn } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import pg from 'pg'
import { startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'

/**
 * A thread that goes on while the test's event loop is blocked. It carries what the drivers send, and tells through
 * shared memory what has happened.
 */
export interface LockWatchData {
  readonly connectionString: string
  /** Int32 × 3: [0] the batch has left its driver; [1] the row is written and can be locked; [2] of the test: its thread is blocked. */
  readonly flags: SharedArrayBuffer
}

export interface LockWatchAddresses {
  readonly tcp: string
  readonly neon: string
  readonly neonProxy: string
}

const port = parentPort
if (!port) throw new Error('this file is a worker')
const { connectionString, flags } = workerData as LockWatchData
const told = new Int32Array(flags)
const tell = (flag: 0 | 1) => {
  Atomics.store(told, flag, 1)
  Atomics.notify(told, flag)
}

const proxy = await startFaultProxy(connectionString)
const endpoint = await startNeonEndpoint({ target: connectionString })
const watcher = new pg.Client({ connectionString })
await watcher.connect()

port.once('message', async () => {
  const stalls = [proxy.faults.stall(), endpoint.faults.stall()]
  port.postMessage('armed')
  await Promise.race(stalls.map(({ reached }) => reached))
  tell(0)
  while (Atomics.load(told, 2) === 0) await turn()
  for (const stall of stalls) stall.release()
  let amount = 0
  while (amount !== 1) {
    // pg_sleep paces the look; the lock is what the batch holds until its COMMIT.
    const { rows } = await watcher.query<{ amount: number }>(
      'SELECT held.amount FROM (SELECT pg_sleep(0.001)) AS pace, held FOR UPDATE OF held',
    )
    amount = rows[0]?.amount ?? 0
  }
  tell(1) // and goes on carrying: the reply of the COMMIT that freed the row is still on its way. The test ends this thread.
})
port.postMessage({
  tcp: proxy.connectionString,
  neon: endpoint.connectionString,
  neonProxy: endpoint.websocketUrl,
} satisfies LockWatchAddresses)
