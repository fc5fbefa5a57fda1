import type { Statement } from '../core/database.ts'
import type { CommittedOutcome, FlushRequest, NewRun } from '../core/store.ts'
import type { StoreContext } from './context.ts'
import { awaitedRuns, statementsOfMessages, statementsOfStragglers, statementsOfTopics } from './flush-topics.ts'
import { column, GATE_SEPARATOR, groupByLane, type Parentage, statementsForNewLanes, toInsertParams } from './inserting.ts'
import { statementsForGates, statementsForKeys, statementsForUnborn } from './spawning.ts'
import { type ApplyOutcomesParams, applyOutcomes } from './statements/apply-outcomes.ts'
import { handOver, keepGates, mintGates, releaseGates, switchGates } from './statements/gates.ts'
import { holdMismatched } from './statements/hold-runs.ts'
import { insertRuns } from './statements/insert-runs.ts'
import { lockRuns } from './statements/lock-runs.ts'
import { planOnce } from './statements/plan-once.ts'
import { noteUncertainty } from './statements/resolve-run.ts'
import {
  consumeSignals,
  creditParents,
  endClaims,
  parkParents,
  recheckWaits,
  releaseKeys,
  requireApplied,
} from './statements/settle-outcomes.ts'
import { UNIT_SEPARATOR } from './statements/statement.ts'

/**
 * A flush as statements, in the order that the engine's rules ask for: lock own rows and parents in one order, apply, children and
 * their barrier, credit of parents, inbox, slots and who inherits them, keys, claims. A statement that no outcome needs is left out.
 */
export function statementsOfFlush(context: StoreContext, request: FlushRequest, nonce: string): Statement[] {
  const outcomes = sortById(request.outcomes)
  const { schema } = context
  const ids = outcomes.map((outcome) => outcome.run.id)
  if (outcomes.length === 0) return request.endedClaims.length > 0 ? [endClaims(schema, { claimIds: request.endedClaims })] : []
  return [
    ...(outcomes.some(({ commit }) => commit.length > 0) ? [] : [planOnce(schema, {})]),
    ...lock(context, outcomes),
    applyOutcomes(schema, toApplyParams(context, outcomes)),
    ...uncertainties(context, outcomes),
    ...mismatches(context, outcomes),
    ...usersStatements(context, outcomes),
    ...joins(context, outcomes, nonce),
    ...(outcomes.some((outcome) => outcome.run.parentId !== null) ? [creditParents(schema, { now: context.now(), ids })] : []),
    ...statementsOfTopics(context, outcomes),
    ...inboxes(context, outcomes),
    ...statementsOfMessages(context, outcomes),
    ...statementsOfStragglers(context, outcomes),
    ...gates(context, outcomes),
    ...(outcomes.some(holdsEntries) ? [releaseKeys(schema, { now: context.now(), ids })] : []),
    ...(request.endedClaims.length > 0 ? [endClaims(schema, { claimIds: request.endedClaims })] : []),
  ]
}

function holdsEntries({ run }: CommittedOutcome): boolean {
  return run.key !== null || run.policy.unique !== undefined
}

function sortById(outcomes: readonly CommittedOutcome[]): readonly CommittedOutcome[] {
  return [...outcomes].sort((left, right) => (left.run.id < right.run.id ? -1 : left.run.id > right.run.id ? 1 : 0))
}

/**
 * Rows that another batch locks together with further ones are locked in the one order, before anything is written: parents, the
 * children of parents, runs that are waited for, and runs that may be parents or may have waited themselves, once there are two of them (neither
 * comes before a run's second visit). All other own rows are nobody else's second lock, so that a batch of jobs needs no statement for it.
 */
function lock(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const parents = outcomes.flatMap((outcome) => (outcome.run.parentId === null ? [] : [outcome.run.parentId]))
  const awaited = awaitedRuns(outcomes)
  const possibleSeconds = outcomes.filter(({ run }) => run.visit > 1 || run.awaited)
  if (parents.length === 0 && awaited.length === 0 && possibleSeconds.length < 2) return []
  const ids = [...new Set([...outcomes.map((outcome) => outcome.run.id), ...parents, ...awaited])]
  return [lockRuns(context.schema, { ids })]
}

function uncertainties(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const reported = outcomes.flatMap(({ run, uncertainty }) => (uncertainty === null ? [] : [{ id: run.id, uncertainty }]))
  if (reported.length === 0) return []
  const [ids, reports] = [reported.map(({ id }) => id), reported.map(({ uncertainty }) => uncertainty)]
  return [noteUncertainty(context.schema, { now: context.now(), ids, reports })]
}

function mismatches(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const held = outcomes.flatMap(({ run, mismatch }) => (mismatch === null ? [] : [{ id: run.id, mismatch }]))
  if (held.length === 0) return []
  const [ids, details] = [held.map(({ id }) => id), held.map(({ mismatch }) => mismatch)]
  return [holdMismatched(context.schema, { now: context.now(), ids, details })]
}

/** The user's own statements, behind a statement that fails the batch unless this very transaction applied their outcome. */
function usersStatements(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  return outcomes.flatMap(({ run, commit }) =>
    commit.length === 0
      ? []
      : [
          requireApplied(context.schema, { runId: run.id, seq: run.seq + 1 }),
          // no name: what the user sends is not kept as a prepared statement of ours
          ...commit.map(({ sql, params = [] }) => ({ name: '', text: sql, params })),
        ],
  )
}

