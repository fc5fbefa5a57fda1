import type { AdmissionStore } from '../core/store.ts'
import { cancel, retry } from './changing.ts'
import type { StoreContext } from './context.ts'
import { emitEvent } from './events.ts'
import { resolve } from './resolving.ts'
import { signalRun } from './signalling.ts'
import { spawn } from './spawn-runs.ts'

export function createAdmissionStore(context: StoreContext): AdmissionStore {
  return {
    spawn: (runs) => spawn(context, runs),
    signal: (signal) => signalRun(context, signal),
    emit: (event) => emitEvent(context, event),
    cancel: (id, scope) => cancel(context, id, scope),
    retry: (id, scope) => retry(context, id, scope),
    resolve: (id, scope, resolution) => resolve(context, id, scope, resolution),
  }
}
