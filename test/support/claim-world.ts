import type pg from 'pg'

/** How many runs of each kind there are. */
export interface WorldSize {
  /** Completed, each with its history and a consumed signal; one in ten had a receipt. Older than their retention: the first tenth. */
  readonly finished: number
  /** Ready in four lanes of two tenants. */
  readonly due: number
  /** Delayed, at a more urgent priority than any other. */
  readonly future: number
  /** Ready before all others and in lanes ahead of theirs, which a claim must not take: unknown, of another environment, paused. */
  readonly foreign: number
  /** Each under a claim of its own, besides the 200 in two full claims. */
  readonly running: number
  /** On a signal, with a key each and something unwanted in the inbox. */
  readonly waiting: number
  /** On a gate. */
  readonly blocked: number
}

/** Rows that statements are tried on, the same in every world. */
export const HANDFUL = 200
export const ENVIRONMENT = 'production'
export const TENANT = 'acme'
export const DEFINITIONS = ['charge', 'order']
export const GATE = 'stripe\u001fone'
/** A gate of tokens. */
export const RATED = 'mail\u001f'

/** An event that a hundred runs wait for, and an ended run that the same hundred wait for. */
export const EVENT = 'e11'
export const FIRST_KEPT = 5_000

const KINDS = { finished: 1, waiting: 2, running: 3, foreign: 4, future: 5, due: 6, blocked: 7, parent: 8, claim: 9 } as const
export type Kind = keyof typeof KINDS

/** The id of the n-th run of a kind, counted from 1. */
export function idOf(kind: Kind, n: number): string {
  return `00000000-000${KINDS[kind]}-7000-8000-${n.toString(16).padStart(12, '0')}`
}

export function idsOf(kind: Kind, from: number, to: number): readonly string[] {
  return Array.from({ length: to - from + 1 }, (_, index) => idOf(kind, from + index))
}

const sqlId = (kind: Kind, n: string) => `('00000000-000${KINDS[kind]}-7000-8000-' || lpad(to_hex(${n}), 12, '0'))::uuid`

const COLUMNS =
  'id, created_at, available_at, updated_at, lane_id, priority, seq, max_attempts, payload_bytes, retention_seconds, failed_retention_seconds, environment_id, step, input, status'

/** The n-th row of a kind: lanes in turn, one a second, the last one now. */
const rows = (
  kind: Kind,
  count: number,
  lanes: string,
  priority: number,
  status: string,
  more: Readonly<Record<string, string>>,
) => `
INSERT INTO pawl.runs (${[COLUMNS, ...Object.keys(more)].join(', ')})
SELECT ${sqlId(kind, 'n')}, at, at, at, lane_id, ${priority}, 2, 10, 20, 86400, 86400, environment_id, 'run', '{"n": 1}', '${status}'${Object.values(
  more,
)
  .map((value) => `, ${value}`)
  .join('')}
FROM (
  SELECT n, now() - make_interval(secs => ${count} - n) AS at, l.ids[1 + n % cardinality(l.ids)] AS lane_id, l.environments[1 + n % cardinality(l.ids)] AS environment_id
  FROM generate_series(1, ${count}) n, (SELECT array_agg(id ORDER BY id) AS ids, array_agg(environment_id ORDER BY id) AS environments FROM pawl.lanes WHERE ${lanes}) l
) x ORDER BY n;`

const KNOWN = `definition IN ('charge', 'order') AND NOT paused AND environment_id = 1`

/** Autovacuum leaves such a database alone: what it would know of its tables is for the test to say. */
export async function prepareWorld(client: pg.ClientBase): Promise<void> {
  await client.query(
    [
      ...['runs', 'ready', 'claims', 'signals', 'uniques', 'receipts', 'history', 'limits', 'limit_counters', 'lanes'],
      ...['events', 'event_waits', 'outbox', 'cascades', 'pauses'],
    ]
      .map((table) => `ALTER TABLE pawl.${table} SET (autovacuum_enabled = false, toast.autovacuum_enabled = false);`)
      .join('\n'),
  )
}

