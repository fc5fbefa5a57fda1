/** What the cases ask for: parameters over the world of `claim-world.ts`. */
import type { Statement } from '../../src/core/database.ts'
import { takeKeys, writeReceipts } from '../../src/db/statements/admit-runs.ts'
import { type ApplyOutcomesParams, applyOutcomes } from '../../src/db/statements/apply-outcomes.ts'
import type { ClaimRunsParams } from '../../src/db/statements/claim-runs.ts'
import { type InsertRunsParams, insertRuns } from '../../src/db/statements/insert-runs.ts'
import { DEFINITIONS, ENVIRONMENT, idOf, idsOf, TENANT } from '../support/claim-world.ts'

export const S = 'pawl'
export const environment = ENVIRONMENT
export const tenant = TENANT
export const now = null
export const nonce = '00000000-0000-7000-8000-0000000000bb'
export const WRITTEN_BY = '00000000-0000-7000-8000-0000000000aa'
export const scope = { now, environment, tenant }
export const inMinutes = (minutes: number) => new Date(Date.now() + minutes * 60_000).toISOString()
/** Either finds one key of one definition at once. */
export const UNIQUES = 'uniques_pkey|uniques_token_idx'
export const isNull = <T>(ids: readonly T[]) => ids.map(() => null)

export const claimParams: ClaimRunsParams = {
  now,
  environment,
  claimId: '00000000-0000-7000-8000-0000000000cc',
  definitions: DEFINITIONS,
  versions: DEFINITIONS.map(() => 1),
  leaseMs: 60_000,
  limit: 100,
  maxBytes: 8_000_000,
  laneCursor: 0,
  alone: false,
  queues: null,
  satellites: 256,
  knownLanes: [],
  admits: 'ungated',
}

/** Running runs from one to another, which all stand under the full claim of their hundred, and one outcome for them all. */
export function outcomes(
  from: number,
  to: number,
  outcome: string,
  status: string,
  more: Partial<ApplyOutcomesParams> = {},
): Statement {
  const ids = idsOf('running', from, to)
  return applyOutcomes(S, {
    now,
    ids,
    seqs: ids.map(() => 2),
    claimIds: ids.map(() => idOf('claim', from <= 100 ? 1 : 2)),
    outcomes: ids.map(() => outcome),
    statuses: ids.map(() => status),
    fromSteps: ids.map(() => 'run'),
    steps: [],
    states: [],
    results: status === 'completed' ? ids.map(() => '{"ok":true}') : [],
    errors: [],
    delaysMs: [],
    untils: [],
    awaits: outcome === 'wait' ? ids.map(() => 'go') : [],
    elapsedMs: ids.map(() => 5),
    attempts: ids.map(() => 1),
    payloadBytes: [],
    ...more,
  })
}

export const freshId = (n: number) => `0fffffff-0000-7000-8000-${n.toString(16).padStart(12, '0')}`
export const freshIds = Array.from({ length: 100 }, (_, n) => freshId(n))

export function inserts(more: Partial<InsertRunsParams>): Statement {
  const { ids = freshIds } = more
  return insertRuns(S, {
    now,
    lanes: { environment, tenants: [tenant], queues: ['default'], definitions: ['charge'], versions: [1] },
    marked: more.receiptKeys !== undefined,
    nonce,
    ids,
    laneOrdinals: ids.map(() => 1),
    steps: ids.map(() => 'run'),
    priorities: [],
    delaysMs: [],
    runAts: [],
    payloadBytes: ids.map(() => 20),
    retentionSeconds: ids.map(() => 86_400),
    failedRetentionSeconds: ids.map(() => 86_400),
    states: [],
    inputs: ids.map(() => '{"n": 1}'),
    keys: [],
    receiptKeys: [],
    gates: [],
    parentIds: [],
    parentJoinSeqs: [],
    childIndexes: [],
    maxAttempts: ids.map(() => 10),
    tags: [],
    headers: [],
    origins: [],
    gateUnits: [],
    policies: [],
    deadlinesMs: [],
    ...more,
  })
}

export const keys = freshIds.map((_, n) => `fresh${n}`)
export const receiptKeys = freshIds.map((_, n) => `fresh-receipt${n}`)
export const admission = {
  environment,
  nonce,
  ids: freshIds,
  tenants: freshIds.map(() => tenant),
  scopes: freshIds.map(() => 'charge'),
  keys,
  receiptKeys,
  fingerprints: freshIds.map(() => 'f'),
  uniqueScopes: freshIds.map(() => 'charge\u001f'),
  uniqueTokens: keys.map((key) => `\u001f1:${key}`),
  modes: freshIds.map(() => 'debounce'),
}
export const receipts = writeReceipts(S, {
  now,
  environment,
  nonce,
  tenants: admission.tenants,
  keys: receiptKeys,
  fingerprints: admission.fingerprints,
  keepMs: 1_000,
})
export const taken = takeKeys(S, {
  now,
  environment,
  nonce,
  ids: freshIds,
  tenants: admission.tenants,
  scopes: admission.scopes,
  tokens: keys,
  keeps: [],
  expiresMs: [],
  expiresFrom: [],
  reservesMs: [],
  receiptKeys,
  parentIds: [],
  parentJoinSeqs: [],
})
/** Spawns of keys that runs have which are not yet due. */
export const merging = {
  ...admission,
  now,
  keys: freshIds.map((_, n) => `key${n}`),
  inputs: freshIds.map(() => '[1]'),
  states: [],
  payloadBytes: freshIds.map(() => 3),
  gates: [],
  gateUnits: [],
  delaysMs: [],
  runAts: [],
  waitsMs: freshIds.map(() => 1_000),
  maxMs: [],
  sizes: [],
  maxPayloadBytes: 1_000,
  leavesRoom: false,
}
export const keyed = inserts({ keys, receiptKeys })

export const parents = idsOf('running', 101, 150)
export const joined = outcomes(101, 150, 'join', 'waiting')
export const children = inserts({
  parentIds: freshIds.map((_, n) => parents[n % 50] ?? null),
  parentJoinSeqs: freshIds.map(() => 3),
  childIndexes: freshIds.map((_, n) => n),
})

export const waits = idsOf('running', 151, 200)
export const asked = { nonce, runId: null, key: null, definition: null, name: 'go', payload: '{}', receiptKey: null }
export const receipt = { environment, nonce: WRITTEN_BY, tenant, receiptKey: 'k11', fingerprint: 'f' }
export const target = { ...scope, id: idOf('waiting', 50) }
