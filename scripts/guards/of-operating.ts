import type { Guard } from './guard.ts'

const PARTITIONED = 'test/engine/partitioned.test.ts'
const PAUSES = 'test/engine/pauses.test.ts'

/** Guards of what operators do: pauses, partitions. */
export const GUARDS_OF_OPERATING: readonly Guard[] = [
  {
    guard: 'whoever makes a lane and whoever pauses it wait for each other',
    file: 'src/db/statements/change-pauses.ts',
    find: '() => `SELECT pg_advisory_xact_lock(',
    replace: '() => `SELECT pg_advisory_xact_lock_shared(',
    test: PAUSES,
    name: 'a lane that is made while its queue is being paused is paused',
  },
  {
    guard: 'a paused run does not go on inside its invocation',
    file: 'src/db/statements/apply-outcomes.ts',
    find: "WHEN k.status = 'running' AND r.hold IS NOT NULL THEN 'pending' ELSE k.status END",
    replace: 'ELSE k.status END',
    test: PAUSES,
    name: 'while it runs: its step ends',
  },
  {
    guard: 'slots: a kept one outlasts a claim that is given back unstarted',
    file: 'src/db/flush.ts',
    find: " || (kind === 'release' && run.heldGates.length > 0)",
    replace: '',
    test: 'test/engine/kept-slots.test.ts',
    name: 'one outlasts a claim that is given back unstarted',
  },
  {
    guard: 'of two rows at one place, a claim writes the one it locked',
    file: 'src/db/statements/places.ts',
    find: ')) IS TRUE',
    replace: ')) IS NOT NULL',
    test: PARTITIONED,
    name: 'a claim of one takes one',
  },
  {
    guard: 'of two rows at one place, the one that is due becomes due',
    file: 'src/db/statements/places.ts',
    find: ')) IS TRUE',
    replace: ')) IS NOT NULL',
    test: PARTITIONED,
    name: 'what becomes due is what is due',
  },
  {
    guard: 'of two rows at one place, the one that is over is deleted',
    file: 'src/db/statements/places.ts',
    find: ')) IS TRUE',
    replace: ')) IS NOT NULL',
    test: PARTITIONED,
    name: 'what is deleted is what is over',
  },
  {
    guard: 'of two rows at one place, each is asked for its own gates',
    file: 'src/db/statements/claim-gates.ts',
    find: 'x.ctid = f.place AND x.id = f.id LIMIT 1',
    replace: 'x.ctid = f.place LIMIT 1',
    test: PARTITIONED,
    name: 'a claim asks each run for its own gates',
  },
]
