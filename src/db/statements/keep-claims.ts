import { EARLIER } from './resolve-run.ts'
import { CLOCK, defineStatement, instantText } from './statement.ts'
import { intoWindow } from './window.ts'

export interface ExtendClaimsParams {
  readonly now: string | null
  readonly claimIds: readonly string[]
  readonly leaseMs: number
}

/**
 * Extends leases that have not yet lapsed, and never shortens one. Answers the claims that still stand; one that is missing was lost. The
 * lease is compared as a difference, which no index serves: claims are found by their ids, however few the planner believes there are.
 */
export const extendClaims = defineStatement<ExtendClaimsParams>(
  'extend_claims',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.claims c SET lease_until = greatest(c.lease_until, clock.at + make_interval(secs => $3::float8 / 1000))
FROM clock
WHERE c.id = ANY ($2::uuid[]) AND c.lease_until - clock.at > '0'
RETURNING c.id
`,
  (p) => [p.now, p.claimIds, p.leaseMs],
)

/** Ends the leases of claims whose ids lie in a range: whoever made them is known to be gone. The next pass rescues what they hold. */
export const endLeases = defineStatement<{ readonly now: string | null; readonly from: string; readonly to: string }>(
  'end_leases',
  (s) => `
WITH ${CLOCK}
UPDATE ${s}.claims c SET lease_until = clock.at
FROM clock
WHERE c.id >= $2::uuid AND c.id <= $3::uuid AND c.lease_until > clock.at
`,
  (p) => [p.now, p.from, p.to],
)

/** Of runs in hand: which have been asked to stop, and which are no longer ours. */
export const readClaimed = defineStatement<{ readonly ids: readonly string[]; readonly claimIds: readonly string[] }>(
  'read_claimed',
  (s) => `
SELECT i.id, coalesce(r.claimed_by = i.claim_id AND r.status = 'running', false) AS owned, coalesce(r.cancel_requested_at IS NOT NULL, false) AS cancel_requested
FROM unnest($1::uuid[], $2::uuid[]) AS i(id, claim_id) LEFT JOIN ${s}.runs r ON r.id = i.id
WHERE r.id IS NULL OR r.claimed_by IS DISTINCT FROM i.claim_id OR r.cancel_requested_at IS NOT NULL
`,
  (p) => [p.ids, p.claimIds],
)

/** Pause of a run after its first loss alone, in seconds, and how it grows: a crash loop leaves its host most of the time. */
const LONELY_PAUSE_SECONDS = 2
const LONELY_PAUSE_FACTOR = 4

/** The error of a run that is uncertain because its host went away. */
const ABANDONED = `jsonb_build_object('code', 'abandoned', 'message',
  format('The host of attempt %s of step "%s" went away without an outcome: whether its effect happened is not known.', r.failures + r.losses + 1, r.step))`

/** A claim that was alone has got company, if the new one took something: a loss from now on may be the neighbour's doing. */
export const endSolitude = defineStatement<{ readonly claimIds: readonly string[]; readonly newClaimId: string }>(
  'end_solitude',
  (s) => `
UPDATE ${s}.claims c SET alone = false
WHERE c.id = ANY ($1::uuid[]) AND c.alone AND EXISTS (SELECT FROM ${s}.claims n WHERE n.id = $2::uuid)
`,
  (p) => [p.claimIds, p.newClaimId],
)

export interface RescueLostParams {
  readonly now: string | null
  readonly environment: string
  /** Most runs to rescue in this pass. */
  readonly limit: number
}

/**
 * Takes back runs whose claim has lapsed: one loss each, then back into the window, behind the others, where a run with a loss is claimed
 * alone. A run that was lost alone pauses first, longer each time: if it is what kills its host, others get their turn. Bounded, oldest
 * lease first, SKIP LOCKED. The loss is nobody's transition in history: under the old claim it would pass for the outcome that comes too
 * late. One that had been asked to stop is left to `end_requested`, due at once. The slots they held are given back at once; a run whose counter somebody else has locked is left to the next pass, since a
 * claim, with which this rides, never waits. The claim goes when none of its runs is left.
 *
 * A run whose agreed replays (`maxReplays`) are used up becomes uncertain here, whatever code is running: no build has to know of it.
 */
export const rescueLost = defineStatement<RescueLostParams>(
  'rescue_lost',
  (s) => `
WITH ${CLOCK},
lapsed AS MATERIALIZED (
  SELECT c.id, c.alone, c.lease_until, c.run_ids FROM ${s}.claims c
  WHERE c.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND c.lease_until <= (SELECT at FROM clock)
  ORDER BY c.lease_until LIMIT (SELECT $3::int)
  FOR UPDATE OF c SKIP LOCKED
),
held AS MATERIALIZED (
  SELECT r.ctid AS place, r.id, r.claimed_by AS claim_id, r.updated_at AS since, i.alone OR r.losses > 0 AS lonely, r.gates, r.gate_shards,
    i.lease_until, coalesce(r.losses >= (r.policy->>'maxReplays')::int, false) AS uncertain
  FROM (SELECT l.id AS claim_id, l.alone, l.lease_until, x.run_id FROM lapsed l CROSS JOIN LATERAL unnest(l.run_ids) AS x(run_id)) i
  JOIN ${s}.runs r ON r.id = i.run_id AND r.claimed_by = i.claim_id AND r.status = 'running'
  LIMIT (SELECT $3::int)
  FOR NO KEY UPDATE OF r SKIP LOCKED
),
counters AS MATERIALIZED (
  SELECT c.gate, c.shard FROM ${s}.limit_counters c
  WHERE c.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND c.gate = ANY (ARRAY(SELECT DISTINCT unnest(h.gates) FROM held h))
  ORDER BY c.gate, c.shard FOR UPDATE SKIP LOCKED
),
given AS MATERIALIZED (
  SELECT h.* FROM held h
  WHERE h.gates IS NULL OR NOT EXISTS (
    SELECT FROM unnest(h.gates) WITH ORDINALITY AS g(gate, n)
    JOIN ${s}.limit_counters c ON c.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND c.gate = g.gate AND c.shard = coalesce(h.gate_shards[g.n], 0)
    WHERE (g.gate, c.shard) NOT IN (SELECT k.gate, k.shard FROM counters k))
),
rescued AS (
  UPDATE ${s}.runs r
  SET status = CASE WHEN h.uncertain THEN 'uncertain' ELSE 'pending' END::${s}.run_status, notable = CASE WHEN h.uncertain THEN 'uncertain'::${s}.run_status END,
      claimed_by = NULL, seq = r.seq + 1, losses = r.losses + 1, lonely_losses = r.lonely_losses + h.lonely::int, updated_at = clock.at,
      available_at = clock.at,
      deadline_at = CASE WHEN r.cancel_requested_at IS NULL OR h.uncertain THEN r.deadline_at ELSE clock.at END,
      timer_at = CASE WHEN h.lonely AND NOT h.uncertain AND r.cancel_requested_at IS NULL THEN clock.at + make_interval(secs => ${LONELY_PAUSE_SECONDS} * power(${LONELY_PAUSE_FACTOR}, least(r.lonely_losses, 5))) END,
      error = CASE WHEN h.uncertain THEN ${ABANDONED} ELSE r.error END,
      uncertainty = CASE WHEN h.uncertain THEN jsonb_build_object('since', ${instantText('clock.at')}, 'by', 'abandoned', 'step', r.step, 'visit', r.visit,
        'attempt', r.failures + r.losses + 1, 'reason', ${ABANDONED}->>'message',
        'evidence', jsonb_build_object('startedAt', ${instantText('h.since')}, 'leaseUntil', ${instantText('h.lease_until')}, 'claim', h.claim_id)) || ${EARLIER}
        ELSE r.uncertainty END
  FROM clock, given h
  WHERE r.ctid = ANY (ARRAY(SELECT x.place FROM given x)) AND h.place = r.ctid AND h.id = r.id AND r.status = 'running'
  RETURNING r.id, r.seq, r.visit, r.failures, r.losses, r.step, r.gates, r.gate_units, r.gate_shards, r.environment_id, r.lane_id, r.priority, r.available_at, r.position, r.hold, r.timer_at, r.cancel_requested_at, r.updated_at, r.status, r.error
),
recorded AS (
  INSERT INTO ${s}.history (run_id, seq, visit, attempt, claimed_by, started_at, finished_at, step, outcome, error)
  SELECT x.id, x.seq, x.visit, x.failures + x.losses, NULL, h.since, x.updated_at, x.step,
    CASE WHEN x.status = 'uncertain' THEN 'uncertain' ELSE 'lost' END, CASE WHEN x.status = 'uncertain' THEN x.error END FROM rescued x JOIN held h ON h.id = x.id
),
windowed AS (
  ${intoWindow(s, 'rescued', `x.status = 'pending' AND x.hold IS NULL AND x.timer_at IS NULL AND x.cancel_requested_at IS NULL`)}
  ON CONFLICT DO NOTHING
),
freed AS (
  SELECT x.environment_id, g.gate, coalesce(x.gate_shards[g.n], 0) AS shard, sum(coalesce(x.gate_units[g.n], 1))::int AS n
  FROM rescued x CROSS JOIN LATERAL unnest(x.gates) WITH ORDINALITY AS g(gate, n) WHERE x.gates IS NOT NULL GROUP BY 1, 2, 3
),
credited AS (
  UPDATE ${s}.limit_counters c SET held = greatest(c.held - f.n, 0), due_at = CASE WHEN c.refilled_at IS NULL THEN c.due_at ELSE least(c.due_at, clock.at) END
  FROM freed f, clock
  WHERE c.environment_id = f.environment_id AND c.gate = f.gate AND c.shard = f.shard
)
SELECT count(*)::int AS rescued, ARRAY(SELECT DISTINCT f.gate FROM freed f) AS gates FROM rescued
`,
  (p) => [p.now, p.environment, p.limit],
)

/**
 * Drops lapsed claims that no run is held under any more. After `rescueLost`, in the same batch: both look at the same claims, those that
 * lapsed first.
 */
export const dropLapsedClaims = defineStatement<RescueLostParams>(
  'drop_lapsed_claims',
  (s) => `
WITH ${CLOCK},
lapsed AS MATERIALIZED (
  SELECT c.ctid AS place, c.id, c.run_ids FROM ${s}.claims c
  WHERE c.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND c.lease_until <= (SELECT at FROM clock)
  ORDER BY c.lease_until LIMIT (SELECT $3::int)
  FOR UPDATE OF c SKIP LOCKED
),
held AS (
  SELECT l.id FROM lapsed l CROSS JOIN LATERAL unnest(l.run_ids) AS x(run_id)
  JOIN ${s}.runs r ON r.id = x.run_id WHERE r.claimed_by = l.id AND r.status = 'running'
)
DELETE FROM ${s}.claims c WHERE c.ctid = ANY (ARRAY(SELECT l.place FROM lapsed l WHERE l.id NOT IN (SELECT h.id FROM held h)))
`,
  (p) => [p.now, p.environment, p.limit],
)
