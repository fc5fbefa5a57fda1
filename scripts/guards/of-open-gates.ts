import type { Guard } from './guard.ts'

const OPEN = 'src/db/statements/claim-open-gates.ts'
const TESTS = 'test/engine/open-gates.test.ts'

/** Guards of claims that ask no more than whether gates are wide open. */
export const GUARDS_OF_OPEN_GATES: readonly Guard[] = [
  {
    guard: 'a gate with room for some only is not wide open',
    file: OPEN,
    find: "hasRoom('d.n', ",
    replace: "hasRoom('1', ",
    test: TESTS,
    name: 'what more ask for than there is room is left',
  },
  {
    guard: 'a gate with tokens for some only is not wide open',
    file: OPEN,
    find: "'d.n', NOW)",
    replace: "'1', NOW)",
    test: TESTS,
    name: 'tokens are no fewer than what is asked for',
  },
  {
    guard: 'a gate that a heavy run asks is not wide open',
    file: OPEN,
    find: 'WHERE NOT d.special AND ',
    replace: 'WHERE ',
    test: TESTS,
    name: 'who weighs more, or has kept a slot',
  },
  {
    guard: 'a gate where somebody waits is not wide open',
    file: OPEN,
    find: ', ENVIRONMENT)} IS NULL',
    replace: ', ENVIRONMENT)} IS NULL OR true',
    test: TESTS,
    name: 'where somebody waits nobody is let in past them',
  },
  {
    guard: 'a counter that others hold does not shut its gate',
    file: OPEN,
    find: 'SELECT true FROM others o WHERE o.shut AND NOT o.missing LIMIT 1',
    replace: 'SELECT true FROM others o LIMIT 1',
    test: TESTS,
    name: 'a counter that others hold proves nothing',
  },
  {
    guard: 'a claim prefers the counter that its transaction gave back to',
    file: OPEN,
    find: 'coalesce(c.xmin = pg_current_xact_id_if_assigned()::xid, false) DESC, ',
    replace: '',
    test: TESTS,
    name: 'takes from the counter that it has given back to',
  },
  {
    guard: 'a claim prefers the emptiest counter, so that no two stay in one',
    file: OPEN,
    find: '`c.held, coalesce(c.xmin',
    replace: '`coalesce(c.xmin',
    test: TESTS,
    name: 'leave it to one of them',
  },
  {
    guard: 'a claim after one that left runs asks all gates',
    file: 'src/db/claiming.ts',
    find: 'lanes.onGuard = CLAIMS_ON_GUARD',
    replace: 'lanes.onGuard = 0',
    test: TESTS,
    name: 'what more ask for than there is room is left',
  },
  {
    guard: 'a run that asks unlike amounts of slots and tokens finds the shard that has both',
    file: 'src/db/statements/claim-gates.ts',
    find: 'p.shards = 1 OR c.slots_asked',
    replace: 'p.shards = 1 OR false AND c.slots_asked',
    test: 'test/engine/limits-changed-live.test.ts',
    name: 'has its turn, before and behind light ones',
  },
  {
    guard: 'a run is promoted only when one counter has all that a claim asks for it',
    file: 'src/db/statements/gates.ts',
    find: 'AND y.heaviest <= room.best`',
    replace: '`',
    test: 'test/engine/limits-changed-live.test.ts',
    name: 'has its turn, before and behind light ones',
  },
  {
    guard: 'shards that a limit has been given are made for those who are blocked',
    file: 'src/db/upkeep.ts',
    find: 'short.length > 0 ?',
    replace: 'short.length > 1_000_000 ?',
    test: 'test/engine/limits-changed-live.test.ts',
    name: 'is let in with the next tick when it is given more',
  },
  {
    guard: 'they are not while one shard holds what all of them have',
    file: 'src/db/statements/heal-gates.ts',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    find: ' AND coalesce(sum(c.held) <= sum(${capacity}), true)',
    replace: '',
    test: 'test/engine/limits-changed-live.test.ts',
    name: 'makes no room for who waits, as long as',
  },
]
