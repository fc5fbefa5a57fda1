import pg from 'pg'

export interface HeldLock {
  /** Backend pid of the session that holds the lock. */
  readonly pid: number
  /** Commits and lets the waiting sessions go on. Idempotent. */
  readonly release: () => Promise<void>
  /** Rolls back and lets the waiting sessions go on. Idempotent. */
  readonly abandon: () => Promise<void>
}

/**
 * Opens a session of its own, runs one statement inside a transaction (usually `SELECT … FOR UPDATE`, or an update that
 * stays uncommitted) and holds it until it is released.
 */
export async function holdRowLock(connectionString: string, text: string, params: readonly unknown[] = []): Promise<HeldLock> {
  const session = new pg.Client({ connectionString })
  session.on('error', () => {})
  await session.connect()
  await session.query('BEGIN')
  await session.query(text, [...params])
  const { rows } = await session.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  let ended: Promise<void> | undefined
  const end = async (verb: 'COMMIT' | 'ROLLBACK') => {
    await session.query(verb)
    await session.end()
  }
  const once = (verb: 'COMMIT' | 'ROLLBACK') => {
    ended ??= end(verb)
    return ended
  }
  return { pid: rows[0]!.pid, release: () => once('COMMIT'), abandon: () => once('ROLLBACK') }
}

export interface BlockedSession {
  readonly pid: number
  readonly query: string
  readonly blockedBy: readonly number[]
}

export type BlockedMatch = { readonly pid: number } | { readonly blockedBy: number } | { readonly queryMatches: RegExp }

/** How long a race may take to form before the test is wrong: the other session never got as far as the lock. */
const RACE_TIMEOUT_MS = 10_000

/**
 * Waits until sessions of this database are seen waiting for a lock, and answers them. Fails after 10 s with what the
 * sessions were doing instead.
 *
 * @param match which sessions: one by backend pid, those held up by a pid, or those whose statement matches
 * @param count how many must be waiting; default 1
 */
export async function untilBlocked(connectionString: string, match: BlockedMatch, count = 1): Promise<readonly BlockedSession[]> {
  const watcher = new pg.Client({ connectionString })
  await watcher.connect()
  try {
    const deadline = performance.now() + RACE_TIMEOUT_MS
    for (;;) {
      const blocked = (await blockedSessions(watcher)).filter((session) => isMatch(session, match))
      if (blocked.length >= count) return blocked
      if (performance.now() > deadline) throw new Error(await describeSessions(watcher, count))
    }
  } finally {
    await watcher.end()
  }
}

async function blockedSessions(watcher: pg.Client): Promise<BlockedSession[]> {
  // pg_sleep paces the look, so that watching does not starve the server that is being watched.
  const { rows } = await watcher.query<{ pid: number; query: string; blocked_by: number[] }>(`
    SELECT a.pid, a.query, pg_blocking_pids(a.pid) AS blocked_by
    FROM (SELECT pg_sleep(0.002)) AS pace, pg_stat_activity AS a
    WHERE a.datname = current_database()
      AND a.wait_event_type = 'Lock'`)
  return rows
    .map((row) => ({ pid: row.pid, query: row.query, blockedBy: row.blocked_by }))
    .filter((session) => session.blockedBy.length > 0)
}

function isMatch(session: BlockedSession, match: BlockedMatch): boolean {
  if ('pid' in match) return session.pid === match.pid
  if ('blockedBy' in match) return session.blockedBy.includes(match.blockedBy)
  return match.queryMatches.test(session.query)
}

async function describeSessions(watcher: pg.Client, count: number): Promise<string> {
  const { rows } = await watcher.query<{ pid: number; state: string; waits: string; query: string }>(`
    SELECT pid, state, coalesce(wait_event_type || '/' || wait_event, 'nothing') AS waits, left(query, 200) AS query
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()`)
  const lines = rows.map((row) => `  ${row.pid} ${row.state}, waits for ${row.waits}: ${row.query}`)
  return `expected ${count} blocked session(s) within ${RACE_TIMEOUT_MS} ms; the sessions are:\n${lines.join('\n')}`
}
