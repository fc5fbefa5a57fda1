import { expect, onTestFinished, test } from 'vitest'
import type { Statement } from '../../src/core/database.ts'
import { decideReceipts, dropUnborn, readAdmissions } from '../../src/db/statements/admit-runs.ts'
import { applyOutcomes } from '../../src/db/statements/apply-outcomes.ts'
import { endCascades, followParents } from '../../src/db/statements/cascade.ts'
import { retakeKeys, retryRun } from '../../src/db/statements/change-runs.ts'
import { recoverClaim } from '../../src/db/statements/claim-runs.ts'
import { findEndings, judgeDeadlines } from '../../src/db/statements/deadlines.ts'
import { deliverSignal } from '../../src/db/statements/deliver-signals.ts'
import { endRequested, lockFamilies, requestCancel, tryLockFamilies } from '../../src/db/statements/end-runs.ts'
import { lockFreeWaiters, lockWaiters, tellEnd, tellEvent } from '../../src/db/statements/events.ts'
import { keepGates, releaseGates, releaseKept, switchGates } from '../../src/db/statements/gates.ts'
import { holdMismatched } from '../../src/db/statements/hold-runs.ts'
import { dropLapsedClaims, extendClaims, readClaimed } from '../../src/db/statements/keep-claims.ts'
import { loadChildren, loadInbox } from '../../src/db/statements/load-satellites.ts'
import { lockRuns } from '../../src/db/statements/lock-runs.ts'
import { leaveEnds, leaveMessages } from '../../src/db/statements/outbox.ts'
import { readHistory } from '../../src/db/statements/read-history.ts'
import { readRun } from '../../src/db/statements/read-run.ts'
import { noteUncertainty, resolveRun } from '../../src/db/statements/resolve-run.ts'
import {
  consumeSignals,
  creditParents,
  endClaims,
  parkParents,
  recheckWaits,
  releaseKeys,
  releaseKeysAgain,
  requireApplied,
} from '../../src/db/statements/settle-outcomes.ts'
import { dismissStragglers } from '../../src/db/statements/stragglers.ts'
import { awaitRuns, findRuns, forgetWaits, hearEvents, registerWaits } from '../../src/db/statements/topics.ts'
import { type FreshDatabase, forEachVersion, freshDatabase } from '../support/database.ts'
import { explain, nodesOf } from '../support/plans.ts'

const S = 'pawl'
const ROWS = 20_000
const scope = { now: null, environment: 'production', tenant: 'default' }
const id = '00000000-0000-7000-8000-000000000007'
const ids = Array.from({ length: 100 }, (_, n) => `00000000-0000-7000-8000-${String(n + 1).padStart(12, '0')}`)
const each = <T>(value: T) => ids.map(() => value)

