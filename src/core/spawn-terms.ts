/** When a run starts, what it must not share, and what it does to a run that is there: from the definition and the call. */
import { notAllowed } from './errors.ts'
import type { Json } from './json.ts'
import type { Holding, NewRun, RunPolicy, UniqueEntry } from './store.ts'
import { gathers, identify, toUniqueEntry, type UniquePolicy } from './unique.ts'

export interface SpawnTermsParams {
  readonly definition: string
  readonly version: number
  readonly queue: string
  readonly policy: UniquePolicy
  /** The input as it is stored, and as the schema gives it. */
  readonly stored: Json
  readonly parsed: unknown
  /** What the call says. */
  readonly call: {
    readonly key: string | undefined
    readonly onConflict: 'keep' | 'reschedule' | undefined
    readonly delayMs: number | undefined
    readonly at: string | undefined
  }
  readonly id: string | undefined
  /** A child is waited for, so that it is a run of its own whatever its definition gathers. */
  readonly isChild: boolean
  /** Calls the user's function. */
  readonly ask: (identify: () => Json | null) => Json | null
}

export interface SpawnTerms extends Pick<NewRun, 'delayMs' | 'runAt' | 'onConflict'> {
  readonly unique: UniqueEntry | null
}

/** Throws invalid_request, invalid_input, and whatever `ask` throws. */
export async function termsOf(params: SpawnTermsParams): Promise<SpawnTerms> {
  const { policy, isChild } = params
  const { onConflict } = policy
  if (!gathers(onConflict)) {
    const own = params.call.onConflict === undefined ? onConflict : { kind: params.call.onConflict }
    return { ...startOf(params.call), onConflict: isChild ? { kind: 'keep' } : own, unique: await entryOf(params) }
  }
  if (isChild) return { ...startOf(params.call), onConflict: { kind: 'keep' }, unique: null }
  refuseOptions(params)
  if (onConflict.kind === 'batch' && checkList(params, onConflict.size) === onConflict.size) {
    return { delayMs: null, runAt: null, onConflict: { kind: 'keep' }, unique: null }
  }
  const unique = await entryOf(params)
  // like no other: nothing to wait for
  if (unique === null) return { delayMs: null, runAt: null, onConflict: { kind: 'keep' }, unique }
  return { delayMs: onConflict.waitMs, runAt: null, onConflict, unique }
}

/** When a call wants its run to start. */
export function startOf({ delayMs, at }: Pick<SpawnTermsParams['call'], 'delayMs' | 'at'>) {
  return { delayMs: delayMs ?? null, runAt: at === undefined ? null : Date.parse(at) }
}

async function entryOf(params: SpawnTermsParams): Promise<UniqueEntry | null> {
  const { policy, stored, parsed, definition } = params
  const identity = params.ask(() => identify({ policy, stored, parsed, definition }))
  return identity === null ? null : toUniqueEntry(identity, params)
}

/** What the gathering itself decides, and what only one of the gathered could have. */
function refuseOptions({ definition, id, call, policy }: SpawnTermsParams): void {
  const { key, delayMs, at, onConflict } = call
  const [field] = Object.entries({ key, id, delay: delayMs, at, onConflict }).find(([, value]) => value !== undefined) ?? []
  if (field === undefined) return
  const allowed = `none: "${definition}" gathers spawns (${policy.onConflict.kind})`
  throw notAllowed('invalid_request', { field, got: { key, id, delay: delayMs, at, onConflict }[field], allowed })
}

function checkList({ stored, definition }: SpawnTermsParams, size: number): number {
  const allowed = `a list of 1 to ${size} items: "${definition}" gathers them`
  if (!Array.isArray(stored)) throw notAllowed('invalid_input', { field: 'input', got: stored, allowed })
  if (stored.length < 1 || stored.length > size) {
    throw notAllowed('invalid_input', { field: 'input', got: `${stored.length} items`, allowed })
  }
  return stored.length
}

/** A run's policy with how it holds its key, and its entry beside that. */
export function withHoldings(policy: RunPolicy | null, key: Holding | undefined, unique: UniqueEntry | null): RunPolicy | null {
  if (key === undefined && unique === null) return policy
  return { ...policy, ...(key && { key }), ...(unique && { unique }) }
}
