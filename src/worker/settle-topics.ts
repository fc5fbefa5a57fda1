/** What an outcome has to do with other runs: whose ends it waits for, and what it tells. */
import { PawlError } from '../core/errors.ts'
import { type Eventual, whenReady } from '../core/eventual.ts'
import { toStored } from '../core/json.ts'
import { checkEvent, checkStepSignal } from '../core/message-check.ts'
import type { StepMessage } from '../core/messages.ts'
import type { RuntimeOutcome, WaitOutcome } from '../core/outcome.ts'
import type { Registry } from '../core/registry.ts'
import type { ClaimedRun, CommittedOutcome } from '../core/store.ts'
import { type RunTarget, runTopic } from '../core/topics.ts'
import type { SettleParams } from './settle-params.ts'

/** Names of what is waited for. Runs whose ends are waited for are looked up: one that is not there would be waited for in vain. */
export function awaitsOf(params: SettleParams, { names, ends }: WaitOutcome): Eventual<readonly string[]> {
  if (ends.length === 0) return names
  const { run, findRuns } = params
  return findRuns(run.tenant, ends).then((ids) => {
    const topics = ids.map((id, index) => runTopic(checkAwaitedRun(run, id, ends[index] as RunTarget)))
    return [...new Set([...names, ...topics])]
  })
}

function checkAwaitedRun(run: ClaimedRun, id: string | null, target: RunTarget): string {
  const asked = 'id' in target ? `the id ${target.id}` : `the key ${JSON.stringify(target.key)} of "${target.definition}"`
  if (id === null) throw new PawlError('not_found', `No run to wait for has ${asked}.`, { field: 'waitFor' })
  if (id !== run.id) return id
  throw new PawlError('invalid_outcome', `The run ${id} cannot wait for its own end.`, { field: 'waitFor', got: id })
}

/** With the outcome go its messages, once they are known to be right; not where it came to another one, such as a limit that was reached. */
export function withMessages(
  { registry }: SettleParams,
  { kind, messages }: RuntimeOutcome,
  settled: Eventual<CommittedOutcome>,
): Eventual<CommittedOutcome> {
  if (messages === undefined) return settled
  return whenReady(settled, async (outcome) => {
    if (outcome.kind !== kind) return outcome
    return { ...outcome, messages: await Promise.all(messages.map((message) => checked(registry, message))) }
  })
}

async function checked(registry: Registry, message: StepMessage): Promise<StepMessage> {
  const { kind, name, to } = message
  const sent: unknown = JSON.parse(message.payload)
  if (kind === 'event') {
    const payload = await checkEvent(registry.definitions, name, sent)
    return { ...message, payload: toStored(payload, { field: 'emit.payload', code: 'invalid_event' }).text }
  }
  const definition = to !== null && 'key' in to ? to.definition : null
  const payload = await checkStepSignal(registry.definitions, { name, definition, payload: sent })
  return { ...message, payload: toStored(payload, { field: 'signal.payload', code: 'invalid_signal' }).text }
}
