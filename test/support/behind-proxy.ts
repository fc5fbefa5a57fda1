import { onTestFinished } from 'vitest'
import { nodePostgres } from '../../src/db/drivers/node-postgres.ts'
import { type FaultProxy, startFaultProxy } from '../../src/testing/fault-proxy.ts'
import { freshDatabase } from './database.ts'
import { around, startEngine, type TestEngine } from './engine.ts'

export interface BehindProxy {
  readonly engine: TestEngine
  readonly proxy: FaultProxy
  /** From now on this is done right before each sending; the names are those of its statements. */
  onSend(hook: (names: readonly string[]) => unknown): void
}

/** An engine whose way to a database of its own is a proxy that may lose requests and replies. Both end with the test. */
export async function startBehindProxy(
  version: 15 | 18,
  definitions: Parameters<typeof startEngine>[0]['definitions'],
): Promise<BehindProxy> {
  const fresh = await freshDatabase(version)
  const proxy = await startFaultProxy(fresh.connectionString)
  let before: (names: readonly string[]) => unknown = () => {}
  const engine = await startEngine({
    definitions,
    on: fresh,
    connect: () => nodePostgres({ connectionString: proxy.connectionString, max: 4 }),
    wrap: (database) =>
      around(database, async (statements, send) => {
        await before(statements.map(({ name }) => name))
        return send()
      }),
  })
  onTestFinished(async () => {
    await engine.close()
    await proxy.close()
    await fresh.close()
  })
  return {
    engine,
    proxy,
    onSend: (hook) => {
      before = hook
    },
  }
}
