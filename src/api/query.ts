import type { Context } from 'hono'
import { toMs } from '../core/duration.ts'
import { notAllowed, PawlError } from '../core/errors.ts'
import { isUuid } from '../core/ids.ts'
import { checkKey, checkName, checkTags } from '../core/names.ts'
import { isStatus, STATUSES, type Status } from '../core/status.ts'
import type { ListRunsQuery } from '../core/store.ts'
import { instant } from './requests.ts'

const DEFAULT_LIMIT = 50
const MAX_LIMIT = 500
/** A longer cursor is none of ours. */
const MAX_CURSOR_LENGTH = 200

const REFUSE = { code: 'invalid_request' } as const

/** The query parameters by name. One that is not known, or comes twice, is refused: a filter with a typo would list everything. */
function readQuery(http: Context, allowed: readonly string[], repeatable: readonly string[] = []): Map<string, string> {
  const found = new Map<string, string>()
  for (const [name, value] of new URL(http.req.url).searchParams) {
    if (!allowed.includes(name))
      throw notAllowed('invalid_request', { field: 'query', got: name, allowed: allowed.join(', ') || 'nothing' })
    const before = found.get(name)
    if (before !== undefined && !repeatable.includes(name))
      throw notAllowed('invalid_request', { field: name, got: 'it twice', allowed: 'it once' })
    found.set(name, before === undefined ? value : `${before},${value}`)
  }
  return found
}

export function refuseQuery(http: Context): void {
  readQuery(http, [])
}

/** `limit` and `cursor` of a list. */
export function readPage(http: Context): { readonly limit: number; readonly cursor: string | null } {
  const query = readQuery(http, ['limit', 'cursor'])
  return { limit: limitOf(query), cursor: cursorOf(query) }
}

function limitOf(query: ReadonlyMap<string, string>): number {
  const text = query.get('limit')
  if (text === undefined) return DEFAULT_LIMIT
  const limit = /^\d{1,4}$/.test(text) ? Number(text) : 0
  if (limit >= 1 && limit <= MAX_LIMIT) return limit
  throw notAllowed('invalid_request', { field: 'limit', got: text, allowed: `a whole number from 1 to ${MAX_LIMIT}` })
}

function cursorOf(query: ReadonlyMap<string, string>): string | null {
  const cursor = query.get('cursor') ?? null
  if (cursor === null || (cursor !== '' && cursor.length <= MAX_CURSOR_LENGTH)) return cursor
  throw new PawlError('malformed', 'cursor: it is not one that was answered for this list.', { field: 'cursor' })
}

export function readListQuery(http: Context, tenant: string): ListRunsQuery {
  const names = ['status', 'definition', 'queue', 'key', 'tag', 'parent', 'since', 'until', 'limit', 'cursor']
  const query = readQuery(http, names, ['status'])
  const optional = <T>(name: string, check: (text: string) => T): T | null => {
    const text = query.get(name)
    return text === undefined ? null : check(text)
  }
  return {
    tenant,
    status: optional('status', statusesOf),
    definition: optional('definition', (text) => checkName(text, { ...REFUSE, field: 'definition' })),
    queue: optional('queue', (text) => checkName(text, { ...REFUSE, field: 'queue' })),
    key: optional('key', (text) => checkKey(text, { ...REFUSE, field: 'key' })),
    tag: optional('tag', (text) => checkTags([text], { ...REFUSE, field: 'tag' })[0] ?? null),
    parent: optional('parent', parentOf),
    since: optional('since', (text) => instantOf('since', text)),
    until: optional('until', (text) => instantOf('until', text)),
    limit: limitOf(query),
    cursor: cursorOf(query),
  }
}

function statusesOf(text: string): readonly Status[] {
  const statuses = [...new Set(text.split(','))]
  return statuses.map((status) => {
    if (isStatus(status)) return status
    throw notAllowed('invalid_request', { field: 'status', got: status, allowed: STATUSES.join(', ') })
  })
}

function parentOf(text: string): string {
  if (isUuid(text)) return text
  throw notAllowed('invalid_request', { field: 'parent', got: text, allowed: 'the id of a run' })
}

function instantOf(field: string, text: string): number {
  if (instant.safeParse(text).success) return Date.parse(text)
  throw notAllowed('invalid_request', { field, got: text, allowed: 'an RFC 3339 instant' })
}

/** How long to hold a request for a run: `?wait=20s`, or `Prefer: wait=20` (seconds), which is a wish and never refused. */
export function readWait(http: Context): { readonly ms: number; readonly preferred: number | undefined } {
  const text = readQuery(http, ['wait']).get('wait')
  if (text !== undefined) return { ms: toMs(text, 'wait', REFUSE), preferred: undefined }
  const seconds = /(?:^|[,;\s])wait="?(\d{1,6})"?(?=$|[,;\s])/i.exec(http.req.header('prefer') ?? '')?.[1]
  return seconds === undefined ? { ms: 0, preferred: undefined } : { ms: Number(seconds) * 1_000, preferred: Number(seconds) }
}

/** The header, bare or as the quoted string that the IETF draft asks for. */
export function readIdempotencyKey(http: Context): string | undefined {
  const header = http.req.header('idempotency-key')
  if (header === undefined) return undefined
  const quoted = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header)?.[1]
  return checkKey(quoted === undefined ? header : quoted.replace(/\\(.)/g, '$1'), { field: 'Idempotency-Key', code: 'malformed' })
}
