import type { AnyDefinition } from './definition.ts'
import type { Call } from './outcome.ts'
import type { RunPolicy } from './store.ts'

/**
 * What is agreed for a run when it is spawned and kept with it; null, as for most, when nothing is. The call's word goes before the
 * definition's.
 */
export function policyOf(
  definition: AnyDefinition | undefined,
  call: Pick<Call, 'deadlines' | 'outlivesParent'>,
): RunPolicy | null {
  const policy: RunPolicy = {
    ...definition?.deadlines,
    ...call.deadlines,
    ...(call.outlivesParent && { outlivesParent: true }),
    ...(definition?.maxReplays === undefined ? {} : { maxReplays: definition.maxReplays }),
  }
  return Object.keys(policy).length === 0 ? null : policy
}
