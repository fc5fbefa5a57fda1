import { Client, type ClientConfig, Pool } from '@neondatabase/serverless'
import type { Database } from '../../core/database.ts'
import { type PipelinePool, pipelinedDatabase } from '../pipeline.ts'

export interface NeonWebsocketOptions {
  /** Connections at most. Default 10. */
  readonly max?: number
  /**
   * Address of a WebSocket proxy to use instead of Neon's, such as the local endpoint: `ws://127.0.0.1:4444/v2`. Neon's
   * pipelined password login is off then, because only Neon's own proxy can take it.
   */
  readonly proxy?: string
  /** Prepared statements by name. Default true; turned off by itself for good when the pooler does not know them. */
  readonly prepare?: boolean
}

/**
 * A `Database` over Neon's WebSocket pool: from a connection string (the pool is opened at the first request and ended by
 * `close`), or over a pool the caller made and ends.
 *
 * On Workers sockets live inside one invocation: make one of these per invocation and `ctx.waitUntil(database.close())`.
 */
export function neonWebsocket(target: string | PipelinePool, options: NeonWebsocketOptions = {}): Database {
  const prepare = options.prepare ?? true
  if (typeof target !== 'string')
    return pipelinedDatabase({ driver: 'neon-websocket', open: () => target, owned: false, prepare })
  return pipelinedDatabase({ driver: 'neon-websocket', open: () => openPool(target, options), owned: true, prepare })
}

function openPool(connectionString: string, { max = 10, proxy }: NeonWebsocketOptions): PipelinePool {
  const pool = new Pool({ connectionString, max })
  if (proxy !== undefined) pool.Client = clientThrough(new URL(proxy))
  // An idle connection that breaks is replaced at the next request; unheard, the event would end the process.
  pool.on('error', () => {})
  return pool
}

/** Settings of one client, not of the module: two databases of one process may use different proxies. */
function clientThrough(proxy: URL) {
  return class extends Client {
    constructor(config?: string | ClientConfig) {
      super(config)
      const { neonConfig } = this
      neonConfig.wsProxy = (host, port) => `${proxy.host}${proxy.pathname}?address=${host}:${port}`
      neonConfig.useSecureWebSocket = proxy.protocol === 'wss:'
      neonConfig.pipelineConnect = false
      neonConfig.pipelineTLS = false
    }
  }
}
