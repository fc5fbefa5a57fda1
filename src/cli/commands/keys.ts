import { hashApiKey, mintApiKey, SCOPES } from '../../api/api-key.ts'
import { DEFAULT_TENANT } from '../../core/bounds.ts'
import { toMs } from '../../core/duration.ts'
import { uuidv7 } from '../../core/ids.ts'
import { checkName } from '../../core/names.ts'
import type { Store } from '../../core/store.ts'
import { createStore } from '../../db/store.ts'
import { type Command, type CommandCall, required, UsageError } from '../command.ts'
import { toTable } from '../terminal.ts'
import { DATABASE_OPTIONS, ENVIRONMENT_OPTION, withDatabase } from '../with-database.ts'

export const keysCommand: Command = {
  name: 'keys',
  takes: 'create | list | revoke <id>',
  arguments: 2,
  does: 'makes, lists and revokes API keys, in the database itself: no key is needed for it',
  options: {
    ...DATABASE_OPTIONS,
    ...ENVIRONMENT_OPTION,
    name: { kind: 'text', does: 'create: what the key is for. Default: cli' },
    scopes: { kind: 'text', does: `create: some of ${SCOPES.join(',')}. Default: admin` },
    tenant: { kind: 'text', does: `create: whose key it is. Default: ${DEFAULT_TENANT}; list: only its keys` },
    'expires-in': { kind: 'text', does: 'create: for how long it is valid, such as "90 days". Default: for ever' },
  },
  run: async (call) => {
    const verb = required(call, 0, 'create | list | revoke')
    if (!['create', 'list', 'revoke'].includes(verb)) throw new UsageError(`got ${verb}, allowed is create, list or revoke`)
    const id = verb === 'revoke' ? required(call, 1, 'id') : ''
    return withDatabase(call, async (database) => {
      const store = createStore({ database, schema: call.text('schema'), environment: call.text('environment') })
      if (verb === 'create') return createKey(call, store)
      if (verb === 'list') return listKeys(call, store)
      return revokeKey(call, store, id)
    })
  },
}

/** The secret alone goes to the output, so that a script can take it; it is shown once. */
async function createKey(call: CommandCall, store: Store): Promise<number> {
  const { terminal } = call
  const secret = mintApiKey()
  const expiresIn = call.text('expires-in')
  const key = await store.createApiKey({
    id: uuidv7(),
    name: checkName(call.text('name') ?? 'cli', { field: '--name', code: 'invalid_request' }),
    tenant: checkName(call.text('tenant') ?? DEFAULT_TENANT, { field: '--tenant', code: 'invalid_request' }),
    scopes: toScopes(call.text('scopes') ?? 'admin'),
    expiresAt: expiresIn === undefined ? null : Date.now() + toMs(expiresIn, '--expires-in', { code: 'invalid_request' }),
    hash: await hashApiKey(secret),
  })
  terminal.print(secret)
  terminal.tell(`key ${key.id} "${key.name}" of tenant ${key.tenant}: ${key.scopes.join(', ')}. It is not shown again.`)
  return 0
}

function toScopes(text: string): readonly string[] {
  const scopes = text.split(',').map((scope) => scope.trim())
  const unknown = scopes.find((scope) => !SCOPES.some((known) => known === scope))
  if (unknown !== undefined) throw new UsageError(`--scopes: got ${unknown}, allowed are ${SCOPES.join(', ')}`)
  return scopes
}

async function listKeys(call: CommandCall, store: Store): Promise<number> {
  const tenant = call.text('tenant')
  const keys = await store.listApiKeys(tenant === undefined ? null : { tenant })
  const rows = keys.map((key) => [key.id, key.name, key.tenant, stateOf(key), key.scopes.join(',')])
  for (const line of toTable(['ID', 'NAME', 'TENANT', 'STATE', 'SCOPES'], rows)) call.terminal.print(line)
  return 0
}

function stateOf({ revokedAt, expiresAt }: { readonly revokedAt: number | null; readonly expiresAt: number | null }): string {
  if (revokedAt !== null) return 'revoked'
  if (expiresAt === null) return 'valid'
  return expiresAt <= Date.now() ? 'expired' : `valid until ${new Date(expiresAt).toISOString().slice(0, 10)}`
}

async function revokeKey({ terminal }: CommandCall, store: Store, id: string): Promise<number> {
  const revoked = await store.revokeApiKey(id, null)
  terminal.tell(revoked ? `revoked ${id}: instances that knew it forget it within 30 s` : `pawl keys: there is no key ${id}`)
  return revoked ? 0 : 1
}
