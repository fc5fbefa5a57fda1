/** pawl: durable jobs, state machines and workflows on your Postgres. */
export type {
  ConnectedPawl,
  ConnectOptions,
  CreatePawlOptions,
  Pawl,
  PawlDefaults,
  RunningTicker,
  TickingOptions,
} from './client/create-pawl.ts'
export { type CreateClientOptions, createClient, type HttpClient } from './client/http-client.ts'
export type { PreparedSpawn, PreparedStatements } from './client/statements.ts'
export type {
  AfterCommit,
  InTransaction,
  SignalledInTransaction,
  SpawnedInTransaction,
  SpawnedManyInTransaction,
} from './client/transaction.ts'
export type {
  EmitOptions,
  NamedDefinition,
  ResultOptions,
  RunAddress,
  RunResult,
  SignalOptions,
  SpawnOptions,
  TenantOption,
  TypedCalls,
  TypedStatements,
} from './client/typed-calls.ts'
export { createPawl } from './compose.ts'
export type { BatchStatement, CallerTransaction } from './core/caller-transaction.ts'
export type {
  EmitCall,
  EmitResult,
  Reconciled,
  RetryCall,
  RetryResult,
  SignalResult,
  SpawnCall,
  SpawnItem,
  SpawnResult,
} from './core/calls.ts'
export type { ChildResult, Inbox, JobContext, RunInfo, StepContext } from './core/context.ts'
export {
  type Database,
  DatabaseError,
  type Parameter,
  type Row,
  type Statement,
  type Transaction,
  type Value,
} from './core/database.ts'
export type { CallOptions, CommonOptions, Definition, InputOf, OnAbandoned, OnTimeout, ResultOf } from './core/definition.ts'
export type { Duration } from './core/duration.ts'
export { ERROR_CODES, type ErrorCode, type ErrorItem, type ErrorKind, isPawlError, PawlError } from './core/errors.ts'
export type { ExplainReason, Explanation } from './core/explain.ts'
export { type Job, type JobOptions, job } from './core/job.ts'
export type { Json, ReadBack } from './core/json.ts'
export { type Limit, type LimitOptions, type LimitUse, limit } from './core/limit.ts'
export type { LogFields, Logger } from './core/logger.ts'
export { type Machine, type MachineOptions, machine } from './core/machine.ts'
export type { EventMessage, SignalMessage } from './core/messages.ts'
export type { BulkAnswer, BulkCall, OperatingCalls, PauseAnswer, RunPauseAnswer } from './core/operating.ts'
export {
  type Call,
  type CommitStatement,
  NonRetryableError,
  nonRetryable,
  type Outcome,
  type RunError,
  type UncertainReport,
} from './core/outcome.ts'
// a star, so that `declare module 'pawl' { interface Register { … } }` reaches it
export * from './core/register.ts'
export type { QueueOptions } from './core/registry.ts'
export type { ConfirmedError, Decision, ResolveCall, ResolveResult } from './core/resolution.ts'
export type { BackoffOptions, RetryOptions } from './core/retry.ts'
export type { Schema } from './core/schema.ts'
export type { Health, QueueStats, Stats } from './core/statistics.ts'
export type { Status } from './core/status.ts'
export type { CancelAnswer, Page, RunRecord } from './core/store.ts'
export type { Budget, TickReport } from './core/tick.ts'
export { type EndOf, endOf } from './core/topics.ts'
export {
  type CronOptions,
  type CronTrigger,
  cron,
  type Delivery,
  type WebhookOptions,
  type WebhookTrigger,
  webhook,
} from './core/trigger.ts'
export type {
  BatchOptions,
  DebounceOptions,
  EndedStatus,
  KeyScope,
  ThrottleOptions,
  UniqueBy,
  UniqueOptions,
} from './core/unique.ts'
