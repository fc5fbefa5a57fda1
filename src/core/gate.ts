import type { AnyDefinition } from './definition.ts'

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

/**
 * The gates a run of that definition must pass: its exclusive key, its limits with a concurrency, the cap of its queue. Sorted, each
 * once; null when there is none.
 */
export function gatesOf(params: {
  readonly definition: AnyDefinition
  readonly input: unknown
  readonly tenant: string
  readonly queue: string
  readonly queueIsCapped: boolean
}): readonly string[] | null {
  const { definition, input, tenant, queue } = params
  const gates = new Set<string>()
  const exclusive = definition.concurrencyKey?.(input)
  if (exclusive !== undefined) gates.add(toGate(EXCLUSIVE, `${tenant}:${exclusive}`))
  for (const use of definition.limits) {
    if (use.policy.concurrency === undefined) continue
    gates.add(toGate(use.name, use.partition(input) ?? ''))
  }
  if (params.queueIsCapped) gates.add(toGate(queueLimitName(queue), ''))
  return gates.size === 0 ? null : [...gates].sort()
}
