import { once } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Database } from '../../src/core/database.ts'
import { neonWebsocket } from '../../src/db/drivers/neon-websocket.ts'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import type { LockWatchAddresses, LockWatchData } from './lock-watch.worker.ts'
import { sql } from './subjects.ts'

/** The lock is free within milliseconds; this is for a machine that is busy with other tests. */
const BLOCKED_MS = 10_000

/** Long enough that a free lock would have been seen. */
const HELD_MS = 300

const UPDATE = 'UPDATE held SET amount = 1'

describe('a blocked event loop', () => {
  let fresh: FreshDatabase
  let worker: Worker
  let flags: Int32Array
  let addresses: LockWatchAddresses
  beforeEach(async () => {
    fresh = await freshDatabase(18, { empty: true })
    await fresh.pool({ max: 1 }).query('CREATE TABLE held AS SELECT 0 AS amount')
    const shared = new SharedArrayBuffer(12)
    flags = new Int32Array(shared)
    const workerData: LockWatchData = { connectionString: fresh.connectionString, flags: shared }
    worker = new Worker(new URL('./lock-watch.worker.ts', import.meta.url), { workerData })
    const [message] = await once(worker, 'message')
    addresses = message as LockWatchAddresses
  })
  afterEach(async () => {
    await worker.terminate()
    await fresh.close()
  })

  /** Sends, and when it has left, blocks this thread until the row can be locked elsewhere or the time is over. */
  const lockedWhileBlocked = async (send: () => Promise<unknown>, timeoutMs: number): Promise<boolean> => {
    worker.postMessage('arm')
    await once(worker, 'message')
    const sent = send()
    while (Atomics.load(flags, 0) === 0) await turn()
    // from here on nothing but this thread's own code runs in it, and only now does what was sent go on to the server
    Atomics.store(flags, 2, 1)
    const outcome = Atomics.wait(flags, 1, 0, timeoutMs)
    await sent
    return outcome === 'timed-out'
  }

  const drivers: readonly (readonly [driver: string, open: () => Database])[] = [
    ['node-postgres', () => nodePostgres({ connectionString: addresses.tcp, max: 1 })],
    ['neon-websocket', () => neonWebsocket(addresses.neon, { proxy: addresses.neonProxy, max: 1 })],
  ]
  test.each(drivers)('does not hold the row locks of a batch of %s', async (_driver, open) => {
    const database = open()
    await database.query(sql('SELECT 1'))
    const send = () => database.batch([sql(UPDATE), sql('SELECT 1'), sql('SELECT 2')])
    expect(await lockedWhileBlocked(send, BLOCKED_MS)).toBe(false)
    await database.close()
  })

  test('would hold them if each reply was awaited', async () => {
    const client = new pg.Client({ connectionString: addresses.tcp })
    client.on('error', () => {})
    await client.connect()
    await client.query('BEGIN')
    const send = async () => {
      await client.query(UPDATE)
      await client.query('COMMIT')
    }
    expect(await lockedWhileBlocked(send, HELD_MS)).toBe(true)
    await client.end()
  })
})
