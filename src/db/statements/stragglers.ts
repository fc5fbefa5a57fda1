import { CLOCK, defineStatement } from './statement.ts'

/**
 * Leaves word that what is left of a join's children is to be cancelled, when the outcome that went on without them was applied by this
 * transaction. Nothing where all have ended. Their order of locks forbids to cancel them here.
 */
export const dismissStragglers = defineStatement<{
  readonly now: string | null
  readonly ids: readonly string[]
  readonly joinSeqs: readonly number[]
}>(
  'dismiss_stragglers',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.cascades (parent_id, join_seq, environment_id, created_at)
SELECT r.id, i.join_seq, r.environment_id, clock.at
FROM unnest($2::uuid[], $3::int[]) AS i(id, join_seq) CROSS JOIN clock JOIN ${s}.runs r ON r.id = i.id
CROSS JOIN LATERAL (SELECT h.xmin AS written_by FROM ${s}.history h WHERE h.run_id = r.id AND h.seq = r.seq LIMIT 1) h
WHERE h.written_by = pg_current_xact_id()::xid
  AND (SELECT true FROM ${s}.runs k WHERE k.parent_id = i.id AND k.parent_join_seq = i.join_seq AND k.finished_at IS NULL LIMIT 1)
ON CONFLICT DO NOTHING
`,
  (p) => [p.now, p.ids, p.joinSeqs],
)
