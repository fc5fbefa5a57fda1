import type { Guard } from './guard.ts'

const CROWDS = 'src/db/statements/block-denied.ts'
const TESTS = 'test/engine/block-denied.test.ts'

/** Guards of what leaves the window in bulk. */
export const GUARDS_OF_CROWDS: readonly Guard[] = [
  {
    guard: 'a counter that others hold has nobody blocked in bulk',
    file: CROWDS,
    find: ' FOR UPDATE OF c SKIP LOCKED',
    replace: '',
    test: TESTS,
    name: 'a counter that others hold proves nothing',
  },
  {
    guard: 'a run that others hold is not waited for',
    file: CROWDS,
    find: 'FOR NO KEY UPDATE OF r SKIP LOCKED',
    replace: '',
    test: TESTS,
    name: 'who is in the hands of others is passed over',
  },
  {
    guard: 'a slot that is kept is not asked for in bulk',
    file: CROWDS,
    find: ' AND (f.held_gates IS NULL OR g.gate <> ALL (f.held_gates))',
    replace: '',
    test: TESTS,
    name: 'who has kept his slot asks for nothing',
  },
  {
    guard: 'a shard elsewhere that has room is looked for in bulk',
    file: CROWDS,
    find: 'c.shard <> ALL (p.seen)',
    replace: 'false',
    test: TESTS,
    name: 'a limit in shards is full when all of them are',
  },
  {
    guard: 'a shard that is not there yet has room',
    file: CROWDS,
    find: ' < p.shards) = p.shards',
    replace: ' < p.shards) <= p.shards',
    test: TESTS,
    name: 'a limit in shards is full when all of them are',
  },
  {
    guard: 'a heavy run that waits is ahead of the light ones behind it, in bulk too',
    file: CROWDS,
    find: '(a.held > 0 OR a.tokens > 0)',
    replace: 'false',
    test: TESTS,
    name: 'by what each weighs',
  },
  {
    guard: 'who is blocked for tokens in bulk has his turn noted',
    file: CROWDS,
    find: 'FROM blocked b WHERE b.tokens > 0',
    replace: 'FROM blocked b WHERE b.tokens < 0',
    test: TESTS,
    name: 'for tokens, and the next of them is noted',
  },
  {
    guard: 'a window crowded with denied runs is cleared in bulk',
    file: 'src/db/claiming.ts',
    find: '&& denied * 2 >= request.limit',
    replace: '&& false',
    test: 'test/engine/crowded-window.test.ts',
    name: 'behind one saturated key',
  },
  {
    guard: 'it goes with no other claim',
    file: 'src/db/claiming.ts',
    find: ' && denied * 2 >= request.limit',
    replace: '',
    test: TESTS,
    name: 'it goes with the claim behind one that was denied most',
  },
]
