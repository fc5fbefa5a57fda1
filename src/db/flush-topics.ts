/** What a flush has to do with runs that are not its own, or not yet: topics waited for, messages left, children that are waited for no more. */
import type { Statement } from '../core/database.ts'
import type { CommittedOutcome, OutcomeKind } from '../core/store.ts'
import { awaitedRunOf, eventOf, isTopic } from '../core/topics.ts'
import type { StoreContext } from './context.ts'
import { leaveMessages } from './statements/outbox.ts'
import { dismissStragglers } from './statements/stragglers.ts'
import { awaitRuns, forgetWaits, hearEvents, registerWaits, shareTopics } from './statements/topics.ts'

/** Outcomes that do not take a run past what it waited for. */
const STAYS: ReadonlySet<OutcomeKind> = new Set(['retry', 'snooze', 'release'])

/** Runs whose ends these outcomes wait for. */
export function awaitedRuns(outcomes: readonly CommittedOutcome[]): readonly string[] {
  return waitedFor(outcomes).flatMap(({ topic }) => awaitedRunOf(topic) ?? [])
}

function waitedFor(outcomes: readonly CommittedOutcome[]) {
  return outcomes.flatMap(({ kind, run, awaits }) =>
    kind === 'wait' && awaits ? awaits.filter(isTopic).map((topic) => ({ runId: run.id, tenant: run.tenant, topic })) : [],
  )
}

/**
 * What was waited for is waited for no more; then who is parked on topics registers, and only then looks for what has happened already. The
 * names of events are locked before, so that whoever emits one of them now comes either before this look or after this commit.
 */
export function statementsOfTopics(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const { schema, environment } = context
  const left = outcomes.filter(({ kind, run }) => !STAYS.has(kind) && run.awaits.some(isTopic))
  const waits = waitedFor(outcomes)
  const events = waits.filter(({ topic }) => eventOf(topic) !== undefined)
  const ends = waits.filter(({ topic }) => awaitedRunOf(topic) !== undefined)
  const pairs = (some: typeof waits) => ({
    now: context.now(),
    runIds: some.map(({ runId }) => runId),
    topics: some.map(({ topic }) => topic),
  })
  return [
    ...(left.length > 0 ? [forgetWaits(schema, { ids: left.map(({ run }) => run.id) })] : []),
    ...(events.length > 0
      ? [shareTopics(schema, { environment, tenants: events.map(({ tenant }) => tenant), topics: pairs(events).topics })]
      : []),
    ...(waits.length > 0 ? [registerWaits(schema, pairs(waits))] : []),
    ...(events.length > 0 ? [hearEvents(schema, pairs(events))] : []),
    ...(ends.length > 0 ? [awaitRuns(schema, pairs(ends))] : []),
  ]
}

/** Events and signals of steps are committed with their outcomes, and told in batches of their own. */
export function statementsOfMessages(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const messages = outcomes.flatMap(({ run, messages }) => messages.map((message) => ({ ...message, runId: run.id })))
  if (messages.length === 0) return []
  return [
    leaveMessages(context.schema, {
      now: context.now(),
      runIds: messages.map(({ runId }) => runId),
      kinds: messages.map(({ kind }) => kind),
      subjects: messages.map(({ name }) => name),
      // the payload is JSON already
      bodies: messages.map(
        ({ payload, retentionMs, to }) => `{"payload":${payload},"retentionMs":${retentionMs},"to":${JSON.stringify(to)}}`,
      ),
    }),
  ]
}

/** Children that have not ended when the step is through that their join led to. */
export function statementsOfStragglers(context: StoreContext, outcomes: readonly CommittedOutcome[]): Statement[] {
  const through = outcomes.filter(
    ({ kind, run }) => !STAYS.has(kind) && run.joinSeq !== null && run.policy.cancelsStragglersOf === run.joinSeq,
  )
  if (through.length === 0) return []
  const { schema } = context
  return [
    dismissStragglers(schema, {
      now: context.now(),
      ids: through.map(({ run }) => run.id),
      joinSeqs: through.map(({ run }) => run.joinSeq ?? 0),
    }),
  ]
}
