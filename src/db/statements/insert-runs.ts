import { CLOCK, defineStatement } from './statement.ts'

/** Where runs are put: the distinct (tenant, queue, definition, version) of a batch, few. The arrays are parallel. */
export interface LanesParams {
  readonly environment: string
  readonly tenants: readonly string[]
  readonly queues: readonly string[]
  readonly definitions: readonly string[]
  readonly versions: readonly number[]
}

export const ensureEnvironment = defineStatement<{ readonly environment: string }>(
  'ensure_environment',
  (s) => `
INSERT INTO ${s}.environments (name)
SELECT $1::text WHERE NOT EXISTS (SELECT FROM ${s}.environments WHERE name = $1::text)
ON CONFLICT DO NOTHING
`,
  (p) => [p.environment],
)

/** Makes the lanes that are new. A lane of a paused queue begins paused. */
export const ensureLanes = defineStatement<LanesParams>(
  'ensure_lanes',
  (s) => `
INSERT INTO ${s}.lanes (environment_id, tenant, queue, definition, version, paused)
SELECT e.id, n.tenant, n.queue, n.definition, n.version, coalesce((SELECT q.paused FROM ${s}.queues q WHERE q.environment_id = e.id AND q.name = n.queue), false)
FROM unnest($2::text[], $3::text[], $4::text[], $5::int[]) AS n(tenant, queue, definition, version)
JOIN ${s}.environments e ON e.name = $1::text
WHERE NOT EXISTS (
  SELECT FROM ${s}.lanes l
  WHERE l.tenant = n.tenant AND l.environment_id = e.id AND l.queue = n.queue AND l.definition = n.definition AND l.version = n.version)
ORDER BY n.tenant, n.queue, n.definition, n.version
ON CONFLICT DO NOTHING
`,
  (p) => [p.environment, p.tenants, p.queues, p.definitions, p.versions],
)

/** Runs to insert. Arrays over items are parallel; a shorter or empty one means null (the default) for the rest. */
export interface InsertRunsParams {
  readonly now: string | null
  readonly lanes: LanesParams
  /** Receipts of this request bear it; an item with a receipt key is inserted only under a receipt that does. */
  readonly nonce: string
  readonly ids: readonly string[]
  /** Index into the lanes, 1-based. */
  readonly laneOrdinals: readonly number[]
  readonly steps: readonly string[]
  readonly priorities: readonly (number | null)[]
  /** Milliseconds from now, or an instant as epoch milliseconds; both null: at once. */
  readonly delaysMs: readonly (number | null)[]
  readonly runAts: readonly (number | null)[]
  readonly payloadBytes: readonly number[]
  readonly retentionSeconds: readonly number[]
  readonly failedRetentionSeconds: readonly number[]
  readonly states: readonly (string | null)[]
  readonly inputs: readonly (string | null)[]
  readonly keys: readonly (string | null)[]
  readonly receiptKeys: readonly (string | null)[]
  readonly gates: readonly (string | null)[]
  readonly parentIds: readonly (string | null)[]
  readonly parentJoinSeqs: readonly (number | null)[]
  readonly childIndexes: readonly (number | null)[]
  readonly maxAttempts: readonly number[]
  /** Tags of one run, joined by the unit separator. */
  readonly tags: readonly (string | null)[]
  readonly headers: readonly (string | null)[]
  readonly origins: readonly (string | null)[]
}

/** $2–$6 lanes, then the items: the same parameters serve both inserts. */
const items = (s: string) => `
${CLOCK},
lane AS (
  SELECT n.ordinal, l.id, l.environment_id, l.tenant, l.queue, l.definition, l.version
  FROM unnest($3::text[], $4::text[], $5::text[], $6::int[]) WITH ORDINALITY AS n(tenant, queue, definition, version, ordinal)
  JOIN ${s}.environments e ON e.name = $2::text
  JOIN ${s}.lanes l ON l.tenant = n.tenant AND l.environment_id = e.id AND l.queue = n.queue AND l.definition = n.definition AND l.version = n.version
)`