function toApplyParams(context: StoreContext, outcomes: readonly CommittedOutcome[]): ApplyOutcomesParams {
  return {
    now: context.now(),
    ids: outcomes.map((outcome) => outcome.run.id),
    seqs: outcomes.map((outcome) => outcome.run.seq),
    claimIds: outcomes.map((outcome) => outcome.run.claimId),
    outcomes: outcomes.map((outcome) => outcome.kind),
    statuses: outcomes.map((outcome) => outcome.status),
    fromSteps: outcomes.map((outcome) => outcome.run.step),
    steps: column(outcomes, (outcome) => outcome.step),
    states: column(outcomes, (outcome) => outcome.state),
    results: column(outcomes, (outcome) => outcome.result),
    errors: column(outcomes, (outcome) => outcome.error),
    delaysMs: column(outcomes, (outcome) => outcome.delayMs),
    untils: column(outcomes, (outcome) => outcome.until),
    awaits: column(outcomes, (outcome) => outcome.awaits?.join(UNIT_SEPARATOR) ?? null),
    elapsedMs: outcomes.map((outcome) => outcome.elapsedMs),
    attempts: outcomes.map((outcome) => outcome.attempt),
    payloadBytes: column(outcomes, (outcome) => outcome.payloadBytes),
  }
}

/** Children come to be and their parent's barrier with them, in the commit that parks it. */
function joins(context: StoreContext, outcomes: readonly CommittedOutcome[], nonce: string): Statement[] {
  const parked = outcomes.filter((outcome) => outcome.join !== null)
  if (parked.length === 0) return []
  const children: NewRun[] = []
  const parents: Parentage[] = []
  for (const { run, join } of parked) {
    join?.children.forEach((child, index) => {
      children.push(child)
      parents.push({ parentId: run.id, joinSeq: run.seq + 1, index })
    })
  }
  const ids = parked.map((outcome) => outcome.run.id)
  return [
    ...(children.length > 0
      ? [
          ...statementsForNewLanes(context, groupByLane(children).lanes),
          ...statementsForGates(context, children),
          ...statementsForKeys(context, children, { nonce, parents }),
          insertRuns(context.schema, toInsertParams(context, children, { nonce, parents })),
          ...statementsForUnborn(context, children),
        ]
      : []),
    parkParents(context.schema, {
      now: context.now(),
      ids,
      needs: parked.map(({ join }) => join?.need ?? null),
      failFasts: parked.map(({ join }) => join?.failFast === true),
      cancelsStragglers: parked.map(({ join }) => join?.cancelsStragglers === true),
    }),
  ]
}

/**
 * What a step was shown because it had waited for it is consumed by its progress, waiting again included. A wait that keeps leaves what
 * it waits for again, to gather several names, and is not woken by what it has seen. A failed step keeps all: it may be retried by hand.
 */
function inboxes(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const shown = outcomes.flatMap(({ run, keeps, awaits }) =>
    run.inbox.flatMap(({ id, name }) =>
      run.awaits.includes(name) ? [{ runId: run.id, id, kept: keeps && awaits?.includes(name) === true }] : [],
    ),
  )
  const consumed = shown.filter((signal) => !signal.kept)
  const waiting = outcomes.filter((outcome) => outcome.kind === 'wait').map((outcome) => outcome.run.id)
  return [
    ...(consumed.length > 0
      ? [
          consumeSignals(context.schema, {
            runIds: consumed.map((signal) => signal.runId),
            signalIds: consumed.map((signal) => signal.id),
          }),
        ]
      : []),
    ...(waiting.length > 0
      ? [
          recheckWaits(context.schema, {
            now: context.now(),
            ids: waiting,
            shownRunIds: shown.map((signal) => signal.runId),
            shownSignalIds: shown.map((signal) => signal.id),
          }),
        ]
      : []),
  ]
}

function gates(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const passed = outcomes.filter((outcome) => outcome.run.gates.length > 0)
  const ids = passed.map((outcome) => outcome.run.id)
  const held = [...new Set(passed.flatMap((outcome) => outcome.run.gates))].sort()
  const changes = outcomes.flatMap(({ run, slots }) =>
    slots === undefined || slots === 'keep' ? [] : [{ id: run.id, ...slots }],
  )
  if (held.length === 0 && changes.length === 0) return []
  const { schema, environment } = context
  // one that is given back unstarted goes on keeping what it had kept: this claim has charged nothing for it
  const keeping = outcomes
    .filter(({ slots, kind, run }) => slots === 'keep' || (kind === 'release' && run.heldGates.length > 0))
    .map(({ run }) => run.id)
  const wanted = changes.flatMap((change) => change.gates ?? [])
  return [
    ...(wanted.length > 0 ? [mintGates(schema, { environment, gates: wanted })] : []),
    ...(keeping.length > 0 ? [keepGates(schema, { ids: keeping })] : []),
    ...(held.length > 0 ? [releaseGates(schema, { now: context.now(), ids })] : []),
    ...(changes.length > 0
      ? [
          switchGates(schema, {
            ids: changes.map(({ id }) => id),
            gates: changes.map((change) => change.gates?.join(GATE_SEPARATOR) ?? null),
            units: changes.map((change) => change.units?.join(',') ?? null),
          }),
        ]
      : []),
    ...(held.length > 0 ? [handOver(schema, { environment, gates: held })] : []),
  ]
}
