import { blockDenied } from '../../src/db/statements/block-denied.ts'
import { claimRuns } from '../../src/db/statements/claim-runs.ts'
import {
  callRates,
  handOver,
  handOverLate,
  keepGates,
  mintGates,
  promoteGates,
  releaseGates,
  releaseKept,
  switchGates,
} from '../../src/db/statements/gates.ts'
import { dropIdleGates, lockGates, readBlockedGates } from '../../src/db/statements/heal-gates.ts'
import { GATE, idsOf, RATED } from '../support/claim-world.ts'
import type { Case } from './claim-case.ts'
import { claimParams, environment, now, outcomes, S } from './claim-params.ts'

/** What runs with gates add to the hot path, and what upkeep does for them. */
export const gating: readonly Case[] = [
  {
    name: 'claim_gated_runs',
    statement: claimRuns(S, { ...claimParams, admits: 'all' }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'claim_open_gates',
    statement: claimRuns(S, { ...claimParams, admits: 'open' }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'block_denied',
    statement: blockDenied(S, { now, environment, lanes: [1, 2], limit: 200 }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'release_gates',
    before: [outcomes(1, 100, 'done', 'completed')],
    statement: releaseGates(S, { now, ids: idsOf('running', 1, 100) }),
    indexes: ['history_pkey', 'runs_pkey'],
  },
  {
    name: 'mint_gates',
    statement: mintGates(S, { environment, gates: [GATE, 'key\u001facme\u001fnew'] }),
    indexes: [],
  },
  {
    name: 'promote_gates',
    statement: promoteGates(S, { now, environment, limit: 100 }),
    indexes: ['runs_blocked_idx', 'runs_pkey'],
  },
  {
    name: 'keep_gates',
    before: [outcomes(1, 100, 'next', 'pending')],
    statement: keepGates(S, { ids: idsOf('running', 1, 100) }),
    indexes: ['history_pkey', 'runs_pkey'],
  },
  { name: 'release_kept', statement: releaseKept(S, { now, ids: idsOf('running', 1, 100) }), indexes: ['runs_pkey'] },
  {
    name: 'hand_over',
    before: [outcomes(1, 100, 'done', 'completed'), releaseGates(S, { now, ids: idsOf('running', 1, 100) })],
    statement: handOver(S, { environment, gates: [GATE] }),
    indexes: ['runs_blocked_idx', 'runs_pkey'],
  },
  {
    name: 'hand_over_late',
    before: [outcomes(1, 100, 'done', 'completed'), releaseGates(S, { now, ids: idsOf('running', 1, 100) })],
    statement: handOverLate(S, { environment, gates: [GATE] }),
    indexes: ['runs_blocked_idx', 'runs_pkey'],
  },
  { name: 'call_rates', statement: callRates(S, { now, environment, gates: [GATE, RATED] }), indexes: ['runs_blocked_idx'] },
  {
    name: 'switch_gates',
    before: [outcomes(1, 100, 'next', 'pending'), releaseGates(S, { now, ids: idsOf('running', 1, 100) })],
    statement: switchGates(S, { ids: idsOf('running', 1, 100), gates: idsOf('running', 1, 100).map(() => RATED), units: [] }),
    indexes: ['history_pkey', 'runs_pkey'],
  },
  { name: 'lock_gates', statement: lockGates(S, { now, environment, limit: 1_000 }), indexes: [] },
  {
    name: 'read_blocked_gates',
    statement: readBlockedGates(S, { now, environment, limit: 1_000 }),
    indexes: ['runs_blocked_idx'],
  },
  {
    name: 'drop_idle_gates',
    before: [lockGates(S, { now, environment, limit: 1_000 })],
    statement: dropIdleGates(S, { now, environment, limit: 1_000 }),
    indexes: ['runs_blocked_idx'],
  },
]
