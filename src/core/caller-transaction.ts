/** Admission inside a transaction that the caller has open, and as statements for a batch of the caller's own. */
import type { Row } from './database.ts'
import type { Status } from './status.ts'
import type { Admission, AdmissionStore, Delivery, NewEvent, NewRun, NewSignal, ReadingStore, Scope } from './store.ts'

/**
 * A transaction that the caller has begun, known by its shape: a client of node-postgres or of Neon's WebSocket pool in BEGIN, what
 * drizzle's `transaction` hands out over either of them or over PGlite, what PGlite's `transaction` hands out, or that of a `Database`
 * of pawl. Not a pool and not a database, each statement of which is a transaction of its own.
 */
export type CallerTransaction =
  | {
      query(...args: never[]): unknown
      readonly totalCount?: never
      readonly waitReady?: never
    }
  | { execute(...args: never[]): unknown; rollback(): unknown }

/** What is done through it is committed with it or not at all. Throws PawlErrors: after most of them Postgres lets it only roll back. */
export type TransactionStore = Pick<AdmissionStore, 'spawn' | 'signal'> &
  Pick<ReadingStore, 'getRun'> & {
    /** Leaves the event to be emitted once the transaction has been committed. */
    emitLater(event: NewEvent): Promise<void>
  }

/** One of several statements that a caller's own batch has to hold in this order. The parameters are text, whatever the driver. */
export interface BatchStatement {
  readonly text: string
  readonly params: (string | null)[]
}

/** A write as statements. They fail the batch by themselves where it must not be committed. */
export interface Planned<A> {
  readonly statements: readonly BatchStatement[]
  /** What the rows that each of them answered, in order, say. */
  readonly read: (replies: readonly (readonly Row[])[]) => A
}

/** What an idempotency key has come to. */
export type ReceiptRecord =
  | { readonly kind: 'run'; readonly id: string; readonly status: Status; readonly created: boolean }
  | { readonly kind: 'signal'; readonly id: string; readonly runId: string }

/** Settling what a lost reply left open. */
export interface ReceiptStore {
  /** One batch. Null: nothing was decided under the key. */
  findReceipt(key: string, scope: Scope): Promise<ReceiptRecord | null>
}

export interface CallerTransactionStore {
  /** One request over node-postgres and Neon's WebSocket. Throws `invalid_request` for what is no transaction. */
  within(tx: unknown): TransactionStore
  /** No request. */
  planSpawn(run: NewRun): Planned<Admission>
  planSignal(signal: NewSignal): Planned<Delivery>
  planEvent(event: NewEvent): Planned<void>
  /** The PawlError of a batch that failed because of what was planned here; any other error as it is. */
  explainBatch(error: unknown): unknown
}
