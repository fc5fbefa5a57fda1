import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { createConnection, createServer, type Server } from 'node:net'
import { hostname } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { randomUuid } from '../core/ids.ts'
import type { Logger } from '../core/logger.ts'

/** What a process claims under, from its first claim id to its last. */
export interface ClaimRange {
  readonly from: string
  readonly to: string
}

/** That this process is there, for those that start after it. */
export interface Presence {
  /** A claim id that tells whose it is. */
  newClaimId(): string
  /** Hands over what processes of this machine claimed that are there no more; each once. */
  takeOver(release: (range: ClaimRange) => Promise<unknown>): Promise<void>
  /** Idempotent. */
  leave(): Promise<void>
}

/** Length of a socket's path that every system takes, in bytes. */
const MAX_PATH_BYTES = 103
const SOCKET = /^([0-9a-f-]{18})\.([0-9a-f]{8})\.sock$/

/**
 * Leaves a socket in the folder on which this process listens for as long as it lives. The system closes it with the process, however that
 * ends, and in whatever container: a socket of this boot of this machine that refuses a connection is proof that its process is no more. Of
 * what other machines left there nothing is known, nor of what was there before the machine started: their leases tell.
 *
 * Undefined where that cannot be done (a folder that is not writable, a path too long): then leases alone tell.
 */
export async function announce(folder: string, logger: Logger): Promise<Presence | undefined> {
  const machine = await machineOf()
  // the first half of a random UUID; the second half is each claim's own
  const tag = randomUuid().slice(0, 18)
  const own = shortest(join(folder, `${tag}.${machine}.sock`))
  try {
    if (Buffer.byteLength(own) > MAX_PATH_BYTES) throw new Error(`${own} is too long for a socket`)
    await mkdir(folder, { recursive: true })
    const server = await listen(own)
    return {
      newClaimId: () => `${tag}-${randomUuid().slice(19)}`,
      takeOver: (release) => takeOver(folder, machine, release),
      leave: () => new Promise((done) => server.close(() => done())),
    }
  } catch (error) {
    logger.debug('pawl: this process leaves no sign of life', { error: String(error) })
    return undefined
  }
}

/** This boot of this machine; where a system does not tell its boots apart, this machine. */
async function machineOf(): Promise<string> {
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')
  return createHash('sha256').update(`${hostname()}\n${boot}`).digest('hex').slice(0, 8)
}

function shortest(path: string): string {
  const [absolute, near] = [resolve(path), relative('', path)]
  return near.length < absolute.length ? near : absolute
}

function listen(path: string): Promise<Server> {
  return new Promise((done, fail) => {
    const server = createServer((socket) => socket.destroy())
    server.once('error', fail)
    // the listener alone does not keep the process alive
    server.listen(path, () => done(server.unref()))
  })
}

async function takeOver(folder: string, machine: string, release: (range: ClaimRange) => Promise<unknown>): Promise<void> {
  for (const name of await readdir(folder)) {
    const [, tag, where] = SOCKET.exec(name) ?? []
    const path = join(folder, name)
    if (tag === undefined || where !== machine || !(await isDead(shortest(path)))) continue
    await release({ from: `${tag}-0000-000000000000`, to: `${tag}-ffff-ffffffffffff` })
    await rm(path, { force: true })
  }
}

/** Nobody listens. Whatever else goes wrong proves nothing. */
function isDead(path: string): Promise<boolean> {
  return new Promise((done) => {
    const socket = createConnection(path)
    socket.once('connect', () => {
      socket.destroy()
      done(false)
    })
    socket.once('error', (error: NodeJS.ErrnoException) => done(error.code === 'ECONNREFUSED'))
  })
}