/** A database as an engine would have left it, written straight into the tables. */
export async function fillWorld(client: pg.ClientBase, size: WorldSize): Promise<void> {
  const running = size.running + HANDFUL
  await client.query(`
INSERT INTO pawl.environments (name) VALUES ('production'), ('staging');
INSERT INTO pawl.lanes (environment_id, tenant, queue, definition, version, paused) VALUES
  (1, 'acme', 'default', 'ghost', 1, false), (1, 'acme', 'default', 'charge', 7, false), (2, 'acme', 'default', 'charge', 1, false), (1, 'acme', 'halted', 'charge', 1, true);
INSERT INTO pawl.lanes (environment_id, tenant, queue, definition, version)
SELECT 1, tenant, 'default', definition, 1 FROM unnest(ARRAY['acme', 'other']) tenant, unnest(ARRAY['charge', 'order']) definition;
INSERT INTO pawl.limits (environment_id, name, concurrency) VALUES (1, 'stripe', 60);
INSERT INTO pawl.limit_counters (environment_id, gate, held) VALUES (1, E'stripe\\x1fone', 60), (1, E'mail\\x1f', 0);
INSERT INTO pawl.limits (environment_id, name, burst, ms_per_token) VALUES (1, 'mail', 5, 1000);
${rows('finished', size.finished, `${KNOWN} AND version = 1`, 0, 'completed', { finished_at: 'at', result: `'{"ok": true}'` })}
${rows('waiting', size.waiting, `${KNOWN} AND tenant = 'acme' AND version = 1`, 0, 'waiting', {
  notable: `'waiting'`,
  awaits: `ARRAY['go']`,
  key: `'w' || n`,
  timer_at: `now() + interval '2 days'`,
  signalled: 'true',
})}
${rows('running', running, `${KNOWN} AND version = 1`, 0, 'running', {
  claimed_by: `CASE WHEN n <= ${HANDFUL} THEN ${sqlId('claim', '1 + (n - 1) / 100')} ELSE ${sqlId('claim', 'n')} END`,
  key: `CASE WHEN n BETWEEN 51 AND 100 THEN 'r' || n END`,
  parent_id: `CASE WHEN n <= 50 THEN ${sqlId('parent', '1 + n % 2')} END`,
  parent_join_seq: 'CASE WHEN n <= 50 THEN 2 END',
  child_index: 'CASE WHEN n <= 50 THEN n END',
  gates: `CASE WHEN n BETWEEN 1 AND 60 THEN ARRAY[E'stripe\\x1fone'] END`,
  awaits: `CASE WHEN n BETWEEN 151 AND 200 THEN ARRAY['go'] END`,
  signalled: 'n BETWEEN 151 AND 200',
})}
${rows('parent', 2, `${KNOWN} AND version = 1`, 0, 'waiting', { notable: `'waiting'`, join_seq: '2', join_remaining: '25' })}
${rows('foreign', size.foreign, `NOT (${KNOWN} AND version = 1)`, -9, 'pending', {})}
${rows('future', size.future, `${KNOWN} AND version = 1`, -10, 'pending', { timer_at: `now() + interval '1 hour' + make_interval(secs => n)` })}
${rows('due', size.due, `${KNOWN} AND version = 1`, 0, 'pending', {})}
${rows('blocked', size.blocked, `${KNOWN} AND version = 1`, 0, 'pending', { blocked_on: `E'stripe\\x1fone'`, gates: `ARRAY[E'stripe\\x1fone']` })}
INSERT INTO pawl.ready (lane_id, priority, available_at, position, run_id)
SELECT lane_id, priority, available_at, position, id FROM pawl.runs WHERE status = 'pending' AND timer_at IS NULL AND blocked_on IS NULL ORDER BY position;
INSERT INTO pawl.claims (id, environment_id, lease_until, alone, run_ids)
SELECT claimed_by, 1, now() + interval '20 minutes', false, array_agg(id ORDER BY id) FROM pawl.runs WHERE status = 'running' GROUP BY claimed_by ORDER BY claimed_by;
INSERT INTO pawl.history (run_id, seq, visit, attempt, started_at, finished_at, step, outcome)
SELECT ${sqlId('finished', 'n')}, 2, 1, 1, now(), now(), 'run', 'done' FROM generate_series(1, ${size.finished}) n;
INSERT INTO pawl.signals (created_at, run_id, name, payload) SELECT now(), ${sqlId('running', 'n')}, 'go', '{}' FROM generate_series(151, 200) n;
INSERT INTO pawl.signals (created_at, run_id, consumed_seq, name, dedup_key, payload)
SELECT now(), ${sqlId('finished', 'n')}, 1, 'go', 'd' || n, '{}' FROM generate_series(1, ${size.finished}, 10) n;
INSERT INTO pawl.signals (created_at, run_id, name, payload) SELECT now(), ${sqlId('waiting', 'n')}, 'other', '{}' FROM generate_series(1, ${size.waiting}) n;
INSERT INTO pawl.uniques (tenant, environment_id, scope, token, run_id)
SELECT l.tenant, 1, l.definition, r.key, r.id FROM pawl.runs r JOIN pawl.lanes l ON l.id = r.lane_id WHERE r.key IS NOT NULL ORDER BY r.position;
INSERT INTO pawl.uniques (tenant, environment_id, scope, token, run_id, keep)
SELECT 'acme', 1, E'charge\\x1f', E'\\x1f1:fresh' || n - 1, ${sqlId('future', 'n')}, 16 FROM generate_series(1, least(100, ${size.future})) n;
INSERT INTO pawl.receipts (tenant, environment_id, key, fingerprint, nonce, created_at, expires_at)
SELECT 'acme', 1, 'k' || n, 'f', '00000000-0000-7000-8000-0000000000aa', now(), now() + interval '1 day' + make_interval(secs => n)
FROM generate_series(1, ${size.finished}, 10) n;
INSERT INTO pawl.events (tenant, environment_id, name, created_at, expires_at, payload, nonce)
SELECT 'acme', 1, 'e' || n, now(), now() + make_interval(days => CASE WHEN n % 100 = 0 THEN -1 ELSE 1 END, secs => n), '{}', '00000000-0000-7000-8000-0000000000aa'
FROM generate_series(1, ${size.finished}, 10) n;
INSERT INTO pawl.event_waits (tenant, environment_id, topic, run_id)
SELECT 'acme', 1, CASE WHEN n <= 100 THEN 'event:${EVENT}' ELSE 'event:w' || n END, ${sqlId('waiting', 'n')} FROM generate_series(1, ${size.waiting}) n
UNION ALL SELECT 'acme', 1, 'run:' || ${sqlId('finished', String(FIRST_KEPT))}, ${sqlId('waiting', 'n')} FROM generate_series(1, 100) n;
UPDATE pawl.runs SET awaits = ARRAY['event:${EVENT}', 'run:' || ${sqlId('finished', String(FIRST_KEPT))}] WHERE id IN (SELECT run_id FROM pawl.event_waits WHERE topic = 'event:${EVENT}');
INSERT INTO pawl.outbox (created_at, environment_id, tenant, kind, subject, body)
SELECT now(), 1, 'acme', 'topic', CASE WHEN n = 1 THEN 'event:${EVENT}' ELSE 'event:w' || n END, '{}' FROM generate_series(1, ${size.waiting}) n;
INSERT INTO pawl.cascades (parent_id, join_seq, environment_id, created_at) SELECT ${sqlId('finished', 'n')}, 0, 1, now() FROM generate_series(1, ${size.waiting}) n;
INSERT INTO pawl.pauses (tenant, environment_id, kind, name, paused_at) SELECT 'acme', 1, 'queue', 'q' || n, now() FROM generate_series(1, 100) n;`)
}
