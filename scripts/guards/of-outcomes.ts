import type { Guard } from './guard.ts'

const RESOLVE = 'src/db/statements/resolve-run.ts'
const START = 'src/worker/start-run.ts'
const UNCERTAIN = 'test/engine/uncertain.test.ts'
const RESOLVING = 'test/engine/resolving.test.ts'
const MISMATCH = 'test/engine/mismatch.test.ts'

/** Guards of what becomes of a run that nobody can simply try again. */
export const GUARDS_OF_OUTCOMES: readonly Guard[] = [
  {
    guard: 'an abandoned attempt whose replays are used up makes the run uncertain',
    file: 'src/db/statements/keep-claims.ts',
    find: "coalesce(r.losses >= (r.policy->>'maxReplays')::int, false) AS uncertain",
    replace: 'false AS uncertain',
    test: UNCERTAIN,
    name: 'an attempt that was abandoned after its effect',
  },
  {
    guard: 'agreed replays go before the cap of losses',
    file: START,
    find: ' && policy.maxReplays === undefined',
    replace: ' && policy !== undefined',
    test: UNCERTAIN,
    name: 'more replays than the cap of losses',
  },
  {
    guard: 'a requested cancellation does not wipe out uncertainty',
    file: 'src/db/statements/apply-outcomes.ts',
    find: "k.status >= 'completed' AS firm,",
    replace: "k.status >= 'completed' AND k.status <= 'discarded' AS firm,",
    test: UNCERTAIN,
    name: 'an attempt that is asked to stop while it ends in uncertainty',
  },
  {
    guard: 'evidence that cannot be stored does not make the report a failure',
    file: 'src/worker/settle.ts',
    find: '    return { notStored: toRunError(error).message }',
    replace: '    throw error',
    test: UNCERTAIN,
    name: 'evidence that cannot be stored',
  },
  {
    guard: 'a decision is carried out once',
    file: RESOLVE,
    find: ' AND b.known IS NULL',
    replace: '',
    test: RESOLVING,
    name: 'a replay runs the step again with the same idempotency key',
  },
  {
    guard: 'no replay once cancellation was requested',
    file: RESOLVE,
    find: " AND NOT ($6::text = 'replay' AND r.cancel_requested_at IS NOT NULL)",
    replace: '',
    test: RESOLVING,
    name: 'with a cancellation requested a replay is refused',
  },
  {
    guard: 'only an uncertain run is resolved',
    file: RESOLVE,
    find: "WHERE r.id = b.id AND r.status = 'uncertain' AND",
    replace: 'WHERE r.id = b.id AND',
    test: RESOLVING,
    name: 'of many decisions at the same moment',
  },
  {
    guard: 'what does not fit the code is held, not failed',
    file: 'src/worker/execute.ts',
    find: 'if (misfit !== undefined) return',
    replace: 'if (misfit === null) return',
    test: MISMATCH,
    name: 'a step that was renamed',
  },
  {
    guard: 'a held run is looked at again',
    file: 'src/db/statements/promote-due.ts',
    find: "hold = CASE WHEN r.hold <> 'mismatch' THEN r.hold END, ",
    replace: '',
    test: MISMATCH,
    name: 'a step that was renamed',
  },
  {
    guard: 'what was claimed too late is not started',
    file: START,
    find: ' || isTooLate(stage, definition)',
    replace: '',
    test: 'test/engine/time-limits.test.ts',
    name: 'an invocation whose claim was answered too late',
  },
  {
    guard: 'a timeout that is the end is not asked of onError',
    file: 'src/worker/settle.ts',
    find: "code === 'timeout' && onTimeout === 'fail'",
    replace: "code === 'timeout' && onTimeout === undefined",
    test: 'test/engine/time-limits.test.ts',
    name: 'where a timeout is the end it is the cause',
  },
  {
    guard: 'attempts of a retry are more than there were',
    file: 'src/db/statements/change-runs.ts',
    find: '\n    AND ($5::int IS NULL OR $5::int > r.max_attempts)',
    replace: '',
    test: 'test/engine/retrying-ended.test.ts',
    name: 'attempts given with a retry',
  },
  {
    guard: 'a live twin keeps its claims',
    file: 'src/hosts/node-presence.ts',
    find: '      done(false)',
    replace: '      done(true)',
    test: 'test/hosts/node-presence.test.ts',
    name: 'its claims are freed when it is started again',
  },
  {
    guard: 'the fence rises with each claim',
    file: 'src/worker/context.ts',
    find: 'fence: run.seq,',
    replace: 'fence: run.visit,',
    test: 'test/engine/fencing.test.ts',
    name: 'the fence rises with each claim',
  },
  {
    guard: 'a timeout is recorded, not read off the inbox',
    file: 'src/worker/context.ts',
    find: 'timedOut: run.timedOut,',
    replace: 'timedOut: run.inbox.length === 0,',
    test: 'test/traps/trap-14-recorded-timeouts.test.ts',
    name: 'a wait that ran out says so on every attempt',
  },
]
