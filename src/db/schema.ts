/**
 * The tables of runs and what belongs to one, as drizzle sees them (what many share is in `schema-coordination.ts`): the source of the migrations in `drizzle/`. The statements in `statements/` are SQL text
 * against these names. `ARCHITECTURE.md` says which index serves which statement and which invariant.
 */
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  check,
  index,
  integer,
  jsonb,
  pgSchema,
  primaryKey,
  smallint,
  text,
  timestamp,
  uniqueIndex,
  uuid,
} from 'drizzle-orm/pg-core'

export const pawl = pgSchema('pawl')

export const instant = (name: string) => timestamp(name, { withTimezone: true, mode: 'string' })

export const runStatus = pawl.enum('run_status', [
  'pending',
  'running',
  'waiting',
  'completed',
  'failed',
  'cancelled',
  'discarded',
  'uncertain',
])

/** One row: who made this schema, and which builds may use it. */
export const meta = pawl.table(
  'meta',
  {
    singleton: boolean('singleton').primaryKey().default(true),
    product: text('product').notNull().default('pawl'),
    schemaVersion: integer('schema_version').notNull(),
    minBuild: integer('min_build').notNull(),
    /** Tells one installation from another: a caller's transaction may be one of another database. */
    installation: uuid('installation').notNull().default(sql`gen_random_uuid()`),
    /** `day`, `week`, `month`: runs, history and signals are partitioned by such periods of the run's id, and ended runs go with their partition. Null: plain tables. */
    partitionedBy: text('partitioned_by'),
  },
  (t) => [check('meta_one_row', sql`${t.singleton}`)],
)

/**
 * Names of environments, as small numbers for the hot indexes. A run belongs to the environment that spawned it. Each has its own
 * upkeep: when it is next due, and which tick last saw to it.
 */
export const environments = pawl.table('environments', {
  id: smallint('id').primaryKey().generatedAlwaysAsIdentity(),
  name: text('name').notNull().unique('environments_name_key'),
  // a new environment has nothing to keep up
  upkeepAt: instant('upkeep_at').notNull().default(sql`now() + interval '1 minute'`),
  lastTickAt: instant('last_tick_at'),
  lastTickSource: text('last_tick_source'),
  /** Up to which gate upkeep has recounted. Null: it begins anew. */
  gateCursor: text('gate_cursor'),
})

/**
 * The unit of claiming: runs that any build may take or none. What a build has no code for, and what is paused, lies in other
 * lanes and so is never in the way. Rows are few and are never deleted.
 */
export const lanes = pawl.table(
  'lanes',
  {
    id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
    environmentId: smallint('environment_id').notNull(),
    tenant: text('tenant').notNull(),
    queue: text('queue').notNull(),
    definition: text('definition').notNull(),
    version: integer('version').notNull(),
    paused: boolean('paused').notNull().default(false),
    /** When retention last looked here, and how far it came. */
    prunedAt: instant('pruned_at').notNull().default(sql`'-infinity'`),
    pruneCursorAt: instant('prune_cursor_at'),
    pruneCursorPosition: bigint('prune_cursor_position', { mode: 'bigint' }),
  },
  (t) => [uniqueIndex('lanes_identity_key').on(t.tenant, t.environmentId, t.queue, t.definition, t.version)],
)

/**
 * A run. What never changes stands beside what does, and no index covers a column that an ordinary run changes: claiming and
 * finishing a run are heap-only updates. What orders claims is in `ready`, what ends them in `claims`.
 */