/** Every statement that finds rows by id. */
const STATEMENTS: readonly Statement[] = [
  applyOutcomes(S, {
    now: null,
    ids,
    seqs: each(1),
    claimIds: each(id),
    outcomes: each('done'),
    statuses: each('completed'),
    fromSteps: each('run'),
    steps: each(null),
    states: each(null),
    results: each('1'),
    errors: each(null),
    delaysMs: each(null),
    awaits: each(null),
    elapsedMs: each(1),
    attempts: each(1),
    payloadBytes: each(null),
    untils: each(null),
  }),
  lockRuns(S, { ids }),
  lockFamilies(S, { ids }),
  tryLockFamilies(S, { ids }),
  requestCancel(S, { ...scope, ids, cancellation: '{}' }),
  endRequested(S, { now: null, ids }),
  findEndings(S, { now: null, environment: 'production', limit: 100 }),
  judgeDeadlines(S, { now: null, ids }),
  followParents(S, { now: null, ids }),
  endCascades(S, { parentIds: ids }),
  retakeKeys(S, { ...scope, ids }),
  retryRun(S, { ...scope, id, maxAttempts: null }),
  resolveRun(S, {
    ...scope,
    id,
    resolutionId: 'd',
    decision: 'replay',
    result: null,
    error: null,
    resolution: '{}',
    fingerprint: '1:f',
  }),
  holdMismatched(S, { now: null, ids, details: ids.map(() => 'x') }),
  noteUncertainty(S, { now: null, ids, reports: ids.map(() => '{}') }),
  deliverSignal(S, { ...scope, nonce: id, runId: id, key: null, definition: null, name: 'a', payload: null, receiptKey: null }),
  deliverSignal(S, { ...scope, nonce: id, runId: null, key: 'k7', definition: null, name: 'a', payload: null, receiptKey: null }),
  readRun(S, { ...scope, id }),
  readHistory(S, { ...scope, id, afterSeq: 0, limit: 50 }),
  recoverClaim(S, { claimId: id, satellites: 256, knownLanes: [1] }),
  extendClaims(S, { now: null, claimIds: ids, leaseMs: 1_000 }),
  readClaimed(S, { ids, claimIds: ids }),
  endClaims(S, { claimIds: ids }),
  dropLapsedClaims(S, { now: null, environment: 'production', limit: 100 }),
  loadInbox(S, { runId: id, names: ['a'], afterId: '0', limit: 256 }),
  loadChildren(S, { parentId: id, joinSeq: 1, afterIndex: 0, limit: 256 }),
  parkParents(S, { now: null, ids, needs: each(null), failFasts: each(false), cancelsStragglers: each(false) }),
  creditParents(S, { now: null, ids }),
  consumeSignals(S, { runIds: ids, signalIds: each('1') }),
  recheckWaits(S, { now: null, ids, shownRunIds: ids, shownSignalIds: each('1') }),
  releaseGates(S, { now: null, ids }),
  keepGates(S, { ids }),
  switchGates(S, { ids, gates: [], units: [] }),
  releaseKept(S, { now: null, ids }),
  releaseKeys(S, { now: null, ids }),
  releaseKeysAgain(S, { now: null, ids }),
  dropUnborn(S, { ids }),
  registerWaits(S, { now: null, runIds: ids, topics: each('event:t1') }),
  hearEvents(S, { now: null, runIds: ids, topics: each('event:t1') }),
  awaitRuns(S, { now: null, runIds: ids, topics: ids.map((run) => `run:${run}`) }),
  forgetWaits(S, { ids }),
  findRuns(S, { ...scope, ids, definitions: each(null), keys: each(null) }),
  lockFreeWaiters(S, { ...scope, topic: 'event:t1', after: null, limit: 1_000 }),
  lockWaiters(S, { ...scope, topic: `run:${id}`, after: null, limit: 1_000 }),
  tellEvent(S, { ...scope, topic: 'event:t1', after: null, limit: 1_000, nonce: id, messageId: null }),
  tellEnd(S, { ...scope, topic: `run:${id}`, after: null, limit: 1_000, nonce: null, messageId: '1' }),
  leaveMessages(S, { now: null, runIds: ids, kinds: each('event'), subjects: each('t1'), bodies: each('{}') }),
  leaveEnds(S, { now: null, ids }),
  dismissStragglers(S, { now: null, ids, joinSeqs: each(1) }),
  requireApplied(S, { runId: id, seq: 1 }),
  ...[readAdmissions, decideReceipts].map((statement) =>
    statement(S, {
      environment: 'production',
      nonce: id,
      ids,
      tenants: each('default'),
      scopes: each('task'),
      keys: each('k1'),
      receiptKeys: each('r1'),
      fingerprints: each('f'),
      uniqueScopes: each('task'),
      uniqueTokens: each('k2'),
      modes: each('batch'),
    }),
  ),
]

/** Tables that grow with the work; the rest is small by nature. */
const GROWING = ['runs', 'history', 'signals', 'uniques']

forEachVersion('trap 25: a lookup by id uses the index of the id', (version) => {
  test.each(['never analysed', 'analysed when empty', 'analysed'] as const)(
    'trap 25: when the tables were %s',
    async (statistics) => {
      const fresh = await ownDatabase(version)
      if (statistics === 'analysed when empty') await run(fresh, 'ANALYZE')
      await fill(fresh)
      if (statistics === 'analysed') await run(fresh, 'ANALYZE')
      expect(await scansOf(fresh, 'force_generic_plan')).toEqual([])
      expect(await scansOf(fresh, 'force_custom_plan')).toEqual([])
    },
  )

  test.each(['never analysed', 'analysed when empty'] as const)(
    'trap 25: when the plan was made while the tables were empty and %s',
    async (statistics) => {
      const fresh = await ownDatabase(version)
      if (statistics === 'analysed when empty') await run(fresh, 'ANALYZE')
      expect(await scansOf(fresh, 'force_generic_plan', () => fill(fresh))).toEqual([])
    },
  )

  test('trap 25: when the server settles on a plan of its own', async () => {
    const fresh = await ownDatabase(version)
    await fill(fresh)
    expect(await scansOf(fresh, 'auto')).toEqual([])
  })
})

async function ownDatabase(version: 15 | 18): Promise<FreshDatabase> {
  const fresh = await freshDatabase(version)
  onTestFinished(fresh.close)
  // statistics are what the test says they are
  for (const table of [...GROWING, 'event_waits', 'receipts', 'claims', 'lanes', 'ready'])
    await run(fresh, `ALTER TABLE pawl.${table} SET (autovacuum_enabled = false)`)
  return fresh
}

