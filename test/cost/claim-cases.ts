import { decideReceipts, dropUnborn, readAdmissions } from '../../src/db/statements/admit-runs.ts'
import { endCascades, followParents } from '../../src/db/statements/cascade.ts'
import { retakeKeys, retryRun } from '../../src/db/statements/change-runs.ts'
import { claimRuns, recoverClaim } from '../../src/db/statements/claim-runs.ts'
import { findEndings, judgeDeadlines } from '../../src/db/statements/deadlines.ts'
import { deliverSignal, forgetReceipt, readReceipt } from '../../src/db/statements/deliver-signals.ts'
import { endRequested, lockFamilies, requestCancel, tryLockFamilies } from '../../src/db/statements/end-runs.ts'
import { ensureLanes } from '../../src/db/statements/insert-runs.ts'
import { dropLapsedClaims, endSolitude, extendClaims, readClaimed, rescueLost } from '../../src/db/statements/keep-claims.ts'
import { loadChildren, loadInbox } from '../../src/db/statements/load-satellites.ts'
import { lockRuns } from '../../src/db/statements/lock-runs.ts'
import { lockOccupants, mergeSpawns } from '../../src/db/statements/merge-spawns.ts'
import { peekNext } from '../../src/db/statements/peek-next.ts'
import { promoteDue } from '../../src/db/statements/promote-due.ts'
import { readHistory } from '../../src/db/statements/read-history.ts'
import { readRun } from '../../src/db/statements/read-run.ts'
import {
  consumeSignals,
  creditParents,
  endClaims,
  parkParents,
  recheckWaits,
  releaseKeys,
  releaseKeysAgain,
  requireApplied,
} from '../../src/db/statements/settle-outcomes.ts'
import { hastenUpkeep, pruneEnded, pruneReceipts } from '../../src/db/statements/upkeep.ts'
import { DEFINITIONS, idOf, idsOf } from '../support/claim-world.ts'
import type { Case } from './claim-case.ts'
import {
  admission,
  asked,
  children,
  claimParams,
  environment,
  inMinutes,
  inserts,
  isNull,
  joined,
  keyed,
  merging,
  now,
  outcomes,
  parents,
  receipt,
  receipts,
  S,
  scope,
  taken,
  target,
  tenant,
  UNIQUES,
  WRITTEN_BY,
  waits,
} from './claim-params.ts'
import { gating } from './gate-cases.ts'
import { coordinating } from './topic-cases.ts'

