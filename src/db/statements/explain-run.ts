import { CLOCK, defineStatement, epochMs } from './statement.ts'
import { windowLane } from './window.ts'

export interface ExplainRunParams {
  readonly now: string | null
  readonly environment: string
  readonly tenant: string
  readonly id: string
}

/** How far it is counted who stands before a run. */
const MAX_AHEAD = 1_000
/** Runs in hand, and runs that keep slots, that are looked at for a gate, children that are, and how many of each are named. */
const MAX_IN_HAND = 2_000
const MAX_CHILDREN = 10_000
const MAX_NAMED = 10

const claim = (s: string) => `(SELECT ${epochMs('c.lease_until')} FROM ${s}.claims c WHERE c.id = r.claimed_by)`

const pauses = (s: string) => `(
    SELECT jsonb_agg(jsonb_build_object('kind', p.kind, 'by', p.paused_by, 'since', ${epochMs('p.paused_at')}) ORDER BY p.kind DESC, p.tenant DESC) FROM ${s}.pauses p
    WHERE p.environment_id = r.environment_id AND p.tenant IN ('', l.tenant) AND (p.kind, p.name) IN (('queue', l.queue), ('definition', l.definition)))`

/** A limit counts the runs of all tenants; those of others are not named. */
const isOwn = (s: string) => `(SELECT o.tenant FROM ${s}.lanes o WHERE o.id = k.lane_id) = l.tenant`

/** Holders are looked for among the runs in hand, and among those that keep a slot while they wait (`runs_held_gates_idx`). */
const gate = (s: string) => `CASE WHEN r.blocked_on IS NOT NULL THEN (
    SELECT jsonb_build_object(
      'held', coalesce(sum(c.held), 0), 'units', coalesce(r.gate_units[array_position(r.gates, r.blocked_on)], 1), 'dueAt', min(${epochMs('c.due_at')}),
      'capacity', (SELECT CASE WHEN count(*) = 0 THEN 1 ELSE min(p.concurrency) END FROM ${s}.limits p WHERE p.environment_id = r.environment_id AND p.name = split_part(r.blocked_on, E'\\x1f', 1)),
      'isRate', EXISTS (SELECT FROM ${s}.limits p WHERE p.environment_id = r.environment_id AND p.name = split_part(r.blocked_on, E'\\x1f', 1) AND p.burst IS NOT NULL),
      'holders', (
        SELECT coalesce(jsonb_agg(h.id), '[]') FROM (
          (SELECT k.id FROM (
            SELECT x.id, i.id AS claim_id FROM ${s}.claims i CROSS JOIN LATERAL unnest(i.run_ids) AS x(id) WHERE i.environment_id = r.environment_id LIMIT ${MAX_IN_HAND}
          ) x CROSS JOIN LATERAL (SELECT y.id, y.gates, y.claimed_by, y.lane_id FROM ${s}.runs y WHERE y.id = x.id OFFSET 0) k
          WHERE ${isOwn(s)} AND k.claimed_by = x.claim_id AND r.blocked_on = ANY (k.gates) LIMIT ${MAX_NAMED})
          UNION ALL
          (SELECT k.id FROM (
            SELECT y.id, y.held_gates, y.lane_id FROM ${s}.runs y
            WHERE y.environment_id = r.environment_id AND y.held_gates IS NOT NULL AND y.status <> 'running' AND y.finished_at IS NULL LIMIT ${MAX_IN_HAND}
          ) k WHERE ${isOwn(s)} AND r.blocked_on = ANY (k.held_gates) LIMIT ${MAX_NAMED})
          LIMIT ${MAX_NAMED}
        ) h))
    FROM ${s}.limit_counters c WHERE c.environment_id = r.environment_id AND c.gate = r.blocked_on) END`

const children = (
  s: string,
) => `CASE WHEN r.status = 'waiting' AND r.join_remaining IS NOT NULL THEN jsonb_build_object('remaining', r.join_remaining, 'ids', (
    SELECT coalesce(jsonb_agg(k.id), '[]') FROM (
      SELECT y.id FROM (
        SELECT x.id, x.status FROM ${s}.runs x
        WHERE x.parent_id IS NOT NULL AND x.parent_id = r.id AND x.parent_join_seq = r.join_seq ORDER BY x.child_index LIMIT ${MAX_CHILDREN}
      ) y WHERE y.status NOT IN ('completed', 'failed', 'cancelled', 'discarded') LIMIT ${MAX_NAMED}
    ) k)) END`

