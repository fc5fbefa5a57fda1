import type { Database, Row, Statement } from '../core/database.ts'
import { DatabaseError } from '../core/database.ts'

/** A lane as it is known here: what the numbers in the hot rows stand for. */
export interface Lane {
  readonly id: number
  readonly tenant: string
  readonly queue: string
  readonly definition: string
  readonly version: number
}

/**
 * Lanes seen so far. Lanes are never deleted, so what is known stays true for the database it was read from; a spawn that relied on a
 * wrong memory inserts too few rows and is sent again with everything it needs.
 */
export class LaneMemory {
  readonly byId = new Map<number, Lane>()
  readonly #known = new Set<string>()
  /** Runs with gates have been seen in lanes of definitions that have none here: claims ask the gates from now on. */
  gated = false
  /** Claims to come that ask all gates: some were seen that are not wide open. */
  onGuard = 0
  /** The same of rates: somebody waits for tokens, or did. */
  rated = false
  /** Where the last claim was denied most of what it looked at, and how far the next one has them looked through first. */
  crowded: { readonly lanes: readonly number[]; readonly limit: number } | null = null
  /** Gates that the last claim found without a counter: they are made ahead of the next. */
  unminted: readonly string[] = []
  /** Which database it is, once a request has said so: a caller's transaction may be one of another. */
  place: string | null = null
  /** What is known besides; what is remembered here is not told to it. */
  #base: LaneMemory | undefined

  constructor(base?: LaneMemory) {
    this.#base = base
  }

  knows(lane: Omit<Lane, 'id'>): boolean {
    return this.#known.has(identityOf(lane)) || this.#base?.knows(lane) === true
  }

  remember(lane: Omit<Lane, 'id'>): void {
    if (this.#known.size >= MAX_LANES_REMEMBERED) this.forget()
    this.#known.add(identityOf(lane))
  }

  learn(lane: Lane): void {
    if (this.byId.size >= MAX_LANES_REMEMBERED) this.byId.clear()
    this.byId.set(lane.id, lane)
    this.remember(lane)
  }

  forget(): void {
    this.#known.clear()
    this.#base = undefined
  }
}

/** Lanes kept in memory: a few hundred bytes each. */
const MAX_LANES_REMEMBERED = 10_000

function identityOf(lane: Omit<Lane, 'id'>): string {
  return JSON.stringify([lane.tenant, lane.queue, lane.definition, lane.version])
}

/** What every part of the store works with. */
export interface StoreContext {
  readonly database: Database
  readonly schema: string
  readonly environment: string
  /** The instant that statements take for now; null: the server's clock. Tests move it. */
  readonly now: () => string | null
  readonly lanes: LaneMemory
  /** What is written is part of a transaction of the caller's: it may yet be rolled back, and locks last as long as the caller likes. */
  readonly isCallers?: true
}

/** Takes note of which database it is, where `ensure_environment` was among the statements. */
export function learnPlace(lanes: LaneMemory, statements: readonly Statement[], replies: readonly (readonly Row[])[]): void {
  const at = statements.findIndex(({ name }) => name === 'ensure_environment')
  const place = at < 0 ? undefined : replies[at]?.[0]?.place
  if (typeof place === 'string') lanes.place = place
}

/** Times a batch is sent when its reply was lost: what it writes is guarded, so sending it again is safe. */
const SENDS_AFTER_LOST_REPLY = 3

/** The primary key of the runs, or of one partition of them. */
const RUNS_KEY = /^runs_(\w+_)?pkey$/

/** The server refuses the statements for what they are, and would have refused them the time before: data, constraints, limits, names. */
const REFUSED_FOR_GOOD = /^(22|23|42|54|3F)/

/**
 * Sends a batch whose statements change nothing the second time; a lost reply is answered by sending it again. When that fails, too, the
 * first may still have been executed: the failure is `lost`, whatever became of the last.
 */
export async function sendRepeatable(
  database: Database,
  statements: readonly Statement[],
): Promise<{ readonly replies: readonly (readonly Row[])[]; readonly resent: boolean }> {
  let isLost = false
  for (let sent = 1; ; sent += 1) {
    try {
      return { replies: await database.batch(statements), resent: sent > 1 }
    } catch (error) {
      if (!(error instanceof DatabaseError)) throw error
      isLost ||= error.fate === 'lost'
      // a resend that met its own first attempt, still under way, waited for it and was refused; sent again it finds what that wrote
      const metItself = isLost && error.sqlstate === '23505' && RUNS_KEY.test(error.constraint ?? '')
      const isSettled = error.fate === 'refused' && REFUSED_FOR_GOOD.test(error.sqlstate ?? '') && !metItself
      if (!isLost || isSettled) throw error
      if (sent >= SENDS_AFTER_LOST_REPLY) throw error.fate === 'lost' ? error : asLost(error)
    }
  }
}

function asLost(cause: DatabaseError): DatabaseError {
  return new DatabaseError(`The reply was lost, and asking again failed: ${cause.message}`, { fate: 'lost', cause })
}
