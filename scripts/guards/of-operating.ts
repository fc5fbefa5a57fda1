import type { Guard } from './guard.ts'

const PAUSES = 'test/engine/pauses.test.ts'

/** Guards of what operators do: pauses. */
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
]
