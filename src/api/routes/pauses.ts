import type { LanePauseKind, PauseAnswer } from '../../core/operating.ts'
import type { Access, ApiRequest } from '../api-context.ts'
import { readBody } from '../body.ts'
import { refuseQuery } from '../query.ts'
import { nullableInstant } from '../representations.ts'
import { emptyBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'
import { forgetRun } from './run-actions.ts'
import { callerOf, idOf } from './runs.ts'

type Verb = 'pause' | 'resume'

export function addPauseRoutes(routing: Routing): void {
  for (const verb of ['pause', 'resume'] as const) {
    const onRun = { scopes: ['runs:write', 'ops'] as const, handle: (request: ApiRequest) => holdRun(request, verb) }
    addRoute(routing, `/v1/runs/:id/${verb}`, { POST: onRun })
    for (const [path, kind] of [
      ['queues', 'queue'],
      ['definitions', 'definition'],
    ] as const) {
      const handle = (request: ApiRequest) => changePause(request, verb, kind)
      addRoute(routing, `/v1/${path}/:name/${verb}`, { POST: { scopes: ['ops'], handle } })
    }
  }
}

async function holdRun(request: ApiRequest, verb: Verb): Promise<Response> {
  const { http, api, access } = request
  refuseQuery(http)
  await readBody(http, emptyBody)
  const { calls } = api
  const answer = await (verb === 'pause' ? calls.pauseRun : calls.resumeRun)(idOf(request), callerOf(access))
  if (answer.did === 'resumed' || answer.did === 'paused') kick(api)
  const { id, did, status, hold } = answer
  return json(200, { id, did, status, hold: hold ?? undefined }, forgetRun(id))
}

const CALLS = {
  pause: { queue: 'pauseQueue', definition: 'pauseDefinition' },
  resume: { queue: 'resumeQueue', definition: 'resumeDefinition' },
} as const

async function changePause({ http, api, access }: ApiRequest, verb: Verb, kind: LanePauseKind): Promise<Response> {
  refuseQuery(http)
  await readBody(http, emptyBody)
  const name = http.req.param('name') ?? ''
  const answer = await api.calls[CALLS[verb][kind]](name, operatorOf(access))
  if (answer.did === 'resumed') kick(api)
  return json(200, toPauseView(name, answer))
}

/** A root caller that names no tenant speaks for all of them. */
function operatorOf({ kind, tenant, tenantIsNamed, by }: Access) {
  return { by, tenant: kind === 'root' && !tenantIsNamed ? undefined : tenant }
}

function toPauseView(name: string, { did, paused, by, since }: PauseAnswer) {
  return { name, did, paused, by: by ?? undefined, since: since === null ? undefined : nullableInstant(since) }
}
