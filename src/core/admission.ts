/** What a spawn asks for beside the run itself, and what came of it. */
import type { Status } from './status.ts'

/** How long a run holds what no other may have. A key, always while the run lives; with a period, until then at least. */
export interface Holding {
  /** Ended runs that go on holding it: 1 completed, 2 failed, 4 cancelled, 8 discarded. 16: held only until the run starts. */
  readonly keep: number
  /** From the spawn on. Of a key: reserved at least so long. Else: held no longer, whatever becomes of the run. */
  readonly periodMs?: number
  /** The period begins when the run is to start. */
  readonly fromSchedule?: true
}

/** What no other run may hold in the same tenant and environment. */
export interface UniqueEntry extends Holding {
  readonly scope: string
  readonly token: string
}

/**
 * What a spawn does to the run that has its key or its entry, when that has not started: nothing; give it the new start; put the input in
 * place of its own and let it wait anew; add the input, a list, to its own.
 */
export type OnConflict =
  | { readonly kind: 'keep' | 'reschedule' }
  | { readonly kind: 'debounce'; readonly waitMs: number; readonly maxMs: number | null }
  | { readonly kind: 'batch'; readonly waitMs: number; readonly size: number }

/**
 * What an admission came to. `occupied`: the key or the uniqueness belongs to another run, to which nothing was done but the `effect`.
 * `contended`: the run that has it went and came so often meanwhile that nothing was decided; nothing was written.
 */
export type Admission =
  | { readonly kind: 'created'; readonly id: string; readonly status: Status }
  | { readonly kind: 'occupied'; readonly id: string; readonly status: Status; readonly effect?: SpawnEffect | undefined }
  | {
      readonly kind: 'replayed'
      readonly id: string
      readonly status: Status
      readonly created: boolean
      readonly effect?: SpawnEffect | undefined
    }
  | { readonly kind: 'mismatch' }
  | { readonly kind: 'id_taken' }
  | { readonly kind: 'contended' }

/** What a spawn did to a run that was there: gave it another start, or put its input into it. */
export type SpawnEffect = 'rescheduled' | 'gathered'
