import type { Caller } from '../core/calls.ts'
import { notAllowed } from '../core/errors.ts'
import { isUuid } from '../core/ids.ts'
import { checkKey, checkName, checkTags } from '../core/names.ts'
import type { BulkAnswer, BulkCall, BulkFilter } from '../core/operating.ts'
import { isStatus, STATUSES, type Status } from '../core/status.ts'
import type { ListRunsQuery } from '../core/store.ts'
import { explained, type Surroundings, tenantOf } from './surroundings.ts'

const FILTERS: readonly (keyof BulkFilter)[] = ['status', 'definition', 'queue', 'key', 'tag', 'parent', 'since', 'until']
const CODE = 'invalid_request'

export async function changeMany(around: Surroundings, call: BulkCall, caller: Caller | undefined): Promise<BulkAnswer> {
  const { action, filter, cursor = null } = call
  if (action !== 'cancel' && action !== 'retry')
    throw notAllowed(CODE, { field: 'action', got: action, allowed: 'cancel or retry' })
  const query = toQuery(filter, tenantOf(around, caller), cursor)
  const asking = around.store.changeMany({ action, query, by: caller?.by ?? null })
  const answer = await explained(asking, { asked: `To ${action} many runs`, remedy: 'Ask again: each is changed once.' })
  if (answer.affected > 0) around.committed()
  return answer
}

/** A filter that says nothing would take everything, one with a member that is mistyped more than was meant: both are refused. */
function toQuery(filter: BulkFilter, tenant: string, cursor: string | null): ListRunsQuery {
  const unknown = Object.keys(filter).find((name) => !FILTERS.some((known) => known === name))
  if (unknown !== undefined) throw notAllowed(CODE, { field: 'filter', got: unknown, allowed: FILTERS.join(', ') })
  if (!FILTERS.some((name) => filter[name] !== undefined)) {
    throw notAllowed(CODE, { field: 'filter', got: 'an empty one', allowed: `at least one of ${FILTERS.join(', ')}` })
  }
  const { status, definition, queue, key, tag, parent, since, until } = filter
  if (parent !== undefined && !isUuid(parent))
    throw notAllowed(CODE, { field: 'filter.parent', got: parent, allowed: 'the id of a run' })
  return {
    tenant,
    status: status === undefined ? null : (typeof status === 'string' ? [status] : status).map(toStatus),
    definition: definition === undefined ? null : checkName(definition, { field: 'filter.definition', code: CODE }),
    queue: queue === undefined ? null : checkName(queue, { field: 'filter.queue', code: CODE }),
    key: key === undefined ? null : checkKey(key, { field: 'filter.key', code: CODE }),
    tag: tag === undefined ? null : (checkTags([tag], { field: 'filter.tag', code: CODE })[0] ?? null),
    parent: parent ?? null,
    since: toInstant(since, 'filter.since'),
    until: toInstant(until, 'filter.until'),
    limit: 1,
    cursor,
  }
}

function toStatus(status: unknown): Status {
  if (isStatus(status)) return status
  throw notAllowed(CODE, { field: 'filter.status', got: status, allowed: STATUSES.join(', ') })
}

function toInstant(instant: Date | string | undefined, field: string): number | null {
  if (instant === undefined) return null
  const ms = instant instanceof Date ? instant.getTime() : Date.parse(instant)
  if (Number.isNaN(ms)) throw notAllowed(CODE, { field, got: instant, allowed: 'an RFC 3339 instant' })
  return ms
}
