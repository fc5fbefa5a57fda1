import { createServer, type Socket } from 'node:net'
import { FaultSwitch, type Faults, faultsOf, listen, openTunnel, trackSockets } from './faults.ts'

export interface FaultProxy {
  readonly port: number
  /** The target's connection string, through the proxy. */
  readonly connectionString: string
  readonly faults: Faults
  /** Cuts every connection and frees the port. Idempotent. */
  close(): Promise<void>
}

/** Starts a TCP proxy on a free port of 127.0.0.1 before the server of a connection string, for tests of broken connections. */
export async function startFaultProxy(target: string): Promise<FaultProxy> {
  const url = new URL(target)
  const address = { host: url.hostname, port: Number(url.port || 5432) }
  const faults = new FaultSwitch()
  const server = createServer((socket) => {
    socket.setNoDelay(true)
    openTunnel(clientOf(socket), address, faults)
  })
  const sockets = trackSockets(server)
  const port = await listen(server, 0)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  const controls = faultsOf(server, port, sockets, faults)
  return { port, connectionString: url.href, faults: controls, close: controls.refuse }
}

function clientOf(socket: Socket) {
  return {
    send: (bytes: Uint8Array) => void socket.write(bytes),
    cut: () => void socket.destroy(),
    onData: (listener: (bytes: Uint8Array) => void) => void socket.on('data', listener),
    onEnd: (listener: () => void) => void socket.once('close', listener),
  }
}
