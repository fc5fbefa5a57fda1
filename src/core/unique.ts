/** What a run must not share with another: its key and its uniqueness, how long either is held, and what a second one does. */
import { canonical, HASH_VERSION, sha256Hex } from './canonical.ts'
import { type Duration, fromMs, toMs } from './duration.ts'
import { notAllowed, PawlError } from './errors.ts'
import type { Json } from './json.ts'
import { checkKey } from './names.ts'
import type { Holding, OnConflict, UniqueEntry } from './store.ts'

/** A status that a run has ended with. */
export type EndedStatus = 'completed' | 'failed' | 'cancelled' | 'discarded'

/**
 * How long a key is taken: while its run lives (always), and besides while an ended run is kept (`retained`), while it is kept and ended
 * with one of `statuses`, or until `period` after the spawn, whichever way it ended.
 */
export type KeyScope = 'live' | 'retained' | { readonly statuses: readonly EndedStatus[] } | { readonly period: Duration }

/** What makes two runs the same: the whole input as sent, some of its members, or a text made of it (`undefined`: like no other). */
export type UniqueBy<P> = 'input' | readonly (keyof P & string)[] | ((input: P) => string | undefined)

export interface UniqueOptions<P> {
  /** Default `input`. The order of members never matters. */
  readonly by?: UniqueBy<P> | undefined
  /** Whether the same in another queue is the same. Default `definition`: it is. */
  readonly within?: 'definition' | 'queue' | undefined
  /** Ended runs that count, besides all that live. Default: none; with a `period`, all. */
  readonly statuses?: readonly EndedStatus[] | undefined
  /** Ended runs count as long as they are kept. */
  readonly whileRetained?: boolean | undefined
  /** It counts no longer than this, even if it still lives. At most the retention. */
  readonly period?: Duration | undefined
  /** Where the period begins. Default `insertion`. */
  readonly from?: 'insertion' | 'schedule' | undefined
  /**
   * What a second spawn does to the first run. `keep` (default): nothing. `reschedule`: one that has not started gets the second's
   * `delay` or `at` (none: at once).
   */
  readonly onConflict?: 'keep' | 'reschedule' | undefined
}

interface Gathering<P> {
  /** Spawns that are gathered together: those that give the same. Default: all of the definition, in one queue. */
  readonly by?: UniqueBy<P> | undefined
}

/** The last of several spawns runs, once no further one has come for `wait`. */
export interface DebounceOptions<P> extends Gathering<P> {
  readonly wait: Duration
  /** However many come: it starts at most this long after the first. Default: no bound. */
  readonly max?: Duration | undefined
}

/** The first of several spawns runs, and no other in `per` from then. At most the retention. */
export interface ThrottleOptions<P> extends Gathering<P> {
  readonly per: Duration
}

/** Spawns whose lists become one list and one run: after `wait` from the first, or with `size` items. */
export interface BatchOptions<P> {
  /** Lists that are put together: those that give the same text. Default: all of the definition, in one queue. */
  readonly by?: ((input: P) => string | undefined) | undefined
  readonly wait: Duration
  /** Items of one run at most; a spawn with more is refused. */
  readonly size: number
}

/** At most one of `unique`, `debounce`, `throttle` and `batch`. Children of a join are not gathered: each is a run of its own. */
export interface UniquenessOptions<P> {
  /** How long a key is taken. Default `live`: while its run lives. */
  readonly keyScope?: KeyScope | undefined
  /** A run that is the same as another is not spawned: the other one is answered. */
  readonly unique?: UniqueOptions<P> | undefined
  /** Spawns wait, and each takes the place of the one before. */
  readonly debounce?: DebounceOptions<P> | undefined
  /** One run in a period: further spawns are answered with it. */
  readonly throttle?: ThrottleOptions<P> | undefined
  /** Of definitions whose input is a list. */
  readonly batch?: ([P] extends [readonly unknown[]] ? BatchOptions<P> : never) | undefined
}

/** A definition's uniqueness, validated. */
export interface UniquePolicy {
  readonly by: 'all' | 'input' | readonly string[] | ((input: unknown) => string | undefined)
  readonly within: 'definition' | 'queue'
  readonly holding: Holding
  readonly onConflict: OnConflict
}

/** Bits of `Holding.keep`, as the column `keep` has them. */
const KEEPS: Readonly<Record<EndedStatus, number>> = { completed: 1, failed: 2, cancelled: 4, discarded: 8 }
const KEEPS_ALL = 15
/** Held only until its run starts: later spawns begin anew. */
const UNTIL_START = 16

/** Between the parts of a scope, and before a token: names and keys are printable, so that no key is ever taken for a token. */
const SEPARATOR = '\u001f'