export const runs = pawl.table(
  'runs',
  {
    // Fixed width and never null first, the rest behind: an update looks at every indexed column, and finds these without walking the row.
    id: uuid('id').primaryKey(),
    /** Insertion order: breaks ties between runs of the same instant. */
    position: bigint('position', { mode: 'bigint' }).notNull().generatedAlwaysAsIdentity(),
    createdAt: instant('created_at').notNull(),
    /** Since when it may run: its place in the order. */
    availableAt: instant('available_at').notNull(),
    updatedAt: instant('updated_at').notNull(),
    laneId: integer('lane_id').notNull(),
    priority: integer('priority').notNull(),
    seq: integer('seq').notNull().default(0),
    visit: integer('visit').notNull().default(1),
    failures: integer('failures').notNull().default(0),
    losses: integer('losses').notNull().default(0),
    /** Losses that nothing else in the invocation can be blamed for: the cap counts these. */
    lonelyLosses: integer('lonely_losses').notNull().default(0),
    snoozes: integer('snoozes').notNull().default(0),
    maxAttempts: integer('max_attempts').notNull(),
    payloadBytes: integer('payload_bytes').notNull(),
    /** How long it is kept once it has completed, and once it has ended otherwise. */
    retentionSeconds: integer('retention_seconds').notNull(),
    failedRetentionSeconds: integer('failed_retention_seconds').notNull(),
    status: runStatus('status').notNull(),
    environmentId: smallint('environment_id').notNull(),
    /** The inbox holds something not yet consumed. */
    signalled: boolean('signalled').notNull().default(false),
    /** The current wait ran out: a recorded fact of that wait. */
    timedOut: boolean('timed_out').notNull().default(false),
    step: text('step').notNull(),
    /** When the engine has to look although nobody writes: a delay, a retry, the timeout of a wait. Null: nothing is due. */
    timerAt: instant('timer_at'),
    scheduledFor: instant('scheduled_for'),
    finishedAt: instant('finished_at'),
    cancelRequestedAt: instant('cancel_requested_at'),
    /** The seq at which the current join began (parent), and how many more results it needs. */
    joinSeq: integer('join_seq'),
    joinRemaining: integer('join_remaining'),
    /** Child: the join of its parent that counts it, and its place among the children. */
    parentJoinSeq: integer('parent_join_seq'),
    childIndex: integer('child_index'),
    /** The status, where lists look for it: waiting, failed, cancelled, discarded, uncertain. Null for all the others. */
    notable: runStatus('notable'),
    claimedBy: uuid('claimed_by'),
    parentId: uuid('parent_id'),
    key: text('key'),
    awaits: text('awaits').array(),
    /** Counters of `limit_counters` that must admit the run before it may run. */
    gates: text('gates').array(),
    blockedOn: text('blocked_on'),
    hold: text('hold'),
    tags: text('tags').array(),
    holdDetail: jsonb('hold_detail'),
    headers: jsonb('headers'),
    /** Why it was spawned: a schedule and its slot, a webhook and its delivery. */
    origin: jsonb('origin'),
    input: jsonb('input'),
    state: jsonb('state'),
    result: jsonb('result'),
    error: jsonb('error'),
    /** When a deadline of the run has to be looked at next. Null: it has none, or has ended. */
    deadlineAt: instant('deadline_at'),
    /** Somebody waits for its result by `event_waits`: ending it tells them. */
    awaited: boolean('awaited').notNull().default(false),
    /** Of the current join: how many children may still end otherwise than well before it cannot be met. Null: all may. */
    joinSpare: integer('join_spare'),
    /** Units that each of the gates is charged, parallel to them. Null: one each. */
    gateUnits: integer('gate_units').array(),
    /** Gates whose slots it keeps while it is not running. */
    heldGates: text('held_gates').array(),
    /** Which counter of each gate it holds or held, parallel to them. Null: the first of each. */
    gateShards: smallint('gate_shards').array(),
    /** What was agreed for this run and only few runs have (`RunPolicy`): deadlines, replays, uniqueness. */
    policy: jsonb('policy'),
    /** Who or what wants it to end, and why, since `cancel_requested_at`: kept for good. */
    cancellation: jsonb('cancellation'),
    /** Why it is uncertain, what is known of the abandoned attempt, and who resolved it how: kept for good. */
    uncertainty: jsonb('uncertainty'),
    /** Of the request that wrote it, where another may have the same id or decide on a receipt: whether a spawn made the run or found it. */
    nonce: uuid('nonce'),
  },
  (t) => [
    index('runs_deadline_idx').on(t.environmentId, t.deadlineAt).where(sql`deadline_at IS NOT NULL`),
    index('runs_held_gates_idx').on(t.environmentId).where(sql`held_gates IS NOT NULL`),
    index('runs_list_idx').on(t.laneId, t.createdAt, t.position),
    index('runs_timer_idx').on(t.environmentId, t.timerAt).where(sql`timer_at IS NOT NULL`),
    index('runs_blocked_idx').on(t.blockedOn, t.priority, t.availableAt, t.position).where(sql`blocked_on IS NOT NULL`),
    index('runs_notable_idx').on(t.notable, t.laneId, t.createdAt, t.position).where(sql`notable IS NOT NULL`),
    index('runs_held_idx').on(t.hold, t.laneId).where(sql`hold IS NOT NULL`),
    index('runs_key_idx').on(t.key, t.createdAt, t.position).where(sql`key IS NOT NULL`),
    index('runs_parent_idx').on(t.parentId, t.parentJoinSeq, t.childIndex).where(sql`parent_id IS NOT NULL`),
    index('runs_tags_idx').using('gin', t.tags).where(sql`tags IS NOT NULL`),
    check('runs_claimed_iff_running', sql`(status = 'running') = (claimed_by IS NOT NULL)`),
    check('runs_finished_iff_terminal', sql`(status >= 'completed' AND status <= 'discarded') = (finished_at IS NOT NULL)`),
    check('runs_blocked_only_pending', sql`blocked_on IS NULL OR status = 'pending'`),
  ],
)

