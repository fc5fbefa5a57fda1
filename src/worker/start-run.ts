import type { AnyDefinition } from '../core/definition.ts'
import { limitOf } from '../core/gate.ts'
import type { LimitPolicy } from '../core/limit.ts'
import type { ClaimedRun, CommittedOutcome } from '../core/store.ts'
import { asContinuation, ended, released } from './committed.ts'
import { executeStep } from './execute.ts'
import type { InHand } from './hand.ts'
import type { InvocationParams } from './invocation-params.ts'
import { toLeaseMs } from './lease.ts'
import { loadSatellites } from './satellites.ts'

/** Losses alone after which a run is ended as lost. A first loss among others is free: it may be a neighbour's doing. */
const MAX_LONELY_LOSSES = 3
/** Steps that go on inside one claim before the run lets others have a turn. */
const MAX_INLINE_STEPS = 100
/** Left for the last flush when an invocation stops claiming, in milliseconds: one slow round trip. */
export const FLUSH_RESERVE_MS = 1_000

/** What starting a run asks of the invocation that holds it. */
export interface Stage {
  readonly params: InvocationParams
  readonly stopping: boolean
  remainingMs(): number
  /** Takes the outcome of a run to be committed. */
  post(held: InHand, outcome: CommittedOutcome): void
  heartbeat(run: ClaimedRun, leaseMs: number): Promise<void>
  /** The database failed for good. */
  fail(error: unknown): void
}

/** Runs the step of a run in hand, or ends it where no step may be run; its outcome is posted, at once where the handler is. */
export function startRun(stage: Stage, held: InHand): void {
  const { run } = held
  const { registry, store } = stage.params
  const definition = registry.find(run.definition, run.version)
  if (stage.stopping || definition === undefined || isTooLate(stage, definition)) stage.post(held, released(run))
  else if (run.cancelRequested) stage.post(held, ended(run, 'cancelled'))
  else if (isLost(run)) stage.post(held, ended(run, 'lost'))
  else if (!run.inboxMore && !run.childrenMore) execute(stage, held, run, definition)
  else {
    const loading = loadSatellites(store, run)
    loading.then((whole) => execute(stage, held, whole, definition)).catch((error) => stage.fail(error))
  }
}

/** How much later than asked a claim may be answered and its runs still be started, in milliseconds: a database that was cold. */
const LATE_REPLY_MS = 5_000

/** Claimed with time enough to end, but the answer took so long that it is no more. */
function isTooLate(stage: Stage, { timeoutMs }: AnyDefinition): boolean {
  return timeoutMs > stage.remainingMs() - FLUSH_RESERVE_MS + LATE_REPLY_MS
}

/** A run that agreed on a number of replays was made uncertain when they were used up. */
function isLost({ lonelyLosses, policy }: ClaimedRun): boolean {
  return lonelyLosses >= MAX_LONELY_LOSSES && policy.maxReplays === undefined
}

/** `run`: what is held, with all that belongs to it. */
function execute(stage: Stage, held: InHand, run: ClaimedRun, definition: AnyDefinition): void {
  const { registry, store, surroundings, random } = stage.params
  const executed = (outcome: CommittedOutcome): void =>
    stage.post(held, mayContinue(stage, held, definition, outcome) ? asContinuation(outcome) : outcome)
  const outcome = executeStep({
    run,
    definition,
    registry,
    surroundings,
    abort: held.abort,
    remainingMs: () => stage.remainingMs(),
    heartbeat: async (extendBy) => stage.heartbeat(run, toLeaseMs(extendBy, definition)),
    random,
    findRuns: (tenant, targets) => store.findRuns(tenant, targets),
  })
  if (outcome instanceof Promise) outcome.then(executed).catch((error) => stage.fail(error))
  else executed(outcome)
}

/**
 * A `next` without delay goes on in here, on the claim it holds: commit first, then the next step. Not where that step has to be admitted:
 * each is charged to a rate, and other gates than those it holds are asked by a claim.
 */
function mayContinue(stage: Stage, held: InHand, definition: AnyDefinition, outcome: CommittedOutcome): boolean {
  const { limits } = stage.params.registry
  const isKept = outcome.slots === 'keep'
  if (outcome.slots !== undefined && !isKept) return false
  if (outcome.run.gates.some((gate) => isCharged(limits.get(limitOf(gate)), isKept))) return false
  if (outcome.kind !== 'next' || (outcome.delayMs ?? 0) > 0 || outcome.yields || stage.stopping) return false
  return held.inlineSteps < MAX_INLINE_STEPS && definition.timeoutMs <= stage.remainingMs() - FLUSH_RESERVE_MS
}

/** Slots that are kept are not charged again, whatever else their limit asks. */
function isCharged(policy: LimitPolicy | undefined, isKept: boolean): boolean {
  return policy?.rate !== undefined && !(isKept && policy.concurrency !== undefined)
}