export interface ToUniquePolicyParams {
  readonly options: UniquenessOptions<never> & { readonly key?: unknown }
  /** What follows `job "x".` in messages. */
  readonly field: (member: string) => string
  readonly kind: 'job' | 'machine'
  /** Ended runs go after this, and what they hold goes with them. */
  readonly retentionMs: number
}

/** Throws `invalid_configuration` naming field, got and allowed. Undefined: nothing but keys. */
export function toUniquePolicy(params: ToUniquePolicyParams): UniquePolicy | undefined {
  const { options, field } = params
  const given = (['unique', 'debounce', 'throttle', 'batch'] as const).filter((member) => options[member] !== undefined)
  if (given.length > 1) {
    throw notAllowed('invalid_configuration', {
      field: field(given[1] as string),
      got: given.join(' and '),
      allowed: 'one of them',
    })
  }
  const { unique, debounce, throttle, batch } = options
  if (options.key !== undefined && (debounce ?? batch) !== undefined) {
    const allowed = `no key: spawns are gathered by "by"`
    throw notAllowed('invalid_configuration', { field: field('key'), got: options.key, allowed })
  }
  if (batch && params.kind === 'machine') {
    const allowed = 'of jobs only: the state of a machine is made of one input'
    throw notAllowed('invalid_configuration', { field: field('batch'), got: batch, allowed })
  }
  if (unique) return toUnique(unique, params)
  if (debounce) return toDebounce(debounce, params)
  if (batch) return toBatch(batch, params)
  return throttle && toThrottle(throttle, params)
}

function toUnique(options: UniqueOptions<never>, params: ToUniquePolicyParams): UniquePolicy {
  const field = (member: string): string => params.field(`unique.${member}`)
  const { statuses, whileRetained = false, period, from, onConflict = 'keep' } = options
  if (whileRetained && (statuses ?? period) !== undefined) {
    const got = statuses === undefined ? 'with a period' : 'with statuses'
    throw notAllowed('invalid_configuration', { field: field('whileRetained'), got, allowed: 'alone' })
  }
  if (from !== undefined && period === undefined) {
    throw notAllowed('invalid_configuration', { field: field('from'), got: from, allowed: 'nothing without a period' })
  }
  const periodMs = period === undefined ? undefined : checkPeriod(period, field('period'), params)
  const keepsAll = whileRetained || (period !== undefined && statuses === undefined)
  return {
    by: checkBy(options.by ?? 'input', field('by')),
    within: checkOne(options.within ?? 'definition', ['definition', 'queue'], field('within')),
    holding: {
      keep: keepsAll ? KEEPS_ALL : toKeep(statuses ?? [], field('statuses')),
      ...(periodMs === undefined ? {} : { periodMs }),
      ...(checkOne(from ?? 'insertion', ['insertion', 'schedule'], field('from')) === 'schedule' ? { fromSchedule: true } : {}),
    },
    onConflict: { kind: checkOne(onConflict, ['keep', 'reschedule'], field('onConflict')) },
  }
}

function toDebounce({ by, wait, max }: DebounceOptions<never>, { field }: ToUniquePolicyParams): UniquePolicy {
  const waitMs = toMs(wait, field('debounce.wait'), { minMs: 1 })
  const maxMs = max === undefined ? null : toMs(max, field('debounce.max'), { minMs: waitMs })
  return {
    by: checkBy(by ?? 'all', field('debounce.by')),
    within: 'queue',
    holding: { keep: UNTIL_START },
    onConflict: { kind: 'debounce', waitMs, maxMs },
  }
}

function toThrottle({ by, per }: ThrottleOptions<never>, params: ToUniquePolicyParams): UniquePolicy {
  const { field } = params
  return {
    by: checkBy(by ?? 'all', field('throttle.by')),
    within: 'queue',
    holding: { keep: KEEPS_ALL, periodMs: checkPeriod(per, field('throttle.per'), params) },
    onConflict: { kind: 'keep' },
  }
}

/** Items of one list at most: a row of the table holds them. */
const MAX_GATHERED = 10_000

function toBatch({ by, wait, size }: BatchOptions<never>, { field }: ToUniquePolicyParams): UniquePolicy {
  if (by !== undefined && typeof by !== 'function') {
    throw notAllowed('invalid_configuration', { field: field('batch.by'), got: by, allowed: 'a function of the list' })
  }
  if (!Number.isInteger(size) || size < 1 || size > MAX_GATHERED) {
    throw notAllowed('invalid_configuration', {
      field: field('batch.size'),
      got: size,
      allowed: `a whole number from 1 to ${MAX_GATHERED}`,
    })
  }
  return {
    // the compiler has checked it against the definition's input
    by: by === undefined ? 'all' : (by as (input: unknown) => string | undefined),
    within: 'queue',
    holding: { keep: UNTIL_START },
    onConflict: { kind: 'batch', waitMs: toMs(wait, field('batch.wait'), { minMs: 1 }), size },
  }
}

