import type { Guard } from './guard.ts'

const GATES = 'src/db/statements/gates.ts'
const T08 = 'test/traps/trap-08-denied-runs.test.ts'
const GATE_TESTS = 'test/engine/gates.test.ts'

/** Guards of slots: who is denied, and what is given back. */
export const GUARDS_OF_LIMITS: readonly Guard[] = [
  {
    guard: 'trap 8: who is denied leaves the window',
    file: 'src/db/statements/claim-runs.ts',
    find: "removing: ' UNION ALL SELECT b.id FROM blocked b'",
    replace: "removing: ''",
    test: T08,
    name: 'what a claim denies is out of the window',
  },
  {
    guard: 'trap 9: giving back does not ask for the capacity',
    file: GATES,
    find: 'SET held = greatest(c.held - f.n, 0),\n  available',
    replace: 'SET held = CASE WHEN c.held - f.n > p.concurrency THEN -1 ELSE c.held - f.n END,\n  available',
    test: GATE_TESTS,
    name: 'a limit lowered while its slots are held',
  },
  {
    guard: 'trap 9: a counter above its capacity has no room, and owes none',
    file: 'src/db/statements/gate-arithmetic.ts',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    find: 'greatest(${capacity} - c.held, 0)',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    replace: '(${capacity} - c.held)',
    test: T08,
    name: 'a shard that holds more than its lowered share',
  },
  {
    guard: 'trap 9: slots are given back when the run leaves running',
    file: GATES,
    find: "AND x.status <> 'running' AND (x.held_gates",
    replace: 'AND (x.held_gates',
    test: T08,
    name: 'a step that goes on in hand gives nothing back',
  },
  {
    guard: 'trap 9: kept slots are given back once',
    file: GATES,
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    find: 'let_go AS (UPDATE ${s}.runs r SET held_gates = NULL',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    replace: 'let_go AS (UPDATE ${s}.runs r SET held_gates = held_gates',
    test: T08,
    name: 'what a cancelled run had kept is given back once',
  },
]
