import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { RawData, WebSocket } from 'ws'
import { type Address, type Fault, FaultSwitch, type Faults, faultsOf, listen, openTunnel, trackSockets } from './faults.ts'
import { type NeonQuery, type NeonTarget, type PgliteTarget, pgliteTarget, postgresTarget } from './neon-targets.ts'

export interface NeonEndpointOptions {
  /** Connection string of a real server (HTTP and WebSocket), or a PGlite instance (HTTP only), which stays the caller's. */
  readonly target: string | PgliteTarget
  /** Default 0: a free one. */
  readonly port?: number
}

export interface NeonEndpoint {
  readonly port: number
  /** For `neonHttp(connectionString, { endpoint: httpUrl })`. */
  readonly httpUrl: string
  /** For `neonWebsocket(connectionString, { proxy: websocketUrl })`; a PGlite target answers it with 501. */
  readonly websocketUrl: string
  /** The target's user, password and database at the address of this endpoint. Another database of the target may be named. */
  readonly connectionString: string
  /** HTTP requests received, whatever became of them. */
  readonly requests: number
  readonly faults: Faults
  /** Cuts every connection and frees the port. Idempotent. */
  close(): Promise<void>
}

/**
 * Starts a server on 127.0.0.1 that speaks Neon's wire format: statements and batches as `POST /sql`, and Postgres'
 * protocol through the WebSocket `/v2?address=host:port`, which leads to the target and nowhere else.
 *
 * For tests, and for `wrangler dev` on a local database. It checks no password of its own: never expose it.
 */
export async function startNeonEndpoint(options: NeonEndpointOptions): Promise<NeonEndpoint> {
  const { target, port: wantedPort = 0 } = options
  const targetUrl = typeof target === 'string' ? new URL(target) : undefined
  const targetAddress = targetUrl && { host: targetUrl.hostname, port: Number(targetUrl.port || 5432) }
  const database =
    typeof target === 'string' ? await postgresTarget(targetAddress!.host, targetAddress!.port) : pgliteTarget(target)
  const faults = new FaultSwitch()
  let requests = 0
  const server = createServer((request, response) => {
    requests++
    answer(database, faults, request, response).catch((error) => fail(response, 500, String(error)))
  })
  const sockets = trackSockets(server)
  const port = await listen(server, wantedPort)
  if (targetAddress) serveTunnels(server, targetAddress, [`127.0.0.1:${port}`, `localhost:${port}`], faults)
  else server.on('upgrade', (_request, socket) => socket.end('HTTP/1.1 501 Not Implemented\r\n\r\n'))
  const controls = faultsOf(server, port, sockets, faults)
  let closing: Promise<void> | undefined
  return {
    port,
    httpUrl: `http://127.0.0.1:${port}/sql`,
    websocketUrl: `ws://127.0.0.1:${port}/v2`,
    connectionString: connectionStringAt(targetUrl, port),
    get requests() {
      return requests
    },
    faults: controls,
    close: () => {
      closing ??= controls.refuse().then(() => database.close())
      return closing
    },
  }
}

function connectionStringAt(target: URL | undefined, port: number): string {
  const url = new URL(target?.href ?? 'postgresql://postgres@127.0.0.1/postgres')
  url.hostname = '127.0.0.1'
  url.port = String(port)
  // Neon's driver wants a password; a server that trusts its clients does not look at it.
  url.password ||= 'postgres'
  return url.href
}

async function answer(database: NeonTarget, faults: FaultSwitch, request: IncomingMessage, response: ServerResponse) {
  if (request.method !== 'POST' || request.url !== '/sql') return fail(response, 404, 'Not found')
  const text = await readBody(request)
  const fault = await faults.arrive()
  if (fault === 'dropRequest') return void request.socket.destroy()
  const { status, body } = await execute(database, request, text)
  reply(request, response, fault, status, body)
}

