import { PAUSE_LOCK_CLASS, pausedLane } from './change-pauses.ts'
import { PLACE } from './check-transaction.ts'
import { defineStatement, kindsOf } from './statement.ts'

/** Where runs are put: the distinct (tenant, queue, definition, version) of a batch, few. The arrays are parallel. */
export interface LanesParams {
  readonly environment: string
  readonly tenants: readonly string[]
  readonly queues: readonly string[]
  readonly definitions: readonly string[]
  readonly versions: readonly number[]
}

/**
 * Makes the environment when it is new, and answers which database this is. Whoever makes lanes next (`makesLanes`) holds off, to its
 * commit, those who pause: a lane made meanwhile would miss the pause.
 */
export const ensureEnvironment = defineStatement<{ readonly environment: string; readonly makesLanes?: true }>(
  'ensure_environment',
  (s) => `
WITH made AS (
  INSERT INTO ${s}.environments (name)
  SELECT $1::text WHERE NOT EXISTS (SELECT FROM ${s}.environments WHERE name = $1::text)
  ON CONFLICT DO NOTHING
)
SELECT ${PLACE} AS place, CASE WHEN $2::boolean THEN pg_advisory_xact_lock_shared(${PAUSE_LOCK_CLASS}, hashtext($1::text)) IS NULL END AS locked
FROM ${s}.meta m
`,
  (p) => [p.environment, p.makesLanes ?? false],
)

