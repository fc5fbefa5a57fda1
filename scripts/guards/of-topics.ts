import type { Guard } from './guard.ts'

const TOPICS = 'src/db/statements/topics.ts'
const EVENTS = 'src/db/statements/events.ts'
const SETTLE = 'src/db/statements/settle-outcomes.ts'
const FLUSH = 'src/db/flush-topics.ts'
const T01 = 'test/traps/trap-01-events.test.ts'
const JOINS = 'test/engine/joins.test.ts'
const EVENT_TESTS = 'test/engine/events.test.ts'

/** Guards of events, ends of runs and joins. */
export const GUARDS_OF_TOPICS: readonly Guard[] = [
  {
    guard: 'topics: a park shares the lock of the name',
    file: FLUSH,
    find: '    ...(events.length > 0\n      ? [shareTopics(',
    replace: '    ...(events.length > 1_000_000\n      ? [shareTopics(',
    test: T01,
    name: 'a park waits for an emit that is under way',
  },
  {
    guard: 'topics: an emit takes the lock of the name',
    file: TOPICS,
    find: 'SELECT pg_advisory_xact_lock(',
    replace: 'SELECT pg_advisory_xact_lock_shared(',
    test: T01,
    name: 'an emit waits for a park that is under way',
  },
  {
    guard: 'topics: a park looks for what is there already',
    file: FLUSH,
    find: '...(events.length > 0 ? [hearEvents(',
    replace: '...(events.length > 1_000_000 ? [hearEvents(',
    test: EVENT_TESTS,
    name: 'wakes a late joiner as it parks',
  },
  {
    guard: 'topics: an expired event is not heard',
    file: TOPICS,
    find: 'WHERE e.expires_at > clock.at\n',
    replace: 'WHERE true\n',
    test: EVENT_TESTS,
    name: 'an expired event is as if never emitted',
  },
  {
    guard: 'topics: the first write wins until it expires',
    file: EVENTS,
    find: '  WHERE events.expires_at <= excluded.created_at\n',
    replace: '',
    test: EVENT_TESTS,
    name: 'the first write wins until it expires',
  },
  {
    guard: 'topics: behind the lock of a name nothing waits for a run',
    file: EVENTS,
    find: "lockingWaiters(s, 'SKIP LOCKED')",
    replace: "lockingWaiters(s, '')",
    test: T01,
    name: 'a waiter whose row is held by a flush is not waited for',
  },
  {
    guard: 'topics: a run that is awaited is locked with those that wait for it',
    file: 'src/db/flush.ts',
    find: 'const awaited = awaitedRuns(outcomes)',
    replace: 'const awaited = awaitedRuns([])',
    test: T01,
    name: 'parks on the end of another while that ends waits for it',
  },
  {
    guard: 'topics: who ends an awaited run leaves word',
    file: 'src/db/statements/apply-outcomes.ts',
    find: 'FROM applied a WHERE a.tells',
    replace: 'FROM applied a WHERE false AND a.tells',
    test: T01,
    name: 'a run that ends while another parks on its end',
  },
  {
    guard: 'topics: an awaited run is not pruned before it was told',
    file: 'src/db/statements/upkeep.ts',
    find: ' AND NOT r.awaited\n',
    replace: '\n',
    test: EVENT_TESTS,
    name: 'the result survives the retention of the run that gave it',
  },
  {
    guard: 'topics: a wait that has ended ends its registrations',
    file: FLUSH,
    find: '...(left.length > 0 ? [forgetWaits(',
    replace: '...(left.length > 1_000_000 ? [forgetWaits(',
    test: EVENT_TESTS,
    name: 'registrations end with the wait',
  },
  {
    guard: 'topics: who ends a run without a flush leaves word',
    file: 'src/db/ending.ts',
    find: 'leaveEnds(schema, params), ',
    replace: '',
    test: EVENT_TESTS,
    name: 'one that failed is told with its error',
  },
  {
    guard: 'joins: a need counts good ends only',
    file: SETTLE,
    find: 'CASE WHEN p.join_spare IS NULL THEN e.n ELSE e.good END',
    replace: 'e.n',
    test: JOINS,
    name: 'the parent wakes with the k-th that ended well',
  },
  {
    guard: 'joins: a need that can be met no more wakes the parent',
    file: SETTLE,
    find: ' < 0, false)',
    replace: ' < -1000, false)',
    test: JOINS,
    name: 'a quorum that can be met no more',
  },
  {
    guard: 'joins: stragglers are those of one join',
    file: 'src/db/statements/stragglers.ts',
    find: 'SELECT r.id, i.join_seq, r.environment_id',
    replace: 'SELECT r.id, 0, r.environment_id',
    test: JOINS,
    name: 'stragglers are those of that join only',
  },
]
