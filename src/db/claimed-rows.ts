import type { Row } from '../core/database.ts'
import type { RunError } from '../core/outcome.ts'
import type { Status } from '../core/status.ts'
import type { ClaimedRun, InboxEntry, JoinedChild, RunPolicy } from '../core/store.ts'
import type { Lane } from './context.ts'

/** What only some runs have, in one column: most rows carry a null instead of a dozen. */
interface Extras {
  readonly key: string | null
  readonly tags: readonly string[] | null
  readonly headers: Readonly<Record<string, string>> | null
  readonly parentId: string | null
  readonly gateUnits: readonly number[] | null
  readonly heldGates: readonly string[] | null
  readonly policy: RunPolicy | null
  readonly awaited: boolean
  readonly awaits: readonly string[] | null
  readonly timedOut: boolean
  readonly snoozes: number
  readonly lonelyLosses: number
  readonly cancelRequested: boolean
  readonly inbox: Satellites<InboxEntry> | null
  readonly joinSeq: number | null
  readonly children: Satellites<JoinedChild> | null
}

/** What came with the claim, and whether there is more of it to fetch. */
interface Satellites<T> {
  readonly items: readonly T[]
  readonly more: boolean
}

const NO_EXTRAS: Partial<Extras> = Object.freeze({})
const NONE: readonly never[] = Object.freeze([])
const NO_HEADERS = Object.freeze({})
const NO_POLICY: RunPolicy = Object.freeze({})

export function toClaimedRun(row: Row, lane: Lane, claimId: string): ClaimedRun {
  // rows enter here: the columns are those of the claim statement
  const extras = (row.extras as unknown as Partial<Extras> | null) ?? NO_EXTRAS
  return {
    id: row.id as string,
    claimId,
    seq: row.seq as number,
    visit: row.visit as number,
    step: row.step as string,
    tenant: lane.tenant,
    queue: lane.queue,
    definition: lane.definition,
    version: lane.version,
    failures: row.failures as number,
    losses: row.losses as number,
    lonelyLosses: extras.lonelyLosses ?? 0,
    snoozes: extras.snoozes ?? 0,
    maxAttempts: row.max_attempts as number,
    payloadBytes: row.payload_bytes as number,
    key: extras.key ?? null,
    tags: extras.tags ?? NONE,
    headers: extras.headers ?? NO_HEADERS,
    parentId: extras.parentId ?? null,
    gates: (row.gates as readonly string[] | null) ?? NONE,
    gateUnits: extras.gateUnits ?? null,
    heldGates: extras.heldGates ?? NONE,
    policy: extras.policy ?? NO_POLICY,
    awaited: extras.awaited ?? false,
    awaits: extras.awaits ?? NONE,
    timedOut: extras.timedOut ?? false,
    cancelRequested: extras.cancelRequested ?? false,
    input: row.input,
    state: row.state,
    inbox: extras.inbox?.items ?? NONE,
    inboxMore: extras.inbox?.more === true,
    joinSeq: extras.joinSeq ?? null,
    children: extras.children?.items ?? NONE,
    childrenMore: extras.children?.more === true,
  }
}

export function toInboxEntry(row: Row): InboxEntry {
  return {
    id: row.id as string,
    name: row.name as string,
    payload: row.payload,
    receivedAt: row.received_at as number,
  }
}

export function toJoinedChild(row: Row): JoinedChild {
  return {
    id: row.id as string,
    definition: row.definition as string,
    key: row.key as string | null,
    index: row.child_index as number,
    status: row.status as Status,
    result: row.result,
    error: row.error as unknown as RunError | null,
  }
}