async function run(fresh: FreshDatabase, text: string): Promise<void> {
  await fresh.pool({ max: 1 }).query(text)
}

/** Runs in every state, most of them ended, with what belongs to them. */
function fill(fresh: FreshDatabase): Promise<void> {
  const key = "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid"
  return run(
    fresh,
    `INSERT INTO pawl.environments (name) VALUES ('production');
     INSERT INTO pawl.lanes (environment_id, tenant, queue, definition, version) SELECT 1, 'default', 'q' || n, 'task', 1 FROM generate_series(1, 5) n;
     INSERT INTO pawl.runs (id, created_at, available_at, updated_at, finished_at, lane_id, environment_id, priority, max_attempts, payload_bytes,
       retention_seconds, failed_retention_seconds, status, step, key, parent_id, parent_join_seq, child_index, input)
     SELECT ${key}, now(), now(), now(), CASE WHEN n % 10 > 0 THEN now() END, 1 + n % 5, 1, 0, 3, 10, 1000, 1000,
       CASE WHEN n % 10 > 0 THEN 'completed' ELSE 'pending' END::pawl.run_status, 'run', 'k' || n,
       CASE WHEN n % 100 = 1 THEN '${id}'::uuid END, CASE WHEN n % 100 = 1 THEN 1 END, CASE WHEN n % 100 = 1 THEN n END, '{"some": "input of ordinary length"}'
     FROM generate_series(1, ${ROWS}) n;
     INSERT INTO pawl.ready (lane_id, priority, available_at, position, run_id) SELECT lane_id, 0, available_at, position, id FROM pawl.runs WHERE status = 'pending';
     INSERT INTO pawl.history (run_id, seq, visit, attempt, started_at, finished_at, step, outcome)
     SELECT ${key}, s, 1, 1, now(), now(), 'run', 'done' FROM generate_series(1, ${ROWS}) n, generate_series(1, 2) s;
     INSERT INTO pawl.signals (run_id, name, created_at, payload) SELECT ${key}, 'a', now(), '1' FROM generate_series(1, ${ROWS}) n;
     INSERT INTO pawl.uniques (tenant, environment_id, scope, token, run_id) SELECT 'default', 1, 'task', 'k' || n, ${key} FROM generate_series(1, ${ROWS}) n;
     INSERT INTO pawl.event_waits (tenant, environment_id, topic, run_id) SELECT 'default', 1, 'event:t' || n % 100, ${key} FROM generate_series(1, ${ROWS}) n;
     INSERT INTO pawl.receipts (tenant, environment_id, key, fingerprint, nonce, created_at, expires_at)
     SELECT 'default', 1, 'r' || n, 'f', ${key}, now(), now() FROM generate_series(1, ${ROWS}) n;
     INSERT INTO pawl.claims (id, environment_id, lease_until, alone, run_ids) SELECT ${key}, 1, now(), false, ARRAY[${key}] FROM generate_series(1, 50) n;`,
  )
}

/** Statements whose plan reads a growing table from one end to the other, or a whole index of it. `between`: after they were planned once. */
async function scansOf(
  fresh: FreshDatabase,
  mode: string,
  between: () => Promise<void> = async () => {},
): Promise<readonly string[]> {
  const client = await fresh.pool({ max: 1 }).connect()
  await client.query(`SET plan_cache_mode = ${mode}`)
  for (const [index, { text }] of STATEMENTS.entries()) await client.query(`PREPARE s${index} AS ${text}`)
  const times = mode === 'auto' ? 7 : 1
  for (let time = 0; time < times; time += 1) {
    for (const [index, statement] of STATEMENTS.entries()) await explain(client, `s${index}`, statement)
  }
  await between()
  const found: string[] = []
  for (const [index, statement] of STATEMENTS.entries()) {
    for (const node of nodesOf(await explain(client, `s${index}`, statement))) {
      const whole = node['Node Type'] === 'Seq Scan' || (/Index/.test(node['Node Type']) && !('Index Cond' in node))
      if (whole && isGrowing(node))
        found.push(`${statement.name}: ${node['Node Type']} on ${node['Relation Name'] ?? node['Index Name']}`)
    }
  }
  client.release()
  return found
}

function isGrowing(node: { readonly 'Relation Name'?: string; readonly 'Index Name'?: string }): boolean {
  return GROWING.some((table) => node['Relation Name'] === table || node['Index Name']?.startsWith(`${table}_`))
}
