import type { AnyDefinition } from './definition.ts'
import type { RunPolicy } from './store.ts'

/** What is agreed for a run when it is spawned and kept with it; null, as for most, when nothing is. */
export function policyOf(definition: AnyDefinition | undefined): RunPolicy | null {
  const policy: RunPolicy = {
    ...(definition?.maxReplays === undefined ? {} : { maxReplays: definition.maxReplays }),
  }
  return Object.keys(policy).length === 0 ? null : policy
}
