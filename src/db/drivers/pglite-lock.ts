import { randomUUID } from 'node:crypto'
import { linkSync, mkdirSync, readdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { DatabaseError } from '../../core/database.ts'

/**
 * One process per PGlite folder: a second one would silently lose what the first has committed.
 *
 * The lock is the file `<folder>.lock.<n>` with the highest n. It is taken by creating n + 1, which only one process can,
 * and only after n was seen to be free: released, or its process dead. The highest file is never removed, so numbers never
 * come again, and a process that was asleep between looking and creating finds a higher one and steps back.
 */
export interface FolderLock {
  /** Lets the next process in. Idempotent. */
  release(): void
}

interface Holder {
  readonly pid: number
  /** Tells a process from a later one with the same number; null where the system does not say. */
  readonly startedAt: string | null
  readonly released: boolean
}

/**
 * Takes the lock of the folder, or throws a `DatabaseError` with fate `not_sent` that names the folder and the process.
 *
 * @param onLooked called between looking and creating, where tests let other processes go ahead
 */
export function lockFolder(folder: string, onLooked: () => void = () => {}): FolderLock {
  const path = resolve(folder)
  mkdirSync(dirname(path), { recursive: true })
  for (;;) {
    const newest = newestLock(path)
    const holder = newest === 0 ? undefined : readHolder(lockFile(path, newest))
    if (holder && isAlive(holder)) throw refusal(path, holder)
    onLooked()
    const mine = newest + 1
    if (!create(lockFile(path, mine), self(false))) continue
    if (newestLock(path) !== mine) {
      unlinkSync(lockFile(path, mine))
      continue
    }
    removeOlder(path, mine)
    let held = true
    const release = () => {
      // Only once: by then the next holder may have removed the file.
      if (held) writeHolder(lockFile(path, mine), self(true))
      held = false
    }
    return { release }
  }
}

function refusal(folder: string, holder: Holder): DatabaseError {
  return new DatabaseError(
    `The database folder ${folder} is in use by process ${holder.pid}. One process at a time can open it: stop that one, or use another folder.`,
    { fate: 'not_sent' },
  )
}

function lockFile(path: string, number: number): string {
  return `${path}.lock.${number}`
}

function lockNumbers(path: string): number[] {
  const prefix = `${basename(path)}.lock.`
  return readdirSync(dirname(path))
    .filter((name) => name.startsWith(prefix) && /^\d+$/.test(name.slice(prefix.length)))
    .map((name) => Number(name.slice(prefix.length)))
}

function newestLock(path: string): number {
  return Math.max(0, ...lockNumbers(path))
}

function removeOlder(path: string, mine: number): void {
  for (const number of lockNumbers(path)) if (number < mine) removeIfThere(lockFile(path, number))
}

function removeIfThere(file: string): void {
  try {
    unlinkSync(file)
  } catch (error) {
    if (!isCode(error, 'ENOENT')) throw error
  }
}

/** Creates the file with all of its content at once, so that nobody reads half of it; false if it exists. */
function create(file: string, holder: Holder): boolean {
  const draft = `${file}.${randomUUID()}`
  writeHolder(draft, holder)
  try {
    linkSync(draft, file)
    return true
  } catch (error) {
    if (isCode(error, 'EEXIST')) return false
    throw error
  } finally {
    unlinkSync(draft)
  }
}

function writeHolder(file: string, holder: Holder): void {
  writeFileSync(file, JSON.stringify(holder))
}

/** Undefined when the file went away or holds no holder: then somebody else's turn is decided by creating the next. */
function readHolder(file: string): Holder | undefined {
  try {
    // The cast: files of this name are written by `writeHolder` alone; a damaged one has no pid that lives.
    return JSON.parse(readFileSync(file, 'utf8')) as Holder
  } catch (error) {
    if (isCode(error, 'ENOENT') || error instanceof SyntaxError) return undefined
    throw error
  }
}

function self(released: boolean): Holder {
  return { pid: process.pid, startedAt: startOf(process.pid), released }
}

function isAlive(holder: Holder): boolean {
  if (holder.released || !Number.isInteger(holder.pid)) return false
  try {
    process.kill(holder.pid, 0)
  } catch (error) {
    // EPERM: it lives, and is somebody else's.
    if (!isCode(error, 'EPERM')) return false
  }
  return holder.startedAt === null || startOf(holder.pid) === holder.startedAt
}

/** Start of a process in ticks since boot, from Linux' /proc; null elsewhere. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(join('/proc', String(pid), 'stat'), 'utf8')
    // The name, in parentheses, may contain anything; the start is the 22nd field, the 20th behind it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
  } catch {
    return null
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}
