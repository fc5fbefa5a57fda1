import type { Caller } from '../core/calls.ts'
import { PawlError } from '../core/errors.ts'
import { type Explanation, explainRecord } from '../core/explain.ts'
import { isUuid } from '../core/ids.ts'
import { checkName } from '../core/names.ts'
import type { LanePauseKind, OperatingCalls, OperatingStore, PauseAnswer, RunPauseAnswer } from '../core/operating.ts'
import { type Health, type Stats, toHealth, toStats } from '../core/statistics.ts'
import { changeMany } from './bulk.ts'
import { explained, notFound, type Surroundings, tenantOf } from './surroundings.ts'

/** What operators call, over one store. */
export function createOperatingCalls(around: Surroundings): OperatingCalls {
  return {
    pauseQueue: (name, caller) => changePause(around, 'pause', { kind: 'queue', name, caller }),
    resumeQueue: (name, caller) => changePause(around, 'resume', { kind: 'queue', name, caller }),
    pauseDefinition: (name, caller) => changePause(around, 'pause', { kind: 'definition', name, caller }),
    resumeDefinition: (name, caller) => changePause(around, 'resume', { kind: 'definition', name, caller }),
    pauseRun: (id, caller) => changeHold(around, 'pauseRun', id, caller),
    resumeRun: (id, caller) => changeHold(around, 'resumeRun', id, caller),
    changeMany: (call, caller) => changeMany(around, call, caller),
    explain: (id, caller) => explain(around, id, caller),
    stats: (caller) => stats(around, caller),
    health: () => health(around),
  }
}

interface LanePause {
  readonly kind: LanePauseKind
  readonly name: string
  readonly caller: Caller | undefined
}

/** Without a tenant it is for all of them. */
async function changePause(around: Surroundings, verb: 'pause' | 'resume', target: LanePause): Promise<PauseAnswer> {
  const { registry, store } = around
  const { kind, caller } = target
  const name = checkName(target.name, { field: kind, code: 'invalid_request' })
  const tenant = caller?.tenant === undefined ? null : tenantOf(around, caller)
  const declared = kind === 'queue' ? registry.queues.has(name) : registry.names.includes(name)
  const asking = store[verb]({ kind, name, tenant, by: caller?.by ?? null, declared })
  const answer = await explained(asking, { asked: `${WORDS[verb]} the ${kind} "${name}"`, remedy: 'Ask again: it is done once.' })
  if (answer === null)
    throw new PawlError('not_found', `No ${kind} has the name ${JSON.stringify(name)}.`, { field: kind, got: name })
  // it goes on, or the room of a limit is for others now
  if (answer.did === 'resumed' || answer.did === 'paused') around.committed()
  return answer
}

const WORDS = { pause: 'Pausing', resume: 'Resuming', pauseRun: 'Pausing', resumeRun: 'Resuming' } as const

async function changeHold(
  around: Surroundings,
  verb: keyof Pick<OperatingStore, 'pauseRun' | 'resumeRun'>,
  id: string,
  caller: Caller | undefined,
): Promise<RunPauseAnswer> {
  const tenant = tenantOf(around, caller)
  if (!isUuid(id)) throw notFound(id)
  const asking = around.store[verb](id, { tenant, by: caller?.by ?? null })
  const answer = await explained(asking, { asked: `${WORDS[verb]} run ${id}`, remedy: 'Ask again: it is done once.' })
  if (answer === null) throw notFound(id)
  // a slot may be free, or the run due
  if (answer.did === 'resumed' || answer.did === 'paused') around.committed()
  return answer
}

async function explain(around: Surroundings, id: string, caller: Caller | undefined): Promise<Explanation> {
  const tenant = tenantOf(around, caller)
  if (!isUuid(id)) throw notFound(id)
  const record = await explained(around.store.explain(id, { tenant }), { asked: `Reading run ${id}`, writes: false })
  if (record === null) throw notFound(id)
  return explainRecord(record, around.registry)
}

async function stats(around: Surroundings, caller: Caller | undefined): Promise<Stats> {
  const scope = caller?.tenant === undefined ? null : { tenant: tenantOf(around, caller) }
  const record = await explained(around.store.stats(scope), { asked: 'Reading statistics', writes: false })
  return toStats(record, around.registry.queues)
}

async function health({ store }: Surroundings): Promise<Health> {
  return toHealth(await explained(store.health(), { asked: 'Reading the health', writes: false }))
}
