/** Spawning and signalling inside a transaction of the caller's. */
import type { CallerTransaction, CallerTransactionStore } from '../core/caller-transaction.ts'
import type { Caller, EmitCall, SignalCall, SignalResult, SpawnCall, SpawnItem, SpawnResult } from '../core/calls.ts'
import { type CreateCallsOptions, changedSomething, createCalls } from './calls.ts'
import { toLaterEvent } from './events.ts'
import type { Surroundings } from './surroundings.ts'

export interface InTransaction {
  /**
   * The caller's own transaction: what is written is committed with it or not at all, and nobody sees it before. One request where pawl's own
   * driver is node-postgres or Neon's WebSocket, else one per statement. READ COMMITTED only. Of the same database as pawl. After an error other than those of the call itself (a wrong
   * input, no target, a conflict) Postgres lets it only roll back.
   */
  readonly tx: CallerTransaction
}

export interface AfterCommit {
  /**
   * To be called once the transaction has been committed: what it started begins at once. Costs nothing here; the host ticks. Never
   * called, the run begins with the next tick; called too early, or for nothing, it does no harm; called twice it looks twice.
   */
  readonly afterCommit: () => void
}

export type SpawnedInTransaction = SpawnResult & AfterCommit
export type SignalledInTransaction = SignalResult & AfterCommit
export interface SpawnedManyInTransaction extends AfterCommit {
  /** An answer for each, in order. */
  readonly items: readonly SpawnItem[]
}

/** Whether it is the first of its name is decided after the commit. */
export interface EmittedInTransaction extends AfterCommit {
  readonly name: string
}

export interface TransactionCalls {
  spawn(tx: CallerTransaction, call: SpawnCall, caller?: Caller): Promise<SpawnedInTransaction>
  spawnMany(tx: CallerTransaction, calls: readonly SpawnCall[], caller?: Caller): Promise<SpawnedManyInTransaction>
  signal(tx: CallerTransaction, call: SignalCall, caller?: Caller): Promise<SignalledInTransaction>
  emit(tx: CallerTransaction, call: EmitCall, caller?: Caller): Promise<EmittedInTransaction>
}

export interface CreateTransactionCallsOptions extends CreateCallsOptions {
  readonly store: CreateCallsOptions['store'] & CallerTransactionStore
}

function nothing(): void {}

/** The calls of an application in transactions of its own. Holds nothing. */
export function createTransactionCalls(options: CreateTransactionCallsOptions): TransactionCalls {
  const { store, onCommit = nothing } = options
  const callsWithin = (tx: unknown) => {
    const failure: { error?: unknown } = {}
    const inside = store.within(tx)
    const spawn: typeof inside.spawn = (runs) =>
      inside.spawn(runs).catch((error: unknown) => {
        failure.error ??= error
        throw error
      })
    // nothing is committed yet: nobody is told
    return { calls: createCalls({ ...options, store: { ...store, ...inside, spawn }, onCommit: undefined }), failure }
  }
  return {
    spawn: async (tx, call, caller) => {
      const spawned = await callsWithin(tx).calls.spawn(call, caller)
      return { ...spawned, afterCommit: changedSomething(spawned) ? onCommit : nothing }
    },
    spawnMany: async (tx, calls, caller) => {
      const within = callsWithin(tx)
      const items = await within.calls.spawnMany(calls, caller)
      // one that the database refused takes the transaction along, and with it those before it
      if (within.failure.error !== undefined) throw within.failure.error
      return { items, afterCommit: items.some((item) => item.ok && changedSomething(item.value)) ? onCommit : nothing }
    },
    signal: async (tx, call, caller) => {
      const sent = await callsWithin(tx).calls.signal(call, caller)
      return { ...sent, afterCommit: sent.replayed ? nothing : onCommit }
    },
    emit: async (tx, call, caller) => {
      const event = await toLaterEvent(surroundingsOf(options), call, caller)
      await store.within(tx).emitLater(event)
      return { name: event.name, afterCommit: onCommit }
    },
  }
}

/** For what has to be checked only: nothing is committed yet. */
export function surroundingsOf(options: CreateTransactionCallsOptions): Surroundings {
  return { ...options, defaults: options.defaults ?? {}, committed: nothing }
}
