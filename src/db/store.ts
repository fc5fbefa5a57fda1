import type { Database } from '../core/database.ts'
import type { Store } from '../core/store.ts'
import { createAdmissionStore } from './admission.ts'
import { changeMany } from './bulk.ts'
import { createCallerTransactionStore } from './caller-admission.ts'
import { LaneMemory, type StoreContext } from './context.ts'
import { createEngineStore } from './engine.ts'
import { explain } from './explaining.ts'
import { createPausingStore } from './pausing.ts'
import { createReadingStore } from './reading.ts'
import { findReceipt } from './reconciling.ts'
import { createScheduleStore } from './schedules.ts'

export interface StoreOptions {
  readonly database: Database
  /** Schema of the tables. Default `pawl`. */
  readonly schema?: string | undefined
  /** Which environment's runs are seen and run. Default `production`. */
  readonly environment?: string | undefined
  /** The instant that statements take for now, as RFC 3339 text; null: the server's clock. For tests. */
  readonly now?: (() => string | null) | undefined
  /** What is known of the database's lanes: hand the same to every store over one database and save a statement. */
  readonly lanes?: LaneMemory | undefined
}

/** The store over one database. Cheap to make: it holds nothing but what it is given. */
export function createStore(options: StoreOptions): Store {
  const { database, schema = 'pawl', environment = 'production', now = () => null, lanes = new LaneMemory() } = options
  const context: StoreContext = { database, schema, environment, now, lanes }
  const reading = createReadingStore({ database, schema, environment, now })
  return {
    ...createAdmissionStore(context),
    ...createCallerTransactionStore(context),
    findReceipt: (key, scope) => findReceipt(context, key, scope),
    ...createEngineStore(context),
    ...createScheduleStore(context),
    ...createPausingStore(context),
    ...reading,
    changeMany: (request) => changeMany(context, reading, request),
    explain: (id, scope) => explain({ database, schema, environment, now }, id, scope),
  }
}

export { LaneMemory }
