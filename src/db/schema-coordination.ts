/** The tables of what runs share: limits, pauses, events, schedules, keys of the API. */
import { sql } from 'drizzle-orm'
import {
  bigint,
  boolean,
  check,
  doublePrecision,
  index,
  integer,
  jsonb,
  primaryKey,
  smallint,
  text,
  uuid,
} from 'drizzle-orm/pg-core'
import { instant, pawl } from './schema.ts'

/** Policies by name. Absent: an exclusive key. */
export const limits = pawl.table(
  'limits',
  {
    environmentId: smallint('environment_id').notNull(),
    name: text('name').notNull(),
    /** Slots. Null: as many as you like. */
    concurrency: integer('concurrency'),
    /** Rates: tokens a full bucket holds, and how long one takes to come. Null: no rate. */
    burst: integer('burst'),
    msPerToken: doublePrecision('ms_per_token'),
    /** Counters that share slots and tokens out among them. */
    shards: smallint('shards').notNull().default(1),
    /** Of an older build, which may still run. */
    policy: jsonb('policy'),
  },
  (t) => [
    primaryKey({ name: 'limits_pkey', columns: [t.environmentId, t.name] }),
    check('limits_concurrency_positive', sql`concurrency > 0`),
    check('limits_burst_positive', sql`burst > 0 AND ms_per_token > 0`),
    check('limits_shards_positive', sql`shards > 0`),
  ],
)

/** What a gate admits now. Credits never test capacity, so lowering a limit cannot abort a flush. */
export const limitCounters = pawl.table(
  'limit_counters',
  {
    environmentId: smallint('environment_id').notNull(),
    gate: text('gate').notNull(),
    shard: smallint('shard').notNull().default(0),
    held: integer('held').notNull().default(0),
    /** Rates: tokens left at `refilled_at`. */
    available: doublePrecision('available'),
    refilledAt: instant('refilled_at'),
    /** Rates: when the first run that is blocked on it can be admitted. Null: nobody is. */
    dueAt: instant('due_at'),
  },
  (t) => [
    index('limit_counters_due_idx').on(t.environmentId, t.dueAt).where(sql`due_at IS NOT NULL`),
    primaryKey({ name: 'limit_counters_pkey', columns: [t.environmentId, t.gate, t.shard] }),
    check('limit_counters_held_not_negative', sql`held >= 0`),
    check('limit_counters_available_not_negative', sql`available >= 0`),
  ],
)

/** Written by no build; the first ones read it when a lane is made. `pauses` took its place. */
export const queues = pawl.table(
  'queues',
  {
    environmentId: smallint('environment_id').notNull(),
    name: text('name').notNull(),
    paused: boolean('paused').notNull().default(false),
    pausedBy: text('paused_by'),
    pausedAt: instant('paused_at'),
  },
  (t) => [primaryKey({ name: 'queues_pkey', columns: [t.environmentId, t.name] })],
)

/**
 * Queues and definitions (whatever their version) that are paused now, for one tenant or (tenant empty) for all. What claims read is
 * `lanes.paused`, which follows from it.
 */
export const pauses = pawl.table(
  'pauses',
  {
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    /** `queue` or `definition`. */
    kind: text('kind').notNull(),
    name: text('name').notNull(),
    pausedBy: text('paused_by'),
    pausedAt: instant('paused_at').notNull(),
  },
  (t) => [primaryKey({ name: 'pauses_pkey', columns: [t.tenant, t.environmentId, t.kind, t.name] })],
)

/** Broadcasts: the first write of a name wins until it expires. */
export const events = pawl.table(
  'events',
  {
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    name: text('name').notNull(),
    createdAt: instant('created_at').notNull(),
    expiresAt: instant('expires_at').notNull(),
    payload: jsonb('payload'),
    /** The request that wrote it: sent again, it knows its own. */
    nonce: uuid('nonce').notNull(),
  },
  (t) => [
    primaryKey({ name: 'events_pkey', columns: [t.tenant, t.environmentId, t.name] }),
    index('events_expires_idx').on(t.environmentId, t.expiresAt),
  ],
)

/** Who waits for what everybody may hear: an event (`event:name`) or the end of another run (`run:id`). Delivered into their inbox. */
export const eventWaits = pawl.table(
  'event_waits',
  {
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    topic: text('topic').notNull(),
    runId: uuid('run_id').notNull(),
  },
  (t) => [
    primaryKey({ name: 'event_waits_pkey', columns: [t.tenant, t.environmentId, t.topic, t.runId] }),
    index('event_waits_run_idx').on(t.runId),
  ],
)

/**
 * What a commit has left to be told to others, in a batch of its own: events and signals of a step or of a caller's transaction, the end of a
 * run that is awaited, an event that more wait for than one pass tells. A row stays until it has been told.
 */
export const outbox = pawl.table(
  'outbox',
  {
    id: bigint('id', { mode: 'bigint' }).notNull().generatedAlwaysAsIdentity(),
    createdAt: instant('created_at').notNull(),
    environmentId: smallint('environment_id').notNull(),
    tenant: text('tenant').notNull(),
    /** event, signal, topic, end, stragglers, room */
    kind: text('kind').notNull(),
    subject: text('subject').notNull(),
    body: jsonb('body'),
    /** Told twice, it arrives once. */
    nonce: uuid('nonce').notNull().default(sql`gen_random_uuid()`),
  },
  (t) => [primaryKey({ name: 'outbox_pkey', columns: [t.environmentId, t.id] })],
)

/** Runs whose children are cancelled, in bounded passes: all of them, or those of one join. */
export const cascades = pawl.table(
  'cascades',
  {
    parentId: uuid('parent_id').notNull(),
    /** The join whose children end; 0: all children, whichever join made them. */
    joinSeq: integer('join_seq').notNull().default(0),
    environmentId: smallint('environment_id').notNull(),
    createdAt: instant('created_at').notNull(),
  },
  (t) => [
    primaryKey({ name: 'cascades_pkey', columns: [t.parentId, t.joinSeq] }),
    index('cascades_due_idx').on(t.environmentId, t.createdAt),
  ],
)

/** Spawns by time. One firing per slot: the slot is part of the receipt's key, and `next_at` moves by compare and set. */
export const schedules = pawl.table(
  'schedules',
  {
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    name: text('name').notNull(),
    definition: text('definition').notNull(),
    version: integer('version'),
    expression: text('expression').notNull(),
    timeZone: text('time_zone').notNull(),
    input: jsonb('input'),
    enabled: boolean('enabled').notNull().default(true),
    /** `code`: declared with a definition; `api`: made at run time. */
    source: text('source').notNull(),
    nextAt: instant('next_at'),
    lastAt: instant('last_at'),
  },
  (t) => [
    primaryKey({ name: 'schedules_pkey', columns: [t.tenant, t.environmentId, t.name] }),
    index('schedules_due_idx').on(t.environmentId, t.nextAt).where(sql`enabled AND next_at IS NOT NULL`),
  ],
)

export const apiKeys = pawl.table(
  'api_keys',
  {
    id: uuid('id').primaryKey(),
    tenant: text('tenant').notNull(),
    environmentId: smallint('environment_id').notNull(),
    name: text('name').notNull(),
    /** SHA-256 of the secret, hex. The secret itself is shown once and never stored. */
    hash: text('hash').notNull().unique('api_keys_hash_key'),
    scopes: text('scopes').array().notNull(),
    createdAt: instant('created_at').notNull(),
    expiresAt: instant('expires_at'),
    revokedAt: instant('revoked_at'),
  },
  (t) => [index('api_keys_tenant_idx').on(t.tenant, t.environmentId, t.createdAt)],
)
