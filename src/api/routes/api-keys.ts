import { notAllowed, PawlError } from '../../core/errors.ts'
import { uuidv7 } from '../../core/ids.ts'
import { checkName } from '../../core/names.ts'
import { nowOf } from '../access.ts'
import type { ApiRequest } from '../api-context.ts'
import { hashApiKey, mintApiKey, SCOPES } from '../api-key.ts'
import { readBody } from '../body.ts'
import { locate } from '../problem.ts'
import { refuseQuery } from '../query.ts'
import { toApiKeyView } from '../representations.ts'
import { apiKeyBody, emptyBody } from '../requests.ts'
import { json } from '../respond.ts'
import { addRoute, type Routing } from '../routing.ts'
import { scopeOf } from './operations.ts'

export function addApiKeyRoutes(routing: Routing): void {
  addRoute(routing, '/v1/api-keys', {
    GET: { scopes: ['admin'], handle: list },
    POST: { scopes: ['admin'], handle: create },
  })
  addRoute(routing, '/v1/api-keys/:id', { DELETE: { scopes: ['admin'], handle: (request) => revoke(request, routing) } })
}

async function list({ http, api, access }: ApiRequest): Promise<Response> {
  refuseQuery(http)
  const keys = await api.store.listApiKeys(scopeOf(access))
  return json(200, { items: keys.map(toApiKeyView), nextCursor: null })
}

/** The one answer that holds the secret. */
async function create(request: ApiRequest): Promise<Response> {
  const { http, api } = request
  refuseQuery(http)
  const body = await readBody(http, apiKeyBody)
  const { name, tenant, scopes } = checkBody(request, body)
  const expiresAt = body.expiresAt === undefined ? null : Date.parse(body.expiresAt)
  if (expiresAt !== null && expiresAt <= nowOf(api)) throw refuse('expiresAt', body.expiresAt, 'an instant to come')
  const key = mintApiKey()
  const record = await api.store.createApiKey({ id: uuidv7(), name, tenant, scopes, expiresAt, hash: await hashApiKey(key) })
  return json(201, { ...toApiKeyView(record), key })
}

function checkBody({ access }: ApiRequest, body: { name: string; scopes: readonly string[]; tenant?: string | undefined }) {
  const check = (field: string, value: string) => located(() => checkName(value, { field, code: 'invalid_request' }))
  const known: readonly string[] = SCOPES
  body.scopes.forEach((scope, index) => {
    if (!known.includes(scope)) throw refuse(`scopes[${index}]`, scope, SCOPES.join(', '))
  })
  const tenant = body.tenant === undefined ? access.tenant : check('tenant', body.tenant)
  // ticks span all tenants, so a tenant's administrator cannot grant them
  if (access.kind !== 'root' && (tenant !== access.tenant || body.scopes.includes('tick'))) {
    throw new PawlError('forbidden', 'Only the root key makes keys for other tenants, or for ticks.', { field: 'scope' })
  }
  return { name: check('name', body.name), tenant, scopes: [...new Set(body.scopes)] }
}

const FIELDS: readonly string[] = ['name', 'scopes', 'tenant', 'expiresAt']

function refuse(field: string, got: unknown, allowed: string): PawlError {
  return locate(notAllowed('invalid_request', { field, got, allowed }), FIELDS)
}

function located<T>(check: () => T): T {
  try {
    return check()
  } catch (error) {
    throw error instanceof PawlError ? locate(error, FIELDS) : error
  }
}

/** Works at once in this instance, within 30 s in others. */
async function revoke({ http, api, access }: ApiRequest, { cache }: Routing): Promise<Response> {
  refuseQuery(http)
  await readBody(http, emptyBody)
  const id = http.req.param('id') ?? ''
  if (!(await api.store.revokeApiKey(id, scopeOf(access)))) {
    throw new PawlError('not_found', `No API key has the id ${JSON.stringify(id.slice(0, 60))}.`, { field: 'id' })
  }
  cache.forget(id)
  return json(200, { id, did: 'revoked' })
}
