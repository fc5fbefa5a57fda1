import type { StepContextRuntime } from '../core/context.ts'
import type { AnyDefinition } from '../core/definition.ts'
import type { RunError } from '../core/outcome.ts'
import type { Registry } from '../core/registry.ts'
import type { ClaimedRun } from '../core/store.ts'
import type { RunTarget } from '../core/topics.ts'

/** What came of calling a handler. */
export type StepResult =
  | { readonly kind: 'returned'; readonly value: unknown }
  | { readonly kind: 'thrown'; readonly thrown: unknown; readonly code?: string | undefined }

/** A step that was run, and what settling its outcome asks. */
export interface SettleParams {
  readonly run: ClaimedRun
  readonly definition: AnyDefinition
  readonly registry: Registry
  readonly result: StepResult
  readonly elapsedMs: number
  /** Makes the context that `onError` is given. */
  readonly contextFor: (failure: { readonly error: RunError; readonly thrown: unknown }) => StepContextRuntime
  readonly random: () => number
  /** Ids of runs of that tenant that are to be waited for; null: there is none. */
  readonly findRuns: (tenant: string, targets: readonly RunTarget[]) => Promise<readonly (string | null)[]>
}
