import { DEFAULT_TENANT } from '../core/bounds.ts'
import type { ReceiptStore } from '../core/caller-transaction.ts'
import type { Caller } from '../core/calls.ts'
import { explainDatabaseError } from '../core/database-errors.ts'
import { PawlError } from '../core/errors.ts'
import { isUuid } from '../core/ids.ts'
import { checkName } from '../core/names.ts'
import type { OperatingStore } from '../core/operating.ts'
import type { Registry } from '../core/registry.ts'
import type { AdmissionStore, ReadingStore, RunRecord } from '../core/store.ts'
import type { Pacing } from './wait.ts'

export interface CallDefaults {
  /** Where a caller has none. Default `default`. */
  readonly tenant?: string | undefined
  /** Attempts where neither the call nor the definition says. */
  readonly maxAttempts?: number | undefined
}

export interface CreateCallsOptions {
  readonly store: AdmissionStore & ReceiptStore & OperatingStore & Pick<ReadingStore, 'getRun' | 'stats' | 'health'>
  readonly registry: Registry
  readonly defaults?: CallDefaults | undefined
  /** Called after a commit that may have made a run due: the moment to tick. Must not throw. */
  readonly onCommit?: (() => void) | undefined
  readonly pacing?: Pacing | undefined
}

export interface Surroundings extends CreateCallsOptions {
  readonly defaults: CallDefaults
  readonly committed: () => void
}

export function tenantOf({ defaults }: Surroundings, caller: Caller | undefined): string {
  const tenant = caller?.tenant ?? defaults.tenant
  return tenant === undefined ? DEFAULT_TENANT : checkName(tenant, { field: 'tenant', code: 'invalid_request' })
}

export function notFound(id: string): PawlError {
  return new PawlError('not_found', `No run has the id ${JSON.stringify(String(id).slice(0, 60))}.`, { field: 'id' })
}

/** Throws not_found. */
export async function readRun(around: Surroundings, id: string, caller: Caller | undefined): Promise<RunRecord> {
  const tenant = tenantOf(around, caller)
  const reading = isUuid(id) ? around.store.getRun(id, { tenant }) : Promise.resolve(null)
  const run = await explained(reading, { asked: `Reading run ${id}`, writes: false })
  if (run === null) throw notFound(id)
  return run
}

export async function explained<T>(asking: Promise<T>, options: Parameters<typeof explainDatabaseError>[1]): Promise<T> {
  try {
    return await asking
  } catch (error) {
    throw explainDatabaseError(error, options)
  }
}