/** Whether an item may be inserted: it holds its key, its receipt is ours, and its parent was parked in this transaction. */
const admissible = (s: string) => `
  (i.key IS NULL OR EXISTS (
    SELECT FROM ${s}.uniques u
    WHERE u.tenant = lane.tenant AND u.environment_id = lane.environment_id AND u.scope = lane.definition AND u.token = i.key AND u.run_id = i.id))
  AND (i.receipt_key IS NULL OR EXISTS (
    SELECT FROM ${s}.receipts t
    WHERE t.tenant = lane.tenant AND t.environment_id = lane.environment_id AND t.key = i.receipt_key AND t.nonce = $7::uuid))
  AND (i.parent_id IS NULL OR EXISTS (
    SELECT FROM ${s}.runs p
    WHERE p.id = i.parent_id AND p.join_seq = i.parent_join_seq AND p.status = 'waiting' AND p.xmin = pg_current_xact_id()::xid))`

/** Inserts runs in the order given, each with its row in the claim window when it is due at once. */
export const insertRuns = defineStatement<InsertRunsParams>(
  'insert_runs',
  (s) => `
WITH ${items(s)},
inserted AS (
  INSERT INTO ${s}.runs (id, created_at, updated_at, available_at, timer_at, scheduled_for, lane_id, environment_id, priority, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds,
    status, parent_id, parent_join_seq, child_index, step, key, gates, tags, headers, origin, input, state)
  SELECT i.id, clock.at, clock.at, due.at, CASE WHEN due.at > clock.at THEN due.at END, due.scheduled, lane.id, lane.environment_id, coalesce(i.priority, 0), i.max_attempts,
    i.payload_bytes, i.retention_seconds, i.failed_retention_seconds, 'pending', i.parent_id, i.parent_join_seq, i.child_index, i.step, i.key,
    CASE WHEN i.gates IS NOT NULL THEN string_to_array(i.gates, E'\\x1e') END, CASE WHEN i.tags IS NOT NULL THEN string_to_array(i.tags, E'\\x1f') END,
    i.headers::jsonb, i.origin::jsonb, i.input::jsonb, i.state::jsonb
  FROM unnest((SELECT $8::uuid[]), (SELECT $9::int[]), (SELECT $10::text[]), (SELECT $11::int[]), (SELECT $12::float8[]), (SELECT $13::float8[]), (SELECT $14::int[]), (SELECT $15::int[]),
      (SELECT $16::int[]), (SELECT $17::text[]), (SELECT $18::text[]), (SELECT $19::text[]), (SELECT $20::text[]), (SELECT $21::text[]), (SELECT $22::uuid[]), (SELECT $23::int[]),
      (SELECT $24::int[]), (SELECT $25::text[]), (SELECT $26::text[]), (SELECT $27::text[]), (SELECT $28::int[]))
    WITH ORDINALITY AS i(id, lane, step, priority, delay_ms, run_at, max_attempts, payload_bytes, retention_seconds, input, state, key, receipt_key, gates, parent_id, parent_join_seq,
      child_index, tags, headers, origin, failed_retention_seconds, ordinal)
  JOIN lane ON lane.ordinal = i.lane
  CROSS JOIN clock
  CROSS JOIN LATERAL (
    SELECT coalesce(x.scheduled, clock.at) AS at, x.scheduled
    FROM (SELECT CASE WHEN i.run_at IS NOT NULL THEN to_timestamp(i.run_at / 1000) WHEN i.delay_ms IS NOT NULL THEN clock.at + make_interval(secs => i.delay_ms / 1000) END AS scheduled) x
  ) due
  WHERE ${admissible(s)}
  ORDER BY i.ordinal
  ON CONFLICT (id) DO NOTHING
  RETURNING id, lane_id, priority, available_at, position, timer_at
),
windowed AS (
  INSERT INTO ${s}.ready (lane_id, priority, available_at, position, run_id)
  SELECT lane_id, priority, available_at, position, id FROM inserted WHERE timer_at IS NULL
)
SELECT count(*)::int AS inserted FROM inserted
`,
  (p) => [
    p.now,
    p.lanes.environment,
    p.lanes.tenants,
    p.lanes.queues,
    p.lanes.definitions,
    p.lanes.versions,
    p.nonce,
    p.ids,
    p.laneOrdinals,
    p.steps,
    p.priorities,
    p.delaysMs,
    p.runAts,
    p.maxAttempts,
    p.payloadBytes,
    p.retentionSeconds,
    p.inputs,
    p.states,
    p.keys,
    p.receiptKeys,
    p.gates,
    p.parentIds,
    p.parentJoinSeqs,
    p.childIndexes,
    p.tags,
    p.headers,
    p.origins,
    p.failedRetentionSeconds,
  ],
)
