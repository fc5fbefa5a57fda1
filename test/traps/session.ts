import pg from 'pg'
import { onTestFinished } from 'vitest'
import type { Row, Statement } from '../../src/core/database.ts'
import { type HeldLock, holdRowLock } from '../support/races.ts'

/** A transaction whose statements a test sends one by one, so that it can stop between two of them. */
export interface Session {
  readonly pid: number
  /** Runs one statement of ours and answers its rows. */
  readonly run: (statement: Statement) => Promise<readonly Row[]>
  readonly execute: (text: string) => Promise<void>
  /** Commits and ends the connection. Idempotent. */
  readonly commit: () => Promise<void>
  /** Rolls back and ends the connection. Idempotent. */
  readonly abandon: () => Promise<void>
}

/** Opens a READ COMMITTED transaction on a connection of its own; rolled back when the test ends. */
export async function openSession(connectionString: string): Promise<Session> {
  const client = new pg.Client({ connectionString })
  client.on('error', () => {})
  await client.connect()
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED')
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  let ended: Promise<void> | undefined
  const end = async (verb: 'COMMIT' | 'ROLLBACK') => {
    await client.query(verb)
    await client.end()
  }
  const session: Session = {
    pid: rows[0]!.pid,
    // the rows of a test's own session: plain node-postgres values, close enough to look at
    run: async ({ text, params }) => (await client.query(text, [...params] as unknown[])).rows as Row[],
    execute: async (text) => {
      await client.query(text)
    },
    commit: () => {
      ended ??= end('COMMIT')
      return ended
    },
    abandon: () => {
      ended ??= end('ROLLBACK')
      return ended
    },
  }
  onTestFinished(session.abandon)
  return session
}

/** Locks a run as a signal or a flush does, until it is released or the test ends. */
export async function lockRun(connectionString: string, id: string): Promise<HeldLock> {
  return holdUntilEnd(connectionString, 'SELECT id FROM pawl.runs WHERE id = $1 FOR NO KEY UPDATE', [id])
}

/** Holds whatever locks the statement takes, until they are released or the test ends. */
export async function holdUntilEnd(connectionString: string, text: string, params: readonly unknown[] = []): Promise<HeldLock> {
  const held = await holdRowLock(connectionString, text, params)
  onTestFinished(held.abandon)
  return held
}