/** Makes the lanes that are new, after `ensureEnvironment`. A lane of a paused queue or definition begins paused. */
export const ensureLanes = defineStatement<LanesParams>(
  'ensure_lanes',
  (s) => `
INSERT INTO ${s}.lanes (environment_id, tenant, queue, definition, version, paused)
SELECT n.environment_id, n.tenant, n.queue, n.definition, n.version, EXISTS (${pausedLane(s, 'n')})
FROM (
  SELECT e.id AS environment_id, i.* FROM unnest($2::text[], $3::text[], $4::text[], $5::int[]) AS i(tenant, queue, definition, version)
  JOIN ${s}.environments e ON e.name = $1::text
) n
WHERE NOT EXISTS (
  SELECT FROM ${s}.lanes l
  WHERE l.tenant = n.tenant AND l.environment_id = n.environment_id AND l.queue = n.queue AND l.definition = n.definition AND l.version = n.version)
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
  /** Units of the gates of one run, parallel to them, joined by commas. */
  readonly gateUnits: readonly (string | null)[]
  readonly policies: readonly (string | null)[]
  /** When the first deadline has to be looked at: milliseconds from when the run is due. */
  readonly deadlinesMs: readonly (number | null)[]
  /** The runs bear the nonce: an id is the caller's, or a receipt is decided by whether the run is new. */
  readonly marked: boolean
  /** Every id was made for this request and is known to nobody else: cheaper. Two requests with one such id would be refused (23505). */
  readonly freshIds?: boolean
}

/** What runs are inserted with that have none of the optional columns, and ids that were just made. */
export type FreshRunsParams = Pick<
  InsertRunsParams,
  | 'now'
  | 'lanes'
  | 'ids'
  | 'laneOrdinals'
  | 'steps'
  | 'priorities'
  | 'payloadBytes'
  | 'retentionSeconds'
  | 'failedRetentionSeconds'
  | 'inputs'
  | 'maxAttempts'
>

/**
 * Whether an item may be inserted: it holds its key and what its policy says it holds beside, its receipt is ours and undecided, and its
 * parent was parked in this transaction. Values, not EXISTS: that may be answered by reading the table.
 */
const admissible = (s: string) => `
  (i.key IS NULL OR (
    SELECT true FROM ${s}.uniques u
    WHERE u.tenant = k.tenant AND u.environment_id = k.environment_id AND u.scope = k.definition AND u.token = i.key AND u.run_id = i.id))
  AND (i.policy IS NULL OR i.policy::jsonb -> 'unique' IS NULL OR (
    SELECT true FROM ${s}.uniques u
    WHERE u.tenant = k.tenant AND u.environment_id = k.environment_id AND u.scope = i.policy::jsonb #>> '{unique,scope}' AND u.token = i.policy::jsonb #>> '{unique,token}'
      AND u.run_id = i.id))
  AND (i.receipt_key IS NULL OR (
    SELECT true FROM ${s}.receipts t
    WHERE t.tenant = k.tenant AND t.environment_id = k.environment_id AND t.key = i.receipt_key AND t.nonce = $32::uuid AND t.decision IS NULL))
  AND (i.parent_id IS NULL OR (
    SELECT true FROM ${s}.runs p
    WHERE p.id = i.parent_id AND p.join_seq = i.parent_join_seq AND p.status = 'waiting' AND p.xmin = pg_current_xact_id()::xid))`

/** What many items of a batch share is sent once, as a kind ($7–$12), with its lane ($2–$6). */
const kinds = (s: string) => `
kinds AS MATERIALIZED (
  SELECT k.kind, l.id AS lane_id, l.environment_id, l.tenant, l.definition, k.step, coalesce(k.priority, 0) AS priority, k.max_attempts, k.retention_seconds, k.failed_retention_seconds
  FROM unnest((SELECT $7::int[]), (SELECT $8::text[]), (SELECT $9::int[]), (SELECT $10::int[]), (SELECT $11::int[]), (SELECT $12::int[]))
    WITH ORDINALITY AS k(lane, step, priority, max_attempts, retention_seconds, failed_retention_seconds, kind)
  JOIN unnest((SELECT $3::text[]), (SELECT $4::text[]), (SELECT $5::text[]), (SELECT $6::int[])) WITH ORDINALITY AS n(tenant, queue, definition, version, ordinal) ON n.ordinal = k.lane
  JOIN ${s}.environments e ON e.name = $2::text
  JOIN ${s}.lanes l ON l.tenant = n.tenant AND l.environment_id = e.id AND l.queue = n.queue AND l.definition = n.definition AND l.version = n.version
)`

const windowed = (s: string) => `
windowed AS (
  INSERT INTO ${s}.ready (lane_id, priority, available_at, position, run_id)
  SELECT lane_id, priority, available_at, position, id FROM inserted WHERE timer_at IS NULL
)
SELECT count(*)::int AS inserted FROM inserted`

/** Runs that have none of the optional columns: most. One scan of the items, so they keep their order without a sort. */
const insertPlain = (s: string, guard: string, conflict: string, nonce = 'NULL::uuid') => `
WITH ${kinds(s)},
found AS MATERIALIZED (SELECT array_agg(k.lane_id ORDER BY k.kind) AS lanes, min(k.environment_id) AS environment FROM kinds k),
inserted AS (
  INSERT INTO ${s}.runs (id, created_at, updated_at, available_at, lane_id, environment_id, priority, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds,
    status, step, input, nonce)
  SELECT i.id, coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now()), coalesce($1::timestamptz, now()), k.lane_id, (SELECT environment FROM found),
    coalesce(($9::int[])[k.kind], 0), ($10::int[])[k.kind], i.payload_bytes, ($11::int[])[k.kind], ($12::int[])[k.kind], 'pending', ($8::text[])[k.kind], i.input::jsonb, ${nonce}
  FROM unnest((SELECT $13::uuid[]), (SELECT $14::int[]), (SELECT $15::int[]), (SELECT $16::text[])) AS i(id, kind, payload_bytes, input)
  CROSS JOIN LATERAL (SELECT coalesce(i.kind, 1) AS kind, (SELECT lanes FROM found)[coalesce(i.kind, 1)] AS lane_id) k
  WHERE k.lane_id IS NOT NULL ${guard}
  ${conflict}
  RETURNING id, lane_id, priority, available_at, position, timer_at
),
${windowed(s)}
`

const insertPlainRuns = defineStatement<InsertRunsParams>(
  'insert_runs_plain',
  (s) => insertPlain(s, '', 'ON CONFLICT (id) DO NOTHING', '$17::uuid'),
  (p) => [...plainParams(p), nonceOf(p)],
)

/**
 * Ids just made are looked for instead, because the speculative insertion of ON CONFLICT is dear: one probe when nothing lies between the
 * first id and the last. A resend that races with its own first attempt waits for it on the primary key and is refused (23505); sent
 * again, it finds the rows.
 */
export const insertFreshRuns = defineStatement<FreshRunsParams>(
  'insert_runs_fresh',
  (s) =>
    insertPlain(
      s,
      `AND (NOT EXISTS (SELECT FROM ${s}.runs r WHERE r.id >= (SELECT $17::uuid) AND r.id <= (SELECT $18::uuid))
    OR i.id NOT IN (SELECT r.id FROM ${s}.runs r WHERE r.id = ANY ((SELECT $13::uuid[])::uuid[])))`,
      '',
    ),
  (p) => [...plainParams(p), ...rangeOf(p.ids)],
)

const insertAnyRuns = defineStatement<InsertRunsParams>(
  'insert_runs',
  (s) => `
