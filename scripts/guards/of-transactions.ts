import type { Guard } from './guard.ts'

const CHECK = 'src/db/statements/check-transaction.ts'
const T18 = 'test/traps/trap-18-lost-replies.test.ts'
const TRANSACTIONS = 'test/client/transactions.test.ts'
const MOVED = 'test/engine/moved-in-transactions.test.ts'
const REFUSALS = 'test/client/transaction-refusals.test.ts'

/** Guards of callers' transactions and of lost replies. */
export const GUARDS_OF_TRANSACTIONS: readonly Guard[] = [
  {
    guard: 'whether a spawn made the run is told by its nonce, in a savepoint too',
    file: 'src/db/statements/admit-runs.ts',
    find: 'coalesce(r.nonce = $2::uuid, false) AS own_is_new',
    replace: 'coalesce(r.xmin = pg_current_xact_id()::xid, false) AS own_is_new',
    test: TRANSACTIONS,
    name: 'a rolled back savepoint takes what was in it',
  },
  {
    guard: 'nothing is admitted above READ COMMITTED',
    file: CHECK,
    find: "current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')",
    replace: 'false',
    test: TRANSACTIONS,
    name: 'REPEATABLE READ is refused by name',
  },
  {
    guard: 'a transaction of another installation is refused',
    file: CHECK,
    find: 'WHEN $1::text <> ',
    replace: "WHEN $1::text = 'nowhere' || ",
    test: REFUSALS,
    name: 'another database with the tables of pawl is refused',
  },
  {
    guard: 'a connection outside of a transaction is refused',
    file: 'src/db/caller-transaction.ts',
    find: 'const checks = [requireTransaction(schema, {}), checkTransaction',
    replace: 'void requireTransaction\n    const checks = [checkTransaction',
    test: REFUSALS,
    name: 'a connection without a transaction is refused',
  },
  {
    guard: 'a batch of the caller’s fails where the run was refused',
    file: 'src/db/caller-admission.ts',
    find: 'statements: [...statements, required],\n    read: (replies) => read(replies.slice',
    replace: 'statements: required ? statements : [],\n    read: (replies) => read(replies.slice',
    test: 'test/client/statements.test.ts',
    name: 'what the call is refused for fails the batch',
  },
  {
    guard: 'trap 18: once a reply was lost, a resend that was not sent settles nothing',
    file: 'src/db/context.ts',
    find: "throw error.fate === 'lost' ? error : asLost(error)",
    replace: "throw error.fate === 'lost' ? asLost(error) : error",
    test: T18,
    name: 'a request that was surely not sent is unreachable',
  },
  {
    guard: 'trap 18: a key that is free again says nothing of a signal that was resent',
    file: 'src/db/signalling.ts',
    find: "if (third.kind === 'delivered' ||",
    replace: "if (third.kind !== 'mismatch' ||",
    test: T18,
    name: 'a signal to a key that is free again',
  },
  {
    guard: 'the HTTP client does not forget a lost reply when the last attempt never left',
    file: 'src/client/http-exchange.ts',
    find: 'throw isLost && leavesOpen(error) ? lost(request, error) : error',
    replace: 'throw isLost && leavesOpen(error) ? error : error',
    test: 'test/client/http-client.test.ts',
    name: 'what surely never left is not unknown',
  },
  {
    guard: 'room is not handed over in a transaction of the caller’s',
    file: 'src/db/late-handover.ts',
    find: '  if (context.isCallers) return\n',
    replace: '',
    test: MOVED,
    name: 'what the transaction is told is done is committed with it',
  },
  {
    guard: 'room that a caller’s transaction has left is told of',
    file: 'src/db/spawning.ts',
    find: 'leavesRoom: context.isCallers === true',
    replace: 'leavesRoom: context.isCallers === undefined',
    test: MOVED,
    name: 'the room goes to who comes next with the first tick after the commit',
  },
  {
    guard: 'what a caller’s transaction has made due earlier is told of',
    file: 'src/client/transaction.ts',
    find: 'afterCommit: changedSomething(spawned)',
    replace: 'afterCommit: spawned.created && changedSomething(spawned)',
    test: MOVED,
    name: 'what has become due earlier in the transaction',
  },
  {
    guard: 'a receipt under which nothing was decided is taken over by the same request',
    file: 'src/db/statements/admit-runs.ts',
    find: ' OR receipts.decision IS NULL AND receipts.fingerprint = excluded.fingerprint',
    replace: '',
    test: 'test/engine/gathering.test.ts',
    name: 'a spawn that failed halfway is asked for again',
  },
]
