/** Spawning and signalling as statements, for a batch that the caller sends: the way over Neon HTTP, which has no open transactions. */
import type { BatchStatement } from '../core/caller-transaction.ts'
import type { Caller, EmitCall, SignalCall, SignalResult, SpawnCall, SpawnResult } from '../core/calls.ts'
import type { Row } from '../core/database.ts'
import type { NewRun, NewSignal } from '../core/store.ts'
import { createCalls, toSignalResult, toSpawnResult } from './calls.ts'
import { toLaterEvent } from './events.ts'
import { type AfterCommit, type CreateTransactionCallsOptions, surroundingsOf } from './transaction.ts'

export interface PreparedStatements<A> extends AfterCommit {
  /**
   * To be sent in this order in one READ COMMITTED transaction, among statements of the caller's own: `sql.query(text, params)` of Neon's
   * driver takes them, as does `client.query(text, params)` of node-postgres. They fail the whole of it where it must not be committed:
   * outside of a transaction, in another database, above READ COMMITTED, and when the call is refused (`explain` says why).
   */
  readonly statements: readonly BatchStatement[]
  /** What the call came to, from the rows (as objects) that each of these statements answered, in order. */
  readonly read: (replies: readonly (readonly object[])[]) => A
}

export interface PreparedSpawn extends PreparedStatements<SpawnResult> {
  /** Of the run, unless its key belongs to another or its idempotency key was used before: `read` knows. */
  readonly id: string
}

export interface StatementCalls {
  spawn(call: SpawnCall, caller?: Caller): Promise<PreparedSpawn>
  signal(call: SignalCall, caller?: Caller): Promise<PreparedStatements<SignalResult>>
  emit(call: EmitCall, caller?: Caller): Promise<PreparedStatements<{ readonly name: string }>>
  explain(error: unknown): unknown
}

function nothing(): void {}

/** Holds nothing. */
export function createStatementCalls(options: CreateTransactionCallsOptions): StatementCalls {
  const { store, onCommit = nothing } = options
  return {
    spawn: async (call, caller) => {
      const run = await prepareRun(options, call, caller)
      const { statements, read } = store.planSpawn(run)
      return { statements, id: run.id, afterCommit: onCommit, read: (replies) => toSpawnResult(run, read(asRows(replies))) }
    },
    signal: async (call, caller) => {
      const { statements, read } = store.planSignal(await prepareSignal(options, call, caller))
      return { statements, afterCommit: onCommit, read: (replies) => toSignalResult(call, read(asRows(replies))) }
    },
    emit: async (call, caller) => {
      const event = await toLaterEvent(surroundingsOf(options), call, caller)
      return { statements: store.planEvent(event).statements, afterCommit: onCommit, read: () => ({ name: event.name }) }
    },
    explain: (error) => store.explainBatch(error),
  }
}

/** What a caller's driver makes of texts, booleans and JSON is what ours do; no other column is read. */
function asRows(replies: readonly (readonly object[])[]): readonly (readonly Row[])[] {
  return replies as readonly (readonly Row[])[]
}

/** Goes the way of every spawn, up to a store that writes down what it is asked to store. */
async function prepareRun(options: CreateTransactionCallsOptions, call: SpawnCall, caller?: Caller): Promise<NewRun> {
  const asked: NewRun[] = []
  const spawn: CreateTransactionCallsOptions['store']['spawn'] = async (runs) => {
    asked.push(...runs)
    return runs.map(({ id }) => ({ kind: 'created', id, status: 'pending' }))
  }
  await createCalls({ ...options, store: { ...options.store, spawn }, onCommit: undefined }).spawn(call, caller)
  // it has been asked, or `spawn` had thrown
  return asked[0] as NewRun
}

async function prepareSignal(options: CreateTransactionCallsOptions, call: SignalCall, caller?: Caller): Promise<NewSignal> {
  const asked: NewSignal[] = []
  const signal: CreateTransactionCallsOptions['store']['signal'] = async (sent) => {
    asked.push(sent)
    return { kind: 'delivered', signalId: '', runId: '', replayed: true, woke: false }
  }
  await createCalls({ ...options, store: { ...options.store, signal }, onCommit: undefined }).signal(call, caller)
  return asked[0] as NewSignal
}