/** Undefined: while the run lives. A live run's key is never free, whatever is asked. Throws `invalid_configuration`. */
export function toKeyHolding(scope: KeyScope | undefined, params: ToUniquePolicyParams): Holding | undefined {
  const field = params.field('keyScope')
  if (scope === undefined || scope === 'live') return undefined
  if (scope === 'retained') return { keep: KEEPS_ALL }
  if (typeof scope === 'object' && scope !== null && 'statuses' in scope)
    return { keep: toKeep(scope.statuses, `${field}.statuses`) }
  if (typeof scope === 'object' && scope !== null && 'period' in scope) {
    return { keep: 0, periodMs: checkPeriod(scope.period, `${field}.period`, params) }
  }
  throw notAllowed('invalid_configuration', { field, got: scope, allowed: '"live", "retained", { statuses } or { period }' })
}

function checkOne<const T extends string>(value: T, allowed: readonly T[], field: string): T {
  if (allowed.includes(value)) return value
  throw notAllowed('invalid_configuration', { field, got: value, allowed: allowed.map((one) => `"${one}"`).join(' or ') })
}

function checkPeriod(period: Duration, field: string, { retentionMs }: ToUniquePolicyParams): number {
  const ms = toMs(period, field, { minMs: 1 })
  if (ms <= retentionMs) return ms
  // pruned with its run, an entry could not last as long as it says
  const allowed = `at most the retention of ended runs, which is ${fromMs(retentionMs)}`
  throw notAllowed('invalid_configuration', { field, got: period, allowed })
}

function toKeep(statuses: readonly EndedStatus[], field: string): number {
  const names = Object.keys(KEEPS)
  const areEnded = Array.isArray(statuses) && statuses.every((status) => names.includes(status))
  if (areEnded) return statuses.reduce((keep: number, status: EndedStatus) => keep | KEEPS[status], 0)
  const allowed = `a list of ${names.join(', ')} (live statuses always count)`
  throw notAllowed('invalid_configuration', { field, got: Array.isArray(statuses) ? statuses.join(', ') : statuses, allowed })
}

function checkBy(by: UniqueBy<never> | 'all', field: string): UniquePolicy['by'] {
  if (by === 'all' || by === 'input') return by
  // the compiler has checked the function against the definition's input
  if (typeof by === 'function') return by as (input: unknown) => string | undefined
  if (Array.isArray(by) && by.length > 0 && by.every((member) => typeof member === 'string')) return [...new Set(by)].sort()
  throw notAllowed('invalid_configuration', { field, got: by, allowed: '"input", names of members, or a function of the input' })
}

export interface IdentifyParams {
  readonly policy: UniquePolicy
  readonly definition: string
  /** As it is stored. */
  readonly stored: Json
  /** As the schema gives it. */
  readonly parsed: unknown
}

/** What makes the run the same as another; null: it is like no other. Throws invalid_input, and whatever the user's own function throws. */
export function identify({ policy, stored, parsed, definition }: IdentifyParams): Json | null {
  const { by } = policy
  if (by === 'all') return ['all']
  if (by === 'input') return ['input', stored]
  if (typeof by === 'function') {
    const text = by(parsed)
    return text === undefined ? null : ['text', checkKey(text, { field: `"${definition}".by`, code: 'invalid_request' })]
  }
  if (typeof stored !== 'object' || stored === null || Array.isArray(stored)) {
    const detail = `"${definition}" is unique by ${by.join(', ')}: its input has to be an object.`
    throw new PawlError('invalid_input', detail, { field: 'input', errors: [{ pointer: '', detail: 'must be an object' }] })
  }
  const members = stored as Readonly<Record<string, Json>>
  return [
    'members',
    Object.fromEntries(by.flatMap((name) => (Object.hasOwn(members, name) ? [[name, members[name] as Json]] : []))),
  ]
}

export interface ToUniqueEntryParams {
  readonly policy: UniquePolicy
  readonly definition: string
  readonly version: number
  readonly queue: string
}

/** The entry that a run of that identity has to hold. */
export async function toUniqueEntry(identity: Json, params: ToUniqueEntryParams): Promise<UniqueEntry> {
  const { policy, definition, version, queue } = params
  // an input is for the code that it was sent to, so that gathering never crosses versions
  const gathering = gathers(policy.onConflict) ? [policy.onConflict.kind, String(version)] : []
  const scope = [definition, policy.within === 'queue' ? queue : '', ...gathering].join(SEPARATOR)
  const token = `${SEPARATOR}${HASH_VERSION}:${await sha256Hex(canonical(identity))}`
  return { scope, token, ...policy.holding }
}

/** Whether further spawns put their input into the run that is there. */
export function gathers(onConflict: OnConflict): onConflict is Extract<OnConflict, { kind: 'debounce' | 'batch' }> {
  return onConflict.kind === 'debounce' || onConflict.kind === 'batch'
}