/** How far it is followed who waits for whom, and how many runs are looked at. */
const MAX_DEPTH = 64
const MAX_WAITERS = 1_000

/** Runs that wait for each other's ends, from this one on, back to it: each for the next, the last for the first. */
const circle = (s: string) => `CASE WHEN r.status = 'waiting' THEN (
    WITH RECURSIVE walk AS (
      SELECT ARRAY[r.id] AS path, f.id AS next FROM (${waitedFor(s, 'r')}) f
      UNION ALL
      SELECT w.path || w.next, f.id
      FROM walk w JOIN LATERAL (SELECT x.* FROM ${s}.runs x WHERE x.id = w.next LIMIT 1) x ON x.status = 'waiting' CROSS JOIN LATERAL (${waitedFor(s, 'x')}) f
      WHERE w.next <> ALL (w.path) AND cardinality(w.path) < ${MAX_DEPTH}
    )
    SELECT to_jsonb(w.path) FROM (SELECT * FROM walk LIMIT ${MAX_WAITERS}) w WHERE w.next = r.id LIMIT 1) END`

/** Runs of whose ends a waiting run waits: those it names, and the children of its join. */
const waitedFor = (s: string, waiter: string) => `
        SELECT substr(t.topic, 5)::uuid AS id FROM unnest(${waiter}.awaits) AS t(topic) WHERE t.topic LIKE 'run:%'
        UNION ALL
        (SELECT k.id FROM ${s}.runs k
          WHERE ${waiter}.join_remaining IS NOT NULL AND k.parent_id IS NOT NULL AND k.parent_id = ${waiter}.id AND k.parent_join_seq = ${waiter}.join_seq AND k.status = 'waiting'
          ORDER BY k.child_index LIMIT ${MAX_WAITERS})`

/** In the window of its lane: a range of `ready_order_key`. Null: it is not there. */
const ahead = (
  s: string,
) => `CASE WHEN r.status = 'pending' AND r.timer_at IS NULL AND r.blocked_on IS NULL AND r.hold IS NULL THEN (
    SELECT count(*)::int FROM (
      SELECT FROM ${s}.ready y
      WHERE y.lane_id = ${windowLane('r')} AND (y.priority, y.available_at, y.position) < (r.priority, r.available_at, r.position)
      ORDER BY y.priority, y.available_at, y.position LIMIT ${MAX_AHEAD}
    ) x) END`

/** Everything that can keep a run from moving, in one snapshot, each part bounded. No row: no such run. */
export const explainRun = defineStatement<ExplainRunParams>(
  'explain_run',
  (s) => `
WITH ${CLOCK}
SELECT ${epochMs('clock.at')} AS now, r.status, l.definition, l.version, l.queue, r.hold, r.hold_detail, r.step, r.losses, r.blocked_on, r.awaits, r.uncertainty,
  ${epochMs('r.timer_at')} AS timer_at, ${epochMs('r.available_at')} AS available_at, ${epochMs('r.updated_at')} AS updated_at, ${epochMs('r.finished_at')} AS finished_at,
  CASE WHEN r.status = 'running' THEN ${claim(s)} END AS lease_until,
  CASE WHEN r.status = 'waiting' THEN ARRAY(SELECT w.topic FROM ${s}.event_waits w WHERE w.run_id = r.id ORDER BY w.topic LIMIT ${MAX_NAMED}) END AS topics,
  ${pauses(s)} AS pauses,
  ${gate(s)} AS gate,
  ${children(s)} AS children,
  ${circle(s)} AS circle,
  ${ahead(s)} AS ahead,
  ${epochMs('e.last_tick_at')} AS last_tick_at, e.last_tick_source
FROM clock
JOIN ${s}.environments e ON e.name = $2::text
JOIN ${s}.runs r ON r.id = $4::uuid AND r.environment_id = e.id
JOIN ${s}.lanes l ON l.id = r.lane_id AND l.tenant = $3::text
`,
  (p) => [p.now, p.environment, p.tenant, p.id],
)