/**
 * The claim window: one row for each run that is pending, due, not held and not blocked, in claim order. Narrow and short-lived, so
 * that a claim reads and deletes little. Written only under the lock of its run.
 */
export const ready = pawl.table(
  'ready',
  {
    availableAt: instant('available_at').notNull(),
    position: bigint('position', { mode: 'bigint' }).notNull(),
    /** The lane; negative for a run that has lost its host before and so is claimed alone. */
    laneId: integer('lane_id').notNull(),
    priority: integer('priority').notNull(),
    runId: uuid('run_id').notNull(),
  },
  (t) => [uniqueIndex('ready_order_key').on(t.laneId.desc().nullsFirst(), t.priority, t.availableAt, t.position)],
)

/** One row per claim request that still has runs in hand: its lease, and which runs it took. */
export const claims = pawl.table(
  'claims',
  {
    id: uuid('id').primaryKey(),
    leaseUntil: instant('lease_until').notNull(),
    environmentId: smallint('environment_id').notNull(),
    /** One run, with nothing else in the invocation's hands: if it is lost, it is lost by its own doing. */
    alone: boolean('alone').notNull(),
    runIds: uuid('run_ids').array().notNull(),
  },
  (t) => [index('claims_lease_idx').on(t.environmentId, t.leaseUntil)],
)

/** The inbox: durable messages to one run. Consumed ones stay until the run goes, so that a late duplicate finds them. */
export const signals = pawl.table(
  'signals',
  {
    id: bigint('id', { mode: 'bigint' }).primaryKey().generatedAlwaysAsIdentity(),
    createdAt: instant('created_at').notNull(),
    runId: uuid('run_id').notNull(),
    /** The seq of the transition that consumed it. */
    consumedSeq: integer('consumed_seq'),
    name: text('name').notNull(),
    dedupKey: text('dedup_key'),
    payload: jsonb('payload'),
  },
  (t) => [
    index('signals_inbox_idx').on(t.runId, t.id),
    uniqueIndex('signals_dedup_key').on(t.runId, t.dedupKey).where(sql`dedup_key IS NOT NULL`),
  ],
)

/** What must not exist twice: keys of runs. Held by a run until it ends (or longer, by `expires_at`). */
export const uniques = pawl.table(
  'uniques',
  {
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    scope: text('scope').notNull(),
    token: text('token').notNull(),
    runId: uuid('run_id').notNull(),
    /** From when on anybody may take it over. Null: not before its run frees it. */
    expiresAt: instant('expires_at'),
    /** Ended runs that go on holding it: 1 completed, 2 failed, 4 cancelled, 8 discarded, added up. */
    keep: smallint('keep').notNull().default(0),
    /** Reserved until then though the run has ended: becomes `expires_at` when it does. */
    reservedUntil: instant('reserved_until'),
  },
  (t) => [
    primaryKey({ name: 'uniques_pkey', columns: [t.tenant, t.environmentId, t.scope, t.token] }),
    index('uniques_run_idx').on(t.runId),
    index('uniques_token_idx').on(t.tenant, t.environmentId, t.token),
  ],
)

/** The decision that an idempotency key was answered with, replayed as it was. */
export const receipts = pawl.table(
  'receipts',
  {
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    key: text('key').notNull(),
    fingerprint: text('fingerprint').notNull(),
    nonce: uuid('nonce').notNull(),
    createdAt: instant('created_at').notNull(),
    expiresAt: instant('expires_at').notNull(),
    decision: jsonb('decision'),
  },
  (t) => [
    primaryKey({ name: 'receipts_pkey', columns: [t.tenant, t.environmentId, t.key] }),
    index('receipts_expires_idx').on(t.environmentId, t.expiresAt),
  ],
)

/** One row per committed outcome of a claim; also the proof that a write was applied when its reply was lost. */
export const history = pawl.table(
  'history',
  {
    runId: uuid('run_id').notNull(),
    seq: integer('seq').notNull(),
    visit: integer('visit').notNull(),
    attempt: integer('attempt').notNull(),
    claimedBy: uuid('claimed_by'),
    startedAt: instant('started_at').notNull(),
    finishedAt: instant('finished_at').notNull(),
    step: text('step').notNull(),
    outcome: text('outcome').notNull(),
    error: jsonb('error'),
  },
  (t) => [primaryKey({ name: 'history_pkey', columns: [t.runId, t.seq] })],
)
