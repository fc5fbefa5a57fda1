/** Outcomes that no handler returned: runs given back, ended or refused by the engine, and runs that go on. */
import type { RunError } from '../core/run-error.ts'
import type { ClaimedRun, CommittedOutcome } from '../core/store.ts'
import { attemptOf } from './context.ts'

/** The run goes on in this invocation, on the claim it holds: the same commit, but it stays ours. */
export function asContinuation(outcome: CommittedOutcome): CommittedOutcome {
  return { ...outcome, kind: 'continue', status: 'running', delayMs: null }
}

/** Given back untouched: it was claimed and never started. */
export function released(run: ClaimedRun): CommittedOutcome {
  return {
    run,
    kind: 'release',
    status: 'pending',
    step: null,
    state: null,
    payloadBytes: null,
    result: null,
    error: null,
    delayMs: null,
    until: null,
    awaits: null,
    join: null,
    elapsedMs: 0,
    attempt: attemptOf(run),
    keeps: false,
    yields: false,
    messages: [],
    commit: [],
    uncertainty: null,
    mismatch: null,
  }
}

/** The first pause of a run that is held, in milliseconds; `hold_mismatched` makes later ones longer. */
const HELD_MS = 30_000

/** Held, because what is stored of it does not fit this build's code: no attempt, and not in anybody's way. */
export function mismatched(run: ClaimedRun, mismatch: string): CommittedOutcome {
  const error: RunError = { code: 'mismatch', message: mismatch }
  return { ...released(run), kind: 'hold', delayMs: HELD_MS, error: JSON.stringify(error), mismatch }
}

/** Ends a run that must not be started again: cancelled meanwhile, or killed its host too often. */
export function ended(run: ClaimedRun, cause: 'cancelled' | 'lost'): CommittedOutcome {
  const error: RunError =
    cause === 'cancelled'
      ? { code: 'cancelled', message: 'The run was cancelled.', cause }
      : {
          code: 'lost',
          message: `The host of this run went away ${run.losses} times while it was running, without an outcome. It may have run out of memory or time: see what step "${run.step}" needs.`,
          cause,
        }
  const base = released(run)
  return {
    ...base,
    kind: cause === 'cancelled' ? 'cancel' : 'fail',
    status: cause === 'cancelled' ? 'cancelled' : 'failed',
    error: JSON.stringify(error),
    attempt: run.failures + run.losses,
  }
}

/** The run as it is after a committed `continue`: in the next step, with nothing of the wait that led to this one. */
export function continued(outcome: CommittedOutcome): ClaimedRun {
  const { run } = outcome
  return {
    ...run,
    seq: run.seq + 1,
    visit: run.visit + 1,
    step: outcome.step ?? run.step,
    state: outcome.state === null ? run.state : JSON.parse(outcome.state),
    payloadBytes: outcome.payloadBytes ?? run.payloadBytes,
    failures: 0,
    losses: 0,
    lonelyLosses: 0,
    snoozes: 0,
    awaits: [],
    timedOut: false,
    inbox: [],
    inboxMore: false,
    joinSeq: null,
    children: [],
    childrenMore: false,
  }
}

/** The failure of a run whose outcome the database refused. */
export function refused(outcome: CommittedOutcome, error: unknown): CommittedOutcome {
  const message = error instanceof Error ? error.message : String(error)
  return {
    ...released(outcome.run),
    kind: 'fail',
    status: 'failed',
    elapsedMs: outcome.elapsedMs,
    error: JSON.stringify({
      code: 'uncommittable',
      message: `The database refused this outcome: ${message}`,
      cause: 'unstorable',
    }),
  }
}