WITH ${kinds(s)},
items AS (
  SELECT i.*, coalesce($1::timestamptz, now()) AS at,
    CASE WHEN i.run_at IS NOT NULL THEN to_timestamp(i.run_at / 1000) WHEN i.delay_ms IS NOT NULL THEN coalesce($1::timestamptz, now()) + make_interval(secs => i.delay_ms / 1000) END AS scheduled
  FROM unnest((SELECT $13::uuid[]), (SELECT $14::int[]), (SELECT $15::int[]), (SELECT $16::text[]), (SELECT $17::float8[]), (SELECT $18::float8[]), (SELECT $19::text[]), (SELECT $20::text[]),
      (SELECT $21::text[]), (SELECT $22::text[]), (SELECT $23::uuid[]), (SELECT $24::int[]), (SELECT $25::int[]), (SELECT $26::text[]), (SELECT $27::text[]), (SELECT $28::text[]), (SELECT $29::text[]), (SELECT $30::text[]), (SELECT $31::float8[]))
    WITH ORDINALITY AS i(id, kind, payload_bytes, input, delay_ms, run_at, state, key, receipt_key, gates, parent_id, parent_join_seq, child_index, tags, headers, origin, gate_units, policy, deadline_ms, ordinal)
),
inserted AS (
  INSERT INTO ${s}.runs (id, created_at, updated_at, available_at, timer_at, scheduled_for, lane_id, environment_id, priority, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds,
    status, parent_id, parent_join_seq, child_index, step, key, gates, tags, headers, origin, input, state, gate_units, policy, deadline_at, nonce)
  SELECT i.id, i.at, i.at, greatest(i.scheduled, i.at), CASE WHEN i.scheduled > i.at THEN i.scheduled END, i.scheduled, k.lane_id, k.environment_id, k.priority, k.max_attempts,
    i.payload_bytes, k.retention_seconds, k.failed_retention_seconds, 'pending', i.parent_id, i.parent_join_seq, i.child_index, k.step, i.key,
    CASE WHEN i.gates IS NOT NULL THEN string_to_array(i.gates, E'\\x1e') END, CASE WHEN i.tags IS NOT NULL THEN string_to_array(i.tags, E'\\x1f') END,
    i.headers::jsonb, i.origin::jsonb, i.input::jsonb, i.state::jsonb, string_to_array(i.gate_units, ',')::int[], i.policy::jsonb, greatest(i.scheduled, i.at) + make_interval(secs => i.deadline_ms / 1000), $33::uuid
  FROM items i JOIN kinds k ON k.kind = coalesce(i.kind, 1)
  WHERE ${admissible(s)}
  ORDER BY i.ordinal
  ON CONFLICT (id) DO NOTHING
  RETURNING id, lane_id, priority, available_at, position, timer_at
),
${windowed(s)}
`,
  (p) => [...plainParams(p), ...optionalColumns(p), p.nonce, nonceOf(p)],
)

/** Inserts runs in the order given, each with its row in the claim window when it is due at once. Ids that exist are left out. */
export const insertRuns = (schema: string, p: InsertRunsParams) => {
  if (optionalColumns(p).some((column) => column.some((value) => value !== null))) return insertAnyRuns(schema, p)
  return p.freshIds ? insertFreshRuns(schema, p) : insertPlainRuns(schema, p)
}

function nonceOf(p: InsertRunsParams): string | null {
  return p.marked ? p.nonce : null
}

function optionalColumns(p: InsertRunsParams) {
  return [
    p.delaysMs,
    p.runAts,
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
    p.gateUnits,
    p.policies,
    p.deadlinesMs,
  ]
}

function plainParams(p: FreshRunsParams) {
  const shared = kindsOf(p.ids.length, [
    p.laneOrdinals,
    p.steps,
    p.priorities,
    p.maxAttempts,
    p.retentionSeconds,
    p.failedRetentionSeconds,
  ])
  const { environment, tenants, queues, definitions, versions } = p.lanes
  return [
    p.now,
    environment,
    tenants,
    queues,
    definitions,
    versions,
    ...shared.columns,
    p.ids,
    shared.kinds,
    p.payloadBytes,
    p.inputs,
  ]
}

/** The least and the greatest id; UUIDs in their canonical form sort as text. */
function rangeOf(ids: readonly string[]): [string | null, string | null] {
  let [least = null, greatest = null] = [ids[0], ids[0]]
  for (const id of ids) {
    if (least === null || id < least) least = id
    if (greatest === null || id > greatest) greatest = id
  }
  return [least, greatest]
}
