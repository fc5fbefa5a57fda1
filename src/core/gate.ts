import type { AnyDefinition } from './definition.ts'
import { notAllowed } from './errors.ts'
import { checkKey } from './names.ts'

/** Between the name of a limit and its partition: names and partitions are printable, so they never hold it. */
export const GATE_PART_SEPARATOR = '\u001f'
/** The name under which exclusive keys are counted: it has no policy, so one run at a time. */
const EXCLUSIVE = 'key'

/** A counter that must admit a run: a limit's name and a partition of it. */
export function toGate(limit: string, partition: string): string {
  return `${limit}${GATE_PART_SEPARATOR}${partition}`
}

/** The name of a queue's cap among the limits. */
export function queueLimitName(queue: string): string {
  return `queue:${queue}`
}

/** Refuses, with `invalid_configuration`, a limit whose name would be taken for exclusive keys or for the cap of a queue. */
export function checkLimitName(name: string): void {
  if (name !== EXCLUSIVE && !name.startsWith('queue:')) return
  throw notAllowed('invalid_configuration', {
    field: 'limit.name',
    got: name,
    allowed: 'any but "key" and "queue:…", which pawl uses',
  })
}

/**
 * The gates a run of that definition must pass: its exclusive key, its limits with a concurrency, the cap of its queue. Sorted, each
 * once; null when there is none. Throws `invalid_request` for a value that is no key, and whatever the definition's own functions throw.
 */
export function gatesOf(params: {
  /** Undefined when this build does not know it: then the queue alone counts. */
  readonly definition: AnyDefinition | undefined
  readonly input: unknown
  readonly tenant: string
  readonly queue: string
  readonly queueIsCapped: boolean
}): readonly string[] | null {
  const { definition, input, tenant, queue } = params
  const gates = definition ? ownGates(definition, input, tenant) : []
  if (params.queueIsCapped) gates.push(toGate(queueLimitName(queue), ''))
  return gates.length === 0 ? null : [...new Set(gates)].sort()
}

function ownGates(definition: AnyDefinition, input: unknown, tenant: string): string[] {
  const gates: string[] = []
  const exclusive = definition.concurrencyKey?.(input)
  if (exclusive !== undefined) {
    const value = checkValue(exclusive, definition, 'concurrencyKey')
    gates.push(toGate(EXCLUSIVE, `${tenant}${GATE_PART_SEPARATOR}${value}`))
  }
  for (const use of definition.limits) {
    if (use.policy.concurrency === undefined) continue
    const partition = use.partition(input)
    const value = partition === undefined ? '' : checkValue(partition, definition, `limits "${use.name}"`)
    gates.push(toGate(use.name, value))
  }
  return gates
}

function checkValue(value: unknown, definition: AnyDefinition, member: string): string {
  return checkKey(value, { field: `"${definition.name}".${member}`, code: 'invalid_request' })
}
