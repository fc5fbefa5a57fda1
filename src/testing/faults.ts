import { connect, type Server, type Socket } from 'node:net'

/** What a test can do to the way between a driver and its database. */
export interface Faults {
  /** Closes the port and cuts every connection: connects are refused until `accept`. */
  refuse(): Promise<void>
  /** Opens the same port again. */
  accept(): Promise<void>
  /** Holds every request, unexecuted and unanswered, until it is released: a database that is slow to wake. */
  stall(): Stall
  /** Cuts the connection of the next request before anything of it is executed. */
  dropRequest(): void
  /** Executes the next request and cuts its connection in place of the reply; the next several, when told so. */
  dropReply(times?: number): void
}

export interface Stall {
  /** Settles when a request has arrived and is being held. */
  readonly reached: Promise<void>
  /** Lets the held requests go on. Idempotent. */
  release(): void
}

export type Fault = 'none' | 'dropRequest' | 'dropReply'

/** The switch between a `Faults` and the server that obeys it. */
export class FaultSwitch {
  private next: Fault = 'none'
  private times = 0
  private gate: { readonly open: Promise<void>; readonly reach: () => void } | undefined

  /** Waits while requests are stalled, then answers what is to be done to this one, once. What a session opens with has no reply to be lost. */
  async arrive(opens = false): Promise<Fault> {
    if (this.gate) {
      this.gate.reach()
      await this.gate.open
    }
    return opens && this.next === 'dropReply' ? 'none' : this.take()
  }

  /** Whether a request may pass at once and untouched; saves a turn of the event loop for each message. */
  get idle(): boolean {
    return this.next === 'none' && this.gate === undefined
  }

  arm(fault: Fault, times = 1): void {
    this.next = fault
    this.times = times
  }

  stall(): Stall {
    let open = () => {}
    let reach = () => {}
    const opened = new Promise<void>((resolve) => {
      open = resolve
    })
    const reached = new Promise<void>((resolve) => {
      reach = resolve
    })
    this.gate = { open: opened, reach }
    const release = () => {
      this.gate = undefined
      open()
    }
    return { reached, release }
  }

  private take(): Fault {
    const fault = this.next
    this.times -= 1
    if (this.times <= 0) this.next = 'none'
    return fault
  }
}

/** Faults of a listening server. `sockets` are the connections it has, kept by `trackSockets`. */
export function faultsOf(server: Server, port: number, sockets: Set<Socket>, faults: FaultSwitch): Faults {
  return {
    refuse: async () => {
      const closed = server.listening ? new Promise((resolve) => server.close(resolve)) : undefined
      for (const socket of sockets) socket.destroy()
      await closed
    },
    accept: async () => {
      if (!server.listening) await listen(server, port)
    },
    stall: () => faults.stall(),
    dropRequest: () => faults.arm('dropRequest'),
    dropReply: (times) => faults.arm('dropReply', times),
  }
}

export function trackSockets(server: Server): Set<Socket> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
  })
  return sockets
}

/** Listens on 127.0.0.1, on a free port when `port` is 0, and answers the port. */
export function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => {
      server.removeListener('error', reject)
      const address = server.address()
      if (address !== null && typeof address === 'object') resolve(address.port)
    })
  })
}

/** One end of a tunnel: where the driver is connected. */
export interface TunnelClient {
  send(bytes: Uint8Array): void
  /** Ends the connection without a word. */
  cut(): void
  onData(listener: (bytes: Uint8Array) => void): void
  onEnd(listener: () => void): void
}

export interface Address {
  readonly host: string
  readonly port: number
}

/** The server's "ready for the next request, in no transaction": the end of a reply. */
const READY = Uint8Array.of(0x5a, 0, 0, 0, 5, 0x49)

/** Carries Postgres' protocol between a driver and a server, and obeys the faults at each message of the driver. */
export function openTunnel(client: TunnelClient, target: Address, faults: FaultSwitch): void {
  const server = connect(target.port, target.host)
  server.setNoDelay(true)
  let swallow = false
  let opening = true
  let passing: Promise<void> | undefined
  const cut = () => {
    client.cut()
    server.destroy()
  }
  const pass = async (bytes: Uint8Array) => {
    const fault = await faults.arrive(opening)
    if (fault === 'dropRequest') return cut()
    swallow ||= fault === 'dropReply'
    server.write(bytes)
  }
  server.on('error', cut)
  server.once('close', () => client.cut())
  server.on('data', (bytes) => {
    opening &&= !endsWith(bytes, READY)
    if (!swallow) client.send(bytes)
    else if (endsWith(bytes, READY)) cut()
  })
  client.onEnd(() => server.destroy())
  client.onData((bytes) => {
    if (faults.idle && passing === undefined) {
      server.write(bytes)
      return
    }
    const turn: Promise<void> = (passing ?? Promise.resolve())
      .then(() => pass(bytes))
      .finally(() => {
        if (passing === turn) passing = undefined
      })
    passing = turn
  })
}

function endsWith(bytes: Uint8Array, end: Uint8Array): boolean {
  if (bytes.length < end.length) return false
  return end.every((byte, index) => bytes[bytes.length - end.length + index] === byte)
}
