import type { BatchStatement, CallerTransactionStore, Planned, TransactionStore } from '../core/caller-transaction.ts'
import type { Database, Row, Statement } from '../core/database.ts'
import { randomUuid } from '../core/ids.ts'
import type { Admission, Delivery, NewRun, NewSignal } from '../core/store.ts'
import { callersDatabase, explainBatch } from './caller-transaction.ts'
import { LaneMemory, type StoreContext } from './context.ts'
import { statementsOfLaterEvent } from './events.ts'
import { createReadingStore } from './reading.ts'
import { planSignal, signalRun } from './signalling.ts'
import { spawn } from './spawn-runs.ts'
import { planSpawn, toAdmissionsParams, withOwnReceipt } from './spawning.ts'
import { checkTransaction, requireTransaction } from './statements/check-transaction.ts'
import { requireAdmitted, requireDelivered } from './statements/require-written.ts'
import { encodeParameters } from './values.ts'

/**
 * Admission in transactions that are not ours. Nothing is remembered of what was written in them: a lane that a rolled back transaction
 * made is not there. A batch of the caller's cannot be sent again by us, so it makes every lane that it needs, known or not.
 */
export function createCallerTransactionStore(context: StoreContext): CallerTransactionStore {
  return {
    within: (tx) => within(context, callersDatabase(context, tx)),
    planSpawn: (run) => planned(context, spawnStatements({ ...context, lanes: new LaneMemory(), isCallers: true }, run)),
    planSignal: (signal) => planned(context, signalStatements(context, signal)),
    planEvent: (event) => planned(context, { statements: statementsOfLaterEvent(context, event), read: () => {} }),
    explainBatch: (error) => explainBatch(error, context.schema),
  }
}

function within(context: StoreContext, database: Database): TransactionStore {
  const inside: StoreContext = { ...context, database, lanes: new LaneMemory(context.lanes), isCallers: true }
  return {
    spawn: (runs) => spawn(inside, runs),
    signal: (signal) => signalRun(inside, signal),
    emitLater: async (event) => {
      await database.batch(statementsOfLaterEvent(inside, event))
    },
    getRun: createReadingStore(inside).getRun,
  }
}

interface Plan<A> {
  readonly statements: readonly Statement[]
  readonly read: (replies: readonly (readonly Row[])[]) => A
}

function spawnStatements(context: StoreContext, given: NewRun): Plan<Admission> {
  const nonce = randomUuid()
  const run = withOwnReceipt(given)
  const { statements, read } = planSpawn(context, [run], nonce)
  const required = requireAdmitted(context.schema, toAdmissionsParams(context.environment, [run], nonce))
  return {
    statements: [...statements, required],
    read: (replies) => read(replies.slice(0, statements.length)).admissions[0] ?? { kind: 'contended' },
  }
}

function signalStatements(context: StoreContext, signal: NewSignal): Plan<Delivery> {
  const { statements, params, read } = planSignal(context, signal, randomUuid())
  const required = requireDelivered(context.schema, { ...params, fingerprint: signal.receipt?.fingerprint ?? null })
  return { statements: [...statements, required], read }
}

/** Behind the checks of the transaction, as a driver takes them. */
function planned<A>({ schema, lanes }: StoreContext, { statements, read }: Plan<A>): Planned<A> {
  const checks = [requireTransaction(schema, {}), checkTransaction(schema, { place: lanes.place })]
  return {
    statements: [...checks, ...statements].map(toBatchStatement),
    read: (replies) => read(replies.slice(checks.length)),
  }
}

function toBatchStatement(statement: Statement): BatchStatement {
  return { text: statement.text, params: encodeParameters(statement) }
}
