import type { Statement } from '../core/database.ts'
import type { OperatingStore, PauseAnswer, PauseRequest, RunPauseAnswer } from '../core/operating.ts'
import type { Status } from '../core/status.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { passOnRoom } from './late-handover.ts'
import {
  deletePause,
  followPauses,
  holdRun,
  insertPause,
  lockPauses,
  type PauseParams,
  readPause,
  unholdRun,
} from './statements/change-pauses.ts'
import { ensureEnvironment } from './statements/insert-runs.ts'
import { lockRuns } from './statements/lock-runs.ts'
import { callUpkeep } from './statements/upkeep.ts'

type Pausing = Pick<OperatingStore, 'pause' | 'resume' | 'pauseRun' | 'resumeRun'>

export function createPausingStore(context: StoreContext): Pausing {
  return {
    pause: (request) => changePause(context, request, insertPause, 'paused'),
    resume: (request) => changePause(context, request, deletePause, 'resumed'),
    pauseRun: (id, scope) => pauseRun(context, id, scope),
    resumeRun: async (id, { tenant }) => {
      const { schema, environment } = context
      const statements = [lockRuns(schema, { ids: [id] }), unholdRun(schema, { now: context.now(), environment, tenant, id })]
      return toRunAnswer(id, (await sendRepeatable(context.database, statements)).replies[1]?.[0])
    },
  }
}

async function changePause(
  context: StoreContext,
  request: PauseRequest,
  change: (schema: string, params: PauseParams) => Statement,
  done: 'paused' | 'resumed',
): Promise<PauseAnswer | null> {
  const { schema, environment } = context
  const params: PauseParams = { ...request, now: context.now(), environment, tenant: request.tenant ?? '' }
  const { replies, resent } = await sendRepeatable(context.database, [
    lockPauses(schema, { environment }),
    ensureEnvironment(schema, { environment }),
    change(schema, params),
    followPauses(schema, params),
    readPause(schema, params),
    // among those that are paused now may stand the next one for a limit's room: it is passed on by upkeep
    ...(done === 'paused' ? [callUpkeep(schema, { now: params.now, environment })] : []),
  ])
  const row = replies[4]?.[0]
  if (!row) return null
  const changed = replies[2]?.[0]?.did === true || resent
  const undone = done === 'paused' ? 'already_paused' : 'not_paused'
  return {
    did: changed ? done : undone,
    paused: row.paused === true,
    by: row.by as string | null,
    since: row.since === null ? null : Math.floor(row.since as number),
  }
}

async function pauseRun(
  context: StoreContext,
  id: string,
  { tenant, by }: { readonly tenant: string; readonly by: string | null },
): Promise<RunPauseAnswer | null> {
  const { schema, environment } = context
  const { replies, resent } = await sendRepeatable(context.database, [
    lockRuns(schema, { ids: [id] }),
    holdRun(schema, { now: context.now(), environment, tenant, id, by }),
  ])
  const row = replies[1]?.[0]
  const gates = (row?.gates ?? []) as string[]
  // it may have been handed a gate's room while it waited in the window: pass it on
  if ((row?.did === 'paused' || resent) && gates.length > 0) await passOnRoom(context, gates)
  return toRunAnswer(id, row)
}

function toRunAnswer(id: string, row: Readonly<Record<string, unknown>> | undefined): RunPauseAnswer | null {
  if (!row) return null
  const detail = row.hold_detail as { by?: string; since?: string } | null
  return {
    id,
    did: row.did as RunPauseAnswer['did'],
    status: row.status as Status,
    hold: row.hold === null ? null : { reason: String(row.hold), ...detail },
  }
}
