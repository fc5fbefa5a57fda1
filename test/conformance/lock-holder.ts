import { parentPort, workerData } from 'node:worker_threads'
import pg from 'pg'
import { startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'

/**
 * A thread of its own, which goes on while the test's event loop is blocked: it serves Neon's wire format, and tells
 * through shared memory when the row has the new value and its lock can be had.
 */
export interface LockHolderData {
  readonly connectionString: string
  /** [0]: a batch has been sent; [1]: the row was written and is free. */
  readonly flags: Int32Array
}

const { connectionString, flags } = workerData as LockHolderData
const endpoint = await startNeonEndpoint({ target: connectionString })
const observer = new pg.Client({ connectionString })
await observer.connect()
parentPort?.postMessage({ connectionString: endpoint.connectionString, proxy: endpoint.websocketUrl })

for (;;) {
  // Blocks while the batch holds the row; pg_sleep paces the look.
  const { rows } = await observer.query<{ amount: number }>(
    'SELECT amount FROM (SELECT pg_sleep(0.001)) AS pace, rows_held FOR UPDATE OF rows_held',
  )
  if (rows[0]?.amount === 1) break
}
Atomics.store(flags, 1, 1)
Atomics.notify(flags, 1)
await observer.end()
await endpoint.close()
