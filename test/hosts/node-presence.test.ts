import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createClient } from '../../src/client/index.ts'
import { silentLogger } from '../../src/core/logger.ts'
import { node } from '../../src/hosts/node.ts'
import { announce } from '../../src/hosts/node-presence.ts'
import { type FreshDatabase, freshDatabase } from '../support/database.ts'
import { ONE_BUDGET, oneAtATime } from './presence-definitions.ts'

const HOST = fileURLToPath(new URL('./host-process.ts', import.meta.url))

describe('a Node host that was killed', () => {
  let fresh: FreshDatabase
  let folder: string
  const cleanups: (() => unknown)[] = []
  beforeAll(async () => {
    fresh = await freshDatabase()
    folder = mkdtempSync(join(tmpdir(), 'pawl-'))
  })
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
  })
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true })
    await fresh.close()
  })

  /** What the process says next under that name. */
  async function said(child: ChildProcess, name: 'url' | 'began'): Promise<string> {
    for (;;) {
      const [message] = (await once(child, 'message')) as [Readonly<Record<string, string>>]
      if (message[name] !== undefined) return message[name]
    }
  }

  async function startProcess(): Promise<{ readonly child: ChildProcess; readonly url: string }> {
    const child = fork(HOST, [fresh.connectionString, folder])
    cleanups.push(() => child.kill('SIGKILL'))
    return { child, url: await said(child, 'url') }
  }

  async function spawnAt({ child, url }: { readonly child: ChildProcess; readonly url: string }): Promise<string> {
    const began = said(child, 'began')
    const { id } = await createClient<ReturnType<typeof oneAtATime>>({ url }).spawn('task')
    expect(await began).toBe(id)
    return id
  }

  test('C049 its claims are freed when it is started again, an hour before their lease ends, and those of a live twin are not', async () => {
    const twin = await startProcess()
    const ofTwin = await spawnAt(twin)
    const killed = await startProcess()
    const ofKilled = await spawnAt(killed)
    const gone = once(killed.child, 'exit')
    killed.child.kill('SIGKILL')
    await gone
    const again = await node(
      oneAtATime(() => 'taken over'),
      { database: fresh.connectionString, presence: folder, leaseMs: 3_600_000, budget: ONE_BUDGET },
    )
    cleanups.push(() => again.close())
    expect(await again.connection.result(ofKilled, { wait: '20s' })).toMatchObject({ status: 'completed', result: 'taken over' })
    expect(await again.connection.run(ofKilled)).toMatchObject({ attempt: 2, losses: 1 })
    expect(await again.connection.run(ofTwin)).toMatchObject({ status: 'running', attempt: 1, losses: 0 })
    // what it found is done with; twin and itself are still there
    expect(readdirSync(folder)).toHaveLength(2)
  })

  test('C049 a host that is closed leaves nothing behind, and one whose folder cannot be used starts without it', async () => {
    const own = mkdtempSync(join(tmpdir(), 'pawl-'))
    cleanups.push(() => rmSync(own, { recursive: true, force: true }))
    const present = await announce(own, silentLogger)
    expect(present?.newClaimId()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    expect(readdirSync(own)).toHaveLength(1)
    const released: unknown[] = []
    await present?.takeOver(async (range) => released.push(range))
    expect(released).toEqual([])
    await present?.leave()
    expect(readdirSync(own)).toEqual([])
    expect(await announce(join(own, 'x'.repeat(120)), silentLogger)).toBeUndefined()
  })
})
