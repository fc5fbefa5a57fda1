import { MAX_LIMIT_AMOUNT } from './bounds.ts'
import { type AnyDefinition, type Definition, isDefinition, runtimeOf } from './definition.ts'
import { notAllowed, PawlError } from './errors.ts'
import { equalPolicies, type LimitPolicy } from './limit.ts'
import { checkInteger, checkName } from './names.ts'
import { type RetentionOption, toDeclaredRetention } from './retention.ts'
import { type RetryOptions, toRetryPolicy } from './retry.ts'
import type { CronTrigger, WebhookTrigger } from './trigger.ts'

export interface QueueOptions {
  /** Runs of the queue that may run at once, over all invocations. */
  readonly concurrency?: number | undefined
  /** How long its ended runs are kept, from their end on, where their definition does not say. Agreed when a run is spawned. */
  readonly retention?: RetentionOption
}

export interface RegistryDefaults {
  /** For what a definition's own `retry` leaves out. */
  readonly retry?: RetryOptions | undefined
}

export interface Registry {
  /** All versions side by side, in the order given. */
  readonly definitions: readonly AnyDefinition[]
  /** That version; without one, the latest. */
  find(name: string, version?: number): AnyDefinition | undefined
  /** The highest version of that name: what is spawned by default. */
  latest(name: string): AnyDefinition | undefined
  /** Versions of that name, rising; none for an unknown name. */
  versions(name: string): readonly number[]
  readonly names: readonly string[]
  /** Every queue that is declared or used by a definition. */
  readonly queues: ReadonlyMap<string, QueueOptions>
  readonly limits: ReadonlyMap<string, LimitPolicy>
  /** Runs spawned here may have gates: keys of concurrency, limits, or caps of queues. */
  readonly isGated: boolean
  /** Some limit of these definitions has a rate. */
  readonly isRated: boolean
  /** Of the latest version of each definition, by schedule name. */
  readonly schedules: ReadonlyMap<string, { readonly definition: AnyDefinition; readonly trigger: CronTrigger<unknown> }>
  /** Of the latest version of each definition, by hook name. */
  readonly webhooks: ReadonlyMap<string, { readonly definition: AnyDefinition; readonly trigger: WebhookTrigger<unknown> }>
}

/**
 * Looks up definitions by name and version. Refuses, with `invalid_configuration`: the same name and version twice, one
 * limit with two policies, one schedule or hook name twice.
 */
export function createRegistry(
  definitions: readonly Definition<unknown, unknown>[],
  queues: Readonly<Record<string, QueueOptions>> = {},
  defaults: RegistryDefaults = {},
): Registry {
  const runtimes = definitions.map((definition, index) => toRuntime(definition, index, defaults))
  const byName = indexByName(runtimes)
  const latest = (name: string): AnyDefinition | undefined => byName.get(name)?.at(-1)
  const newest = [...byName.values()].flatMap((versions) => versions.at(-1) ?? [])
  return {
    definitions: runtimes,
    find: (name, version) =>
      version === undefined ? latest(name) : byName.get(name)?.find((definition) => definition.version === version),
    latest,
    versions: (name) => byName.get(name)?.map((definition) => definition.version) ?? [],
    names: [...byName.keys()],
    queues: collectQueues(runtimes, queues),
    limits: collectLimits(runtimes),
    isGated:
      runtimes.some(({ concurrencyKey, limits }) => concurrencyKey !== undefined || limits.length > 0) ||
      Object.values(queues).some(({ concurrency }) => concurrency !== undefined),
    isRated: runtimes.some(({ limits }) => limits.some(({ policy }) => policy.rate !== undefined)),
    schedules: collectSchedules(newest),
    webhooks: collectWebhooks(newest),
  }
}

function toRuntime(definition: Definition<unknown, unknown>, index: number, defaults: RegistryDefaults): AnyDefinition {
  if (!isDefinition(definition)) {
    throw notAllowed('invalid_configuration', { field: `definitions[${index}]`, got: definition, allowed: 'a job or a machine' })
  }
  const runtime = runtimeOf(definition)
  if (defaults.retry === undefined) return runtime
  const policy = toRetryPolicy(defaults.retry, 'retry')
  return { ...runtime, retry: toRetryPolicy(runtime.declaredRetry, 'retry', policy) }
}

function indexByName(runtimes: readonly AnyDefinition[]): ReadonlyMap<string, readonly AnyDefinition[]> {
  const byName = new Map<string, AnyDefinition[]>()
  for (const definition of runtimes) {
    const versions = byName.get(definition.name) ?? []
    if (versions.some((other) => other.version === definition.version)) {
      throw twice(`definition "${definition.name}" version ${definition.version}`)
    }
    versions.push(definition)
    versions.sort((left, right) => left.version - right.version)
    byName.set(definition.name, versions)
  }
  return byName
}

function twice(what: string): PawlError {
  return new PawlError('invalid_configuration', `The ${what} is declared twice.`, {
    field: 'definitions',
    got: what,
    allowed: 'once',
  })
}

function collectQueues(
  runtimes: readonly AnyDefinition[],
  declared: Readonly<Record<string, QueueOptions>>,
): Map<string, QueueOptions> {
  const queues = new Map<string, QueueOptions>(runtimes.map((definition) => [definition.queue, {}]))
  for (const [name, options] of Object.entries(declared)) {
    checkName(name, { field: 'queues' })
    if (options.concurrency !== undefined) {
      checkInteger(options.concurrency, { field: `queues.${name}.concurrency`, min: 1, max: MAX_LIMIT_AMOUNT })
    }
    toDeclaredRetention(options.retention, `queues.${name}.retention`)
    queues.set(name, options)
  }
  return queues
}

function collectLimits(runtimes: readonly AnyDefinition[]): Map<string, LimitPolicy> {
  const limits = new Map<string, LimitPolicy>()
  for (const use of runtimes.flatMap((definition) => definition.limits)) {
    const known = limits.get(use.name)
    if (known && !equalPolicies(known, use.policy)) {
      const detail = `The limit "${use.name}" is declared with two policies: give it one, in one limit().`
      throw new PawlError('invalid_configuration', detail, { field: 'limits', got: use.name, allowed: 'one policy per name' })
    }
    limits.set(use.name, use.policy)
  }
  return limits
}

function collectSchedules(newest: readonly AnyDefinition[]): Registry['schedules'] {
  const schedules = new Map<string, { definition: AnyDefinition; trigger: CronTrigger<unknown> }>()
  for (const definition of newest) {
    for (const trigger of definition.triggers) {
      if (trigger.kind !== 'cron') continue
      const name = trigger.name ?? definition.name
      if (schedules.has(name)) throw twice(`schedule "${name}" (give each cron() of a definition a name)`)
      schedules.set(name, { definition, trigger })
    }
  }
  return schedules
}

function collectWebhooks(newest: readonly AnyDefinition[]): Registry['webhooks'] {
  const webhooks = new Map<string, { definition: AnyDefinition; trigger: WebhookTrigger<unknown> }>()
  for (const definition of newest) {
    for (const trigger of definition.triggers) {
      if (trigger.kind !== 'webhook') continue
      if (webhooks.has(trigger.name)) throw twice(`webhook "${trigger.name}"`)
      webhooks.set(trigger.name, { definition, trigger })
    }
  }
  return webhooks
}
