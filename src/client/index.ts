/** The client alone: what an application needs that calls pawl over HTTP. */

export type { EmitResult, Reconciled, RetryCall, RetryResult, SignalResult, SpawnItem, SpawnResult } from '../core/calls.ts'
export type { Duration } from '../core/duration.ts'
export { ERROR_CODES, type ErrorCode, type ErrorItem, isPawlError, PawlError } from '../core/errors.ts'
export type { RunError } from '../core/outcome.ts'
export type { ConfirmedError, Decision, ResolveCall, ResolveResult } from '../core/resolution.ts'
export type { Status } from '../core/status.ts'
export type { CancelAnswer, Page } from '../core/store.ts'
export {
  type ClientSpawn,
  type ClientSpawnOptions,
  type CreateClientOptions,
  createClient,
  type DetailedRun,
  type HistoryEntry,
  type HttpClient,
  type ListedRun,
  type ListRunsOptions,
  type PawlTypes,
} from './http-client.ts'
export type { ExplanationView, HealthView, PauseView, QueueView, RunPauseView, StatsView } from './http-operations.ts'
export type { RunResult } from './typed-calls.ts'