function reply(request: IncomingMessage, response: ServerResponse, fault: Fault, status: number, body: unknown): void {
  if (fault === 'dropReply') {
    request.socket.destroy()
    return
  }
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

interface Outcome {
  readonly status: number
  readonly body: unknown
}

async function execute(database: NeonTarget, request: IncomingMessage, text: string): Promise<Outcome> {
  const connectionString = headerOf(request, 'neon-connection-string')
  if (!URL.canParse(connectionString)) return refused({ message: 'invalid connection string' })
  if (headerOf(request, 'neon-raw-text-output') !== 'true' || headerOf(request, 'neon-array-mode') !== 'true') {
    return refused({ message: 'only raw text in array mode is supported' })
  }
  const credentials = new URL(connectionString)
  try {
    // The cast: Neon's driver is the only client; what else comes in fails in the database.
    const body = JSON.parse(text) as NeonQuery | { readonly queries: readonly NeonQuery[] }
    if (!('queries' in body)) return { status: 200, body: await database.query(credentials, body) }
    const results = await database.batch(credentials, body.queries, {
      isolationLevel: headerOf(request, 'neon-batch-isolation-level'),
      readOnly: headerOf(request, 'neon-batch-read-only') === 'true',
      deferrable: headerOf(request, 'neon-batch-deferrable') === 'true',
    })
    return { status: 200, body: { results } }
  } catch (error) {
    return refused(error)
  }
}

const ERROR_FIELDS = [
  'code',
  'severity',
  'detail',
  'hint',
  'position',
  'internalPosition',
  'internalQuery',
  'where',
  'schema',
  'table',
  'column',
  'dataType',
  'constraint',
  'file',
  'line',
  'routine',
]

/** Neon answers an error of the database, and whatever else it cannot do, as 400 with the server's fields. */
function refused(error: unknown): Outcome {
  const source = error as Record<string, unknown>
  const fields = ERROR_FIELDS.map((name) => [name, source[name] ?? null] as const)
  return { status: 400, body: { message: String(source.message), ...Object.fromEntries(fields) } }
}

function fail(response: ServerResponse, status: number, message: string): void {
  if (!response.headersSent) response.writeHead(status, { 'content-type': 'text/plain' })
  response.end(message)
}

function headerOf(request: IncomingMessage, name: string): string {
  const value = request.headers[name]
  return typeof value === 'string' ? value : ''
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString('utf8')
}

/** Tunnels to the target alone: an open relay would carry anybody anywhere. */
function serveTunnels(server: Server, target: Address, ownAddresses: string[], faults: FaultSwitch): void {
  // Required, not imported: a bundler set to browsers or Workers would resolve it to a stub. The cast names the same module.
  const { WebSocketServer } = createRequire(import.meta.url)('ws') as typeof import('ws')
  const allowed = new Set([...ownAddresses, `${target.host}:${target.port}`])
  const sockets = new WebSocketServer({ noServer: true })
  server.on('upgrade', (request, socket, head) => {
    const url = new URL(request.url ?? '/', 'http://localhost')
    if (url.pathname !== '/v2' || !allowed.has(url.searchParams.get('address') ?? '')) {
      socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
      return
    }
    sockets.handleUpgrade(request, socket, head, (websocket) => openTunnel(clientOf(websocket), target, faults))
  })
}

function clientOf(websocket: WebSocket) {
  websocket.on('error', () => {})
  return {
    send: (bytes: Uint8Array) => websocket.send(bytes),
    cut: () => websocket.terminate(),
    onData: (listener: (bytes: Uint8Array) => void) => void websocket.on('message', (data) => listener(bytesOf(data))),
    onEnd: (listener: () => void) => void websocket.once('close', listener),
  }
}

function bytesOf(data: RawData): Uint8Array {
  if (Array.isArray(data)) return Buffer.concat(data)
  return data instanceof ArrayBuffer ? new Uint8Array(data) : data
}
