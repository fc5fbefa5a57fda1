import type { AnyDefinition } from './definition.ts'
import { notAllowed } from './errors.ts'
import type { LimitUse } from './limit.ts'
import { checkKey } from './names.ts'

/** Between the name of a limit and its partition: names and partitions are printable, so they never hold it. */
export const GATE_PART_SEPARATOR = '\u001f'
/** The name under which exclusive keys are counted: it has no policy, so one run at a time. */
const EXCLUSIVE = 'key'
/** Before the name of a queue, where its cap is meant. */
const QUEUE = 'queue:'

/** A counter that must admit a run: a limit's name and a partition of it. */
export function toGate(limit: string, partition: string): string {
  return `${limit}${GATE_PART_SEPARATOR}${partition}`
}

/** The limit that a gate belongs to. */
export function limitOf(gate: string): string {
  return gate.slice(0, gate.indexOf(GATE_PART_SEPARATOR))
}

/** A gate as it is told to people: the limit, its partition ('' when it has none), and both in words. An exclusive key is told without its tenant. */
export function partsOf(gate: string): { readonly limit: string; readonly partition: string; readonly words: string } {
  const [limit = gate, ...rest] = gate.split(GATE_PART_SEPARATOR)
  if (limit === EXCLUSIVE) {
    const key = rest.at(-1) ?? ''
    return { limit, partition: key, words: `The concurrency key ${JSON.stringify(key)}` }
  }
  const partition = rest.join(' / ')
  if (isOfQueue(gate)) return { limit, partition, words: `The queue ${JSON.stringify(limit.slice(QUEUE.length))}` }
  return { limit, partition, words: `The limit "${limit}"${partition === '' ? '' : ` for ${JSON.stringify(partition)}`}` }
}

/** The name of a queue's cap among the limits. */
export function queueLimitName(queue: string): string {
  return `${QUEUE}${queue}`
}

/** True of the cap of a queue. */
export function isOfQueue(gate: string): boolean {
  return gate.startsWith(QUEUE)
}

/** Refuses, with `invalid_configuration`, a limit whose name would be taken for exclusive keys or for the cap of a queue. */
export function checkLimitName(name: string): void {
  if (name !== EXCLUSIVE && !name.startsWith(QUEUE)) return
  throw notAllowed('invalid_configuration', {
    field: 'limit.name',
    got: name,
    allowed: 'any but "key" and "queue:…", which pawl uses',
  })
}

/** Gates with the units that each is charged, parallel to them; no units when it is one each. */
export interface Gates {
  readonly gates: readonly string[] | null
  readonly units: readonly number[] | null
}

/**
 * The gates a run of that definition must pass: its exclusive key, its limits, the cap of its queue. Sorted, each
 * once; null when there is none. Throws `invalid_request` for a value that is no key, and whatever the definition's own functions throw.
 */
export function gatesOf(params: {
  /** Undefined when this build does not know it: then the queue alone counts. */
  readonly definition: AnyDefinition | undefined
  readonly input: unknown
  readonly tenant: string
  readonly queue: string
  readonly queueIsCapped: boolean
}): Gates {
  const { definition, input, tenant, queue } = params
  const gates = definition ? ownGates(definition, input, tenant) : new Map<string, number>()
  if (params.queueIsCapped) gates.set(toGate(queueLimitName(queue), ''), 1)
  return sortedGates(gates)
}

export function sortedGates(units: ReadonlyMap<string, number>): Gates {
  if (units.size === 0) return { gates: null, units: null }
  const gates = [...units.keys()].sort()
  const weights = gates.map((gate) => units.get(gate) ?? 1)
  return { gates, units: weights.some((weight) => weight !== 1) ? weights : null }
}

function ownGates(definition: AnyDefinition, input: unknown, tenant: string): Map<string, number> {
  const gates = new Map<string, number>()
  const exclusive = definition.concurrencyKey?.(input)
  if (exclusive !== undefined) {
    const value = checkValue(exclusive, definition, 'concurrencyKey')
    gates.set(toGate(EXCLUSIVE, `${tenant}${GATE_PART_SEPARATOR}${value}`), 1)
  }
  addLimits(gates, definition, definition.limits, input)
  return gates
}

function addLimits(
  gates: Map<string, number>,
  definition: AnyDefinition,
  limits: readonly LimitUse<unknown>[],
  input: unknown,
): void {
  for (const use of limits) {
    const partition = use.partition(input)
    const value = partition === undefined ? '' : checkValue(partition, definition, `limits "${use.name}"`)
    gates.set(toGate(use.name, value), use.weight)
  }
}

function checkValue(value: unknown, definition: AnyDefinition, member: string): string {
  return checkKey(value, { field: `"${definition.name}".${member}`, code: 'invalid_request' })
}
