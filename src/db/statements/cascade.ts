import { cascading, followsParent, isOurs, isOursWithParent, lastJoinToFollow } from './end-runs.ts'
import { CLOCK, defineStatement } from './statement.ts'

export interface FollowParentsParams {
  readonly now: string | null
  /** Children of runs that have a row in `cascades`. */
  readonly ids: readonly string[]
}

/** Writes the request to end on children whose parent was cancelled or goes on without them, and leaves word for their own children in turn. */
export const followParents = defineStatement<FollowParentsParams>(
  'follow_parents',
  (s) => `
WITH ${CLOCK},
asked AS (
  UPDATE ${s}.runs r
  SET cancel_requested_at = clock.at,
      cancellation = jsonb_build_object('code', 'cancelled', 'message', 'The run was cancelled by its parent, run ' || r.parent_id || '.', 'cause', 'cancelled', 'by', 'run:' || r.parent_id)
  FROM clock
  WHERE r.id = ANY ($2::uuid[]) AND ${followsParent('r')} AND ${isOursWithParent(s, 'r')}
  RETURNING r.id, r.environment_id
),
${cascading(s)}
SELECT count(*)::int AS asked FROM asked
`,
  (p) => [p.now, p.ids],
)

/**
 * Strikes off cascades with no child left to ask. Under the lock of the parent: whoever cancels it again, after a retry, holds that while it
 * finds the row in place. A parent that is gone has nobody who could. The join is asked for as a range (a child that was retried has none),
 * so that the index is believed to leave little.
 */
export const endCascades = defineStatement<{ readonly parentIds: readonly string[] }>(
  'end_cascades',
  (s) => `
WITH asked AS MATERIALIZED (SELECT i.id, ${lastJoinToFollow(s, 'i.id')} AS last FROM unnest((SELECT $1::uuid[])) AS i(id))
DELETE FROM ${s}.cascades c USING asked a
WHERE c.parent_id = ANY ($1::uuid[]) AND c.parent_id = a.id
  AND coalesce((SELECT ${isOurs('p')} FROM ${s}.runs p WHERE p.id = c.parent_id), true)
  AND (SELECT true FROM ${s}.runs k WHERE k.parent_id = c.parent_id AND k.parent_join_seq >= c.join_seq AND k.parent_join_seq <= CASE WHEN c.join_seq = 0 THEN a.last ELSE c.join_seq END AND ${followsParent('k')} LIMIT 1) IS NULL
  AND (c.join_seq <> 0 OR (SELECT true FROM ${s}.runs k WHERE k.parent_id = c.parent_id AND k.parent_join_seq IS NULL AND ${followsParent('k')} LIMIT 1) IS NULL)
RETURNING c.parent_id AS id
`,
  (p) => [p.parentIds],
)
