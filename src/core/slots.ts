/** What becomes of the slots that a step holds when its machine goes on, waits or joins. */
import { notAllowed } from './errors.ts'
import { checkLimitName, type Gates, isOfQueue, sortedGates, toGate } from './gate.ts'
import type { LimitPolicy, LimitUse } from './limit.ts'
import { checkKey } from './names.ts'

export interface LimitsOption {
  /**
   * What the next step runs under. Default: a run that leaves its invocation (it waits, joins, is delayed or yields) gives back its slots and
   * asks for the same ones again. `'keep'`: it holds on to them meanwhile, and is not charged again; whoever waits for them waits on. `'release'`:
   * from here on it needs none, neither limits nor its concurrency key. A list: these limits in place of those it had. The cap of its
   * queue always stays. A limit that no definition declares is refused (`unknown_limit`, naming it) and fails the step.
   */
  readonly limits?: 'keep' | 'release' | readonly LimitUse<unknown>[] | undefined
}

export type CheckedLimits = NonNullable<LimitsOption['limits']>

export function checkLimitsOption(limits: LimitsOption['limits'], field: string): CheckedLimits | undefined {
  if (limits === undefined || limits === 'keep' || limits === 'release') return limits
  const areUses = Array.isArray(limits) && limits.every((use) => typeof use?.partition === 'function')
  if (areUses && new Set(limits.map((use) => use.name)).size === limits.length) return limits
  const allowed = "'keep', 'release', or a list of limits made by limit(), each name once"
  throw notAllowed('invalid_outcome', { field, got: limits, allowed })
}

/** The gates that a run has from there on. Throws `unknown_limit`, and whatever a partition function throws. */
export function gatesFrom(
  limits: Exclude<CheckedLimits, 'keep'>,
  run: { readonly gates: readonly string[]; readonly input: unknown },
  declared: ReadonlyMap<string, LimitPolicy>,
): Gates {
  const units = new Map<string, number>(run.gates.filter(isOfQueue).map((gate) => [gate, 1]))
  if (limits === 'release') return sortedGates(units)
  for (const use of limits) {
    checkLimitName(use.name)
    if (!declared.has(use.name)) {
      const names = [...declared.keys()].slice(0, 20).join(', ')
      throw notAllowed('unknown_limit', { field: 'limits', got: use.name, allowed: `a limit of a definition: ${names}` })
    }
    const partition = use.partition(run.input)
    const value = partition === undefined ? '' : checkKey(partition, { field: `limits "${use.name}"`, code: 'invalid_outcome' })
    units.set(toGate(use.name, value), use.weight)
  }
  return sortedGates(units)
}
