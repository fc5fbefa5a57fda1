import { DEFAULT_RETENTION_COMPLETED_MS, DEFAULT_RETENTION_FAILED_MS } from './bounds.ts'
import { type Duration, toMs } from './duration.ts'

/** How long ended runs are kept, from their end on: all of them, or those that completed and the others apart. */
export type RetentionOption =
  | Duration
  | { readonly completed?: Duration | undefined; readonly failed?: Duration | undefined }
  | undefined

/** What was said of it, in milliseconds. */
export interface DeclaredRetention {
  readonly completed: number | undefined
  readonly failed: number | undefined
}

/** `failed` also holds for cancelled and discarded runs. */
export interface RetentionMs {
  readonly completed: number
  readonly failed: number
}

/** Throws `invalid_configuration` for what is no duration. */
export function toDeclaredRetention(retention: RetentionOption, field: string): DeclaredRetention {
  const { completed, failed } =
    typeof retention === 'object' && retention !== null ? retention : { completed: retention, failed: retention }
  return {
    completed: completed === undefined ? undefined : toMs(completed, `${field}.completed`),
    failed: failed === undefined ? undefined : toMs(failed, `${field}.failed`),
  }
}

/** What the definition says goes before what its queue says, and that before the default. */
export function retentionOf(definition: DeclaredRetention | undefined, queue: RetentionOption): RetentionMs {
  const ofQueue = toDeclaredRetention(queue, 'retention')
  return {
    completed: definition?.completed ?? ofQueue.completed ?? DEFAULT_RETENTION_COMPLETED_MS,
    failed: definition?.failed ?? ofQueue.failed ?? DEFAULT_RETENTION_FAILED_MS,
  }
}