const claiming: readonly Case[] = [
  { name: 'claim_runs', statement: claimRuns(S, claimParams), indexes: ['ready_order_key', 'runs_pkey'] },
  {
    name: 'claim_runs of one run',
    statement: claimRuns(S, { ...claimParams, limit: 1 }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'claim_runs of lost ones too, behind a lane, of one queue',
    statement: claimRuns(S, { ...claimParams, alone: true, queues: ['default'], laneCursor: 5 }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'claim_runs that finds none',
    statement: claimRuns(S, { ...claimParams, definitions: ['none'], versions: [1] }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'recover_claim',
    statement: recoverClaim(S, { claimId: idOf('claim', 1), satellites: 256, knownLanes: [] }),
    indexes: ['claims_pkey', 'runs_pkey'],
  },
  {
    name: 'promote_due',
    statement: promoteDue(S, { now: inMinutes(120), environment, limit: 100 }),
    indexes: ['runs_timer_idx'],
  },
  {
    name: 'promote_due with nothing due',
    statement: promoteDue(S, { now, environment, limit: 1_000 }),
    indexes: ['runs_timer_idx'],
  },
  {
    name: 'peek_next',
    statement: peekNext(S, { now, environment, definitions: DEFINITIONS, versions: [1, 1], queues: null }),
    indexes: ['claims_lease_idx', 'ready_order_key', 'runs_timer_idx'],
  },
  {
    name: 'rescue_lost',
    statement: rescueLost(S, { now: inMinutes(30), environment, limit: 50 }),
    indexes: ['claims_lease_idx', 'runs_pkey'],
  },
  {
    name: 'rescue_lost with nothing lost',
    statement: rescueLost(S, { now, environment, limit: 500 }),
    indexes: ['claims_lease_idx', 'runs_pkey'],
  },
  {
    name: 'drop_lapsed_claims',
    before: [rescueLost(S, { now: inMinutes(30), environment, limit: 100 })],
    statement: dropLapsedClaims(S, { now: inMinutes(30), environment, limit: 50 }),
    indexes: ['claims_lease_idx', 'runs_pkey'],
  },
  {
    name: 'extend_claims',
    statement: extendClaims(S, { now, claimIds: [idOf('claim', 1), idOf('claim', 2)], leaseMs: 3_600_000 }),
    indexes: ['claims_pkey'],
  },
  {
    name: 'read_claimed',
    statement: readClaimed(S, { ids: idsOf('running', 1, 100), claimIds: parents.concat(parents) }),
    indexes: ['runs_pkey'],
  },
  {
    name: 'end_solitude',
    statement: endSolitude(S, { claimIds: [idOf('claim', 1)], newClaimId: idOf('claim', 1) }),
    indexes: ['claims_pkey'],
  },
]

const settling: readonly Case[] = [
  { name: 'lock_runs', statement: lockRuns(S, { ids: idsOf('running', 1, 100) }), indexes: ['runs_pkey'] },
  {
    name: 'apply_outcomes',
    statement: outcomes(1, 100, 'done', 'completed'),
    indexes: ['claims_pkey', 'history_pkey', 'runs_pkey'],
  },
  {
    name: 'apply_outcomes of a machine',
    statement: outcomes(1, 100, 'next', 'pending', {
      steps: parents.concat(parents).map(() => 'second'),
      states: parents.concat(parents).map(() => '{}'),
    }),
    indexes: ['claims_pkey', 'history_pkey', 'runs_pkey'],
  },
  {
    name: 'apply_outcomes once more',
    before: [outcomes(1, 100, 'done', 'completed')],
    statement: outcomes(1, 100, 'done', 'completed'),
    indexes: ['claims_pkey', 'history_pkey', 'runs_pkey'],
  },
  {
    name: 'require_applied',
    before: [outcomes(1, 100, 'done', 'completed')],
    statement: requireApplied(S, { runId: idOf('running', 1), seq: 3 }),
    indexes: ['history_pkey'],
  },
  {
    name: 'credit_parents',
    before: [outcomes(1, 100, 'done', 'completed')],
    statement: creditParents(S, { now, ids: idsOf('running', 1, 100) }),
    indexes: ['history_pkey', 'runs_pkey'],
  },
  {
    name: 'park_parents',
    before: [joined, children],
    statement: parkParents(S, {
      now,
      ids: parents,
      needs: isNull(parents),
      failFasts: parents.map(() => false),
      cancelsStragglers: parents.map(() => false),
    }),
    indexes: ['runs_parent_idx', 'runs_pkey'],
  },
  {
    name: 'consume_signals',
    before: [outcomes(151, 200, 'done', 'completed')],
    statement: consumeSignals(S, { runIds: waits, signalIds: waits.map((_, n) => String(n + 1)) }),
    indexes: ['history_pkey', 'runs_pkey', 'signals_pkey|signals_inbox_idx'],
  },
  {
    name: 'recheck_waits',
    before: [outcomes(151, 200, 'wait', 'waiting')],
    statement: recheckWaits(S, { now, ids: waits, shownRunIds: [], shownSignalIds: [] }),
    indexes: ['runs_pkey', 'signals_inbox_idx'],
  },
  {
    name: 'release_keys',
    before: [outcomes(1, 100, 'done', 'completed')],
    statement: releaseKeys(S, { now, ids: idsOf('running', 1, 100) }),
    indexes: ['history_pkey', 'runs_pkey', 'uniques_run_idx'],
  },
  {
    name: 'end_claims',
    before: [outcomes(1, 100, 'done', 'completed')],
    statement: endClaims(S, { claimIds: [idOf('claim', 1)] }),
    indexes: ['claims_pkey', 'runs_pkey'],
  },
  {
    name: 'load_inbox',
    statement: loadInbox(S, { runId: idOf('waiting', 7), names: ['other'], afterId: '0', limit: 1_000 }),
    indexes: ['signals_inbox_idx'],
  },
  {
    name: 'load_children',
    statement: loadChildren(S, { parentId: idOf('parent', 1), joinSeq: 2, afterIndex: 0, limit: 1_000 }),
    indexes: ['runs_parent_idx'],
  },
]

const admitting: readonly Case[] = [
  {
    name: 'ensure_lanes',
    statement: ensureLanes(S, { environment, tenants: [tenant], queues: ['default'], definitions: ['charge'], versions: [1] }),
    indexes: [],
  },
  { name: 'insert_runs_fresh', statement: inserts({ freshIds: true }), indexes: ['runs_pkey'] },
  {
    name: 'insert_runs_fresh of runs that are there',
    before: [inserts({ freshIds: true })],
    statement: inserts({ freshIds: true }),
    indexes: ['runs_pkey'],
  },
  { name: 'insert_runs_plain', statement: inserts({}), indexes: [] },
  { name: 'insert_runs', before: [receipts, taken], statement: keyed, indexes: ['receipts_pkey', 'runs_pkey', UNIQUES] },
  { name: 'insert_runs of children', before: [joined], statement: children, indexes: ['receipts_pkey', 'runs_pkey', UNIQUES] },
  { name: 'take_keys', before: [receipts], statement: taken, indexes: ['receipts_pkey', 'runs_pkey'] },
  {
    name: 'lock_occupants',
    statement: lockOccupants(S, {
      environment,
      tenants: merging.tenants,
      scopes: merging.uniqueScopes,
      tokens: merging.uniqueTokens,
    }),
    indexes: ['runs_pkey', UNIQUES],
  },
  {
    name: 'merge_spawns',
    before: [receipts],
    statement: mergeSpawns(S, merging),
    indexes: ['receipts_pkey', 'runs_pkey', 'ready_order_key', UNIQUES],
  },
  {
    name: 'merge_spawns in a caller’s transaction',
    before: [receipts],
    statement: mergeSpawns(S, { ...merging, leavesRoom: true }),
    indexes: ['receipts_pkey', 'runs_pkey', 'ready_order_key', UNIQUES],
  },
  {
    name: 'drop_unborn',
    before: [taken],
    statement: dropUnborn(S, { ids: admission.ids }),
    indexes: ['runs_pkey', 'uniques_run_idx'],
  },
  { name: 'write_receipts', statement: receipts, indexes: [] },
  {
    name: 'decide_receipts',
    before: [receipts, taken, keyed],
    statement: decideReceipts(S, admission),
    indexes: ['receipts_pkey', 'runs_pkey', UNIQUES],
  },
  {
    name: 'read_admissions',
    before: [receipts, taken, keyed],
    statement: readAdmissions(S, admission),
    indexes: ['receipts_pkey', 'runs_pkey', UNIQUES],
  },
  {
    name: 'deliver_signal by id',
    statement: deliverSignal(S, { ...scope, ...asked, runId: target.id }),
    indexes: ['runs_pkey', 'signals_dedup_key'],
  },
  {
    name: 'deliver_signal by key',
    statement: deliverSignal(S, { ...scope, ...asked, key: 'w50' }),
    indexes: ['runs_pkey', 'signals_dedup_key', 'uniques_token_idx'],
  },
  {
    name: 'deliver_signal by definition and key, under a receipt',
    statement: deliverSignal(S, { ...scope, ...asked, key: 'w50', definition: 'charge', nonce: WRITTEN_BY, receiptKey: 'k11' }),
    indexes: ['receipts_pkey', 'runs_pkey', 'signals_dedup_key'],
  },
  { name: 'read_receipt', statement: readReceipt(S, receipt), indexes: ['receipts_pkey'] },
  { name: 'forget_receipt', statement: forgetReceipt(S, receipt), indexes: ['receipts_pkey'] },
]

/** A cancellation of those runs as far as it goes before the run is ended. */
const requested = (ids: readonly string[]) => [lockFamilies(S, { ids }), requestCancel(S, { ...scope, ids, cancellation: '{}' })]
/** The same to its end. */
const cancelled = (ids: readonly string[]) => [...requested(ids), endRequested(S, { now, ids })]

const ending: readonly Case[] = [
  { name: 'lock_families', statement: lockFamilies(S, { ids: [idOf('running', 7)] }), indexes: ['runs_pkey'] },
  { name: 'try_lock_families', statement: tryLockFamilies(S, { ids: idsOf('due', 1, 500) }), indexes: ['runs_pkey'] },
  {
    name: 'request_cancel',
    statement: requestCancel(S, { ...scope, ids: [target.id], cancellation: '{}' }),
    indexes: ['runs_pkey'],
  },
  {
    name: 'end_requested',
    before: requested([target.id]),
    statement: endRequested(S, { now, ids: [target.id] }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  {
    name: 'end_requested of many that are due',
    before: requested(idsOf('due', 1, 500)),
    statement: endRequested(S, { now, ids: idsOf('due', 1, 500) }),
    indexes: ['ready_order_key', 'runs_pkey'],
  },
  { name: 'find_endings', statement: findEndings(S, { now, environment, limit: 500 }), indexes: ['runs_deadline_idx'] },
  { name: 'judge_deadlines', statement: judgeDeadlines(S, { now, ids: idsOf('due', 1, 500) }), indexes: ['runs_pkey'] },
  { name: 'follow_parents', statement: followParents(S, { now, ids: idsOf('due', 1, 500) }), indexes: ['runs_pkey'] },
  { name: 'end_cascades', statement: endCascades(S, { parentIds: [target.id] }), indexes: [] },
]

const changing: readonly Case[] = [
  {
    name: 'retake_keys',
    before: cancelled([target.id]),
    statement: retakeKeys(S, { ...target, ids: [target.id] }),
    indexes: ['runs_pkey'],
  },
  {
    name: 'retry_run',
    before: cancelled([target.id]),
    statement: retryRun(S, { ...target, maxAttempts: null }),
    indexes: ['runs_pkey', UNIQUES],
  },
  {
    name: 'release_keys_again',
    before: cancelled([target.id]),
    statement: releaseKeysAgain(S, { now, ids: [target.id] }),
    indexes: ['runs_pkey', 'uniques_run_idx'],
  },
  { name: 'read_run', statement: readRun(S, target), indexes: ['runs_pkey'] },
  {
    name: 'read_history',
    statement: readHistory(S, { environment, tenant, id: idOf('finished', 400), afterSeq: -1, limit: 51 }),
    indexes: ['history_pkey', 'runs_pkey'],
  },
]

/** Rows pruned by one statement. */
export const pruning = (limit: number): Case => ({
  name: `prune_ended of ${limit}`,
  statement: pruneEnded(S, { now: inMinutes(60 * 24 * 30), environment, limit, minRetentionSeconds: 86_400 }),
  indexes: ['history_pkey', 'runs_list_idx', 'runs_pkey', 'signals_inbox_idx', 'uniques_run_idx'],
})

const keeping: readonly Case[] = [
  pruning(400),
  {
    name: 'prune_receipts',
    statement: pruneReceipts(S, { now: inMinutes(60 * 24 * 30), environment, limit: 50 }),
    indexes: ['receipts_expires_idx'],
  },
  { name: 'hasten_upkeep', statement: hastenUpkeep(S, { now, environment }), indexes: ['receipts_expires_idx'] },
]

export const cases: readonly Case[] = [
  ...claiming,
  ...gating,
  ...settling,
  ...coordinating,
  ...admitting,
  ...ending,
  ...changing,
  ...keeping,
]
