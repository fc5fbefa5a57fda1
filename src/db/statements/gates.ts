/** Slots of gates: given back by those who leave, handed over to those who wait. */
import { type SettledParams, settled } from './settle-outcomes.ts'
import { defineStatement } from './statement.ts'

/** Gives back the slots of runs that left `running` in this batch, once each: the counter first, who inherits it in a later statement. */
export const releaseGates = defineStatement<SettledParams>(
  'release_gates',
  (s) => `
WITH ${settled(s, '$1')},
freed AS (
  SELECT x.environment_id, g.gate, count(*)::int AS n FROM settled x CROSS JOIN LATERAL unnest(x.gates) AS g(gate)
  WHERE x.gates IS NOT NULL AND x.status <> 'running' GROUP BY x.environment_id, g.gate
),
counters AS MATERIALIZED (
  SELECT c.environment_id, c.gate FROM ${s}.limit_counters c JOIN freed f ON f.environment_id = c.environment_id AND f.gate = c.gate
  WHERE c.shard = 0 ORDER BY c.gate FOR UPDATE OF c
)
UPDATE ${s}.limit_counters c SET held = greatest(c.held - f.n, 0)
FROM freed f, counters k
WHERE c.environment_id = f.environment_id AND c.gate = f.gate AND c.shard = 0 AND k.environment_id = f.environment_id AND k.gate = f.gate
`,
  (p) => [p.ids],
)

export interface HandOverParams {
  readonly environment: string
  /** Gates that may have room. */
  readonly gates: readonly string[]
}

/**
 * Written by id: an heir that changed after the snapshot (a signal came) is an heir all the same. That it is still blocked is asked in a
 * way that `runs_blocked_idx` does not answer, which would be read to its end.
 */
const handingOver = (s: string, lock: string) => `
WITH room AS (
  SELECT c.environment_id, c.gate,
    coalesce((SELECT p.concurrency FROM ${s}.limits p WHERE p.environment_id = c.environment_id AND p.name = split_part(c.gate, E'\\x1f', 1)), 1) - c.held AS n
  FROM ${s}.limit_counters c JOIN ${s}.environments e ON e.id = c.environment_id AND e.name = $1::text
  WHERE c.gate = ANY ($2::text[]) AND c.shard = 0
),
heirs AS MATERIALIZED (
  SELECT w.id, room.gate FROM room CROSS JOIN LATERAL (
    SELECT r.id FROM ${s}.runs r
    WHERE r.blocked_on = room.gate AND r.environment_id = room.environment_id ORDER BY r.priority, r.available_at, r.position
    LIMIT greatest(room.n, 0) ${lock}
  ) w
),
freed AS (
  UPDATE ${s}.runs r SET blocked_on = NULL
  WHERE r.id = ANY (ARRAY(SELECT h.id FROM heirs h)) AND coalesce(r.blocked_on, '') <> ''
  RETURNING r.id, r.lane_id, r.losses, r.priority, r.available_at, r.position, r.hold, r.status
),
windowed AS (
  INSERT INTO ${s}.ready (lane_id, priority, available_at, position, run_id)
  SELECT CASE WHEN f.losses > 0 THEN -f.lane_id ELSE f.lane_id END, f.priority, f.available_at, f.position, f.id FROM freed f WHERE f.hold IS NULL AND f.status = 'pending'
  ON CONFLICT DO NOTHING
)
SELECT room.gate FROM room
WHERE (SELECT count(*) FROM heirs h WHERE h.gate = room.gate) < (
  SELECT count(*) FROM (SELECT FROM ${s}.runs r WHERE r.blocked_on = room.gate AND r.environment_id = room.environment_id LIMIT greatest(room.n, 0)) x)
`

/**
 * Puts runs blocked on a gate with room back into the claim window, in order, no more than there is room for. Never waits: behind a
 * flush, whose counters are locked by then, it would wait against the order of locks. Answers the gates for which an heir was passed
 * over because somebody held its row (a claim that began before it was blocked does, for as long as it lasts): `handOverLate` is for them.
 */
export const handOver = defineStatement<HandOverParams>(
  'hand_over',
  (s) => handingOver(s, 'FOR NO KEY UPDATE OF r SKIP LOCKED'),
  (p) => [p.environment, p.gates],
)

/** The same in a batch of its own, which has nothing locked and so waits for the heirs. */
export const handOverLate = defineStatement<HandOverParams>(
  'hand_over_late',
  (s) => handingOver(s, 'FOR NO KEY UPDATE OF r'),
  (p) => [p.environment, p.gates],
)
