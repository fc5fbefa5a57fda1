import type { NewResolution, ResolveAnswer } from '../core/resolution.ts'
import type { Status } from '../core/status.ts'
import type { Scope } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { statementsOfEnd } from './ending.ts'
import { lockFamilies } from './statements/end-runs.ts'
import { resolveRun } from './statements/resolve-run.ts'

export async function resolve(
  context: StoreContext,
  id: string,
  scope: Scope,
  { resolution, result, error }: NewResolution,
): Promise<ResolveAnswer> {
  const { schema, environment } = context
  const { replies, resent } = await sendRepeatable(context.database, [
    lockFamilies(schema, { ids: [id] }),
    resolveRun(schema, {
      now: context.now(),
      environment,
      tenant: scope.tenant,
      id,
      resolutionId: resolution.id,
      decision: resolution.decision,
      result,
      error,
      resolution: JSON.stringify(resolution),
      fingerprint: resolution.fingerprint,
    }),
    ...(resolution.decision === 'replay' ? [] : statementsOfEnd(context, [id])),
  ])
  const row = replies[1]?.[0]
  if (!row) return { kind: 'not_found' }
  const status = row.status as Status
  if (row.other === true) return { kind: 'other_decision' }
  // found by a resend whose first sending was carried out, it is this very request's doing
  if (row.resolved === true || (row.same === true && resent)) return { kind: 'resolved', status }
  if (row.same === true) return { kind: 'already_applied', status }
  return status === 'uncertain' && row.cancel_requested === true
    ? { kind: 'cancel_requested' }
    : { kind: 'not_uncertain', status }
}
