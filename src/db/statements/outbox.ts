/** What a commit has left to be told to others: written with it, told and deleted in batches of their own. */
import { CLOCK, defineStatement } from './statement.ts'

export interface MessageRows {
  readonly kinds: readonly string[]
  readonly subjects: readonly string[]
  /** JSON text. */
  readonly bodies: readonly string[]
}

/** Messages of steps, kept if their outcome was applied by this transaction. */
export const leaveMessages = defineStatement<MessageRows & { readonly now: string | null; readonly runIds: readonly string[] }>(
  'leave_messages',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.outbox (created_at, environment_id, tenant, kind, subject, body)
SELECT clock.at, r.environment_id, l.tenant, i.kind, i.subject, i.body::jsonb
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS i(run_id, kind, subject, body, ordinal)
CROSS JOIN clock
JOIN ${s}.runs r ON r.id = i.run_id JOIN ${s}.lanes l ON l.id = r.lane_id
CROSS JOIN LATERAL (SELECT h.xmin AS written_by FROM ${s}.history h WHERE h.run_id = r.id AND h.seq = r.seq LIMIT 1) h
WHERE h.written_by = pg_current_xact_id()::xid
ORDER BY i.ordinal
`,
  (p) => [p.now, p.runIds, p.kinds, p.subjects, p.bodies],
)

/** A message of a caller's transaction: told once that is committed. */
export const leaveMessage = defineStatement<{
  readonly now: string | null
  readonly environment: string
  readonly tenant: string
  readonly kind: string
  readonly subject: string
  readonly body: string
}>(
  'leave_message',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.outbox (created_at, environment_id, tenant, kind, subject, body)
SELECT clock.at, e.id, $3::text, $4::text, $5::text, $6::jsonb FROM ${s}.environments e CROSS JOIN clock WHERE e.name = $2::text
`,
  (p) => [p.now, p.environment, p.tenant, p.kind, p.subject, p.body],
)

/** Who ends a run otherwise than by an outcome leaves word for those who wait for it: runs of this batch that have ended and are awaited. */
export const leaveEnds = defineStatement<{ readonly now: string | null; readonly ids: readonly string[] }>(
  'leave_ends',
  (s) => `
WITH ${CLOCK}
INSERT INTO ${s}.outbox (created_at, environment_id, tenant, kind, subject)
SELECT clock.at, r.environment_id, l.tenant, 'end', 'run:' || r.id FROM ${s}.runs r JOIN ${s}.lanes l ON l.id = r.lane_id CROSS JOIN clock
WHERE r.id = ANY ($2::uuid[]) AND r.awaited AND r.finished_at IS NOT NULL AND r.xmin = pg_current_xact_id()::xid
RETURNING id::text AS id
`,
  (p) => [p.now, p.ids],
)

/** What is to be told, oldest first. Unlocked. */
export const readMessages = defineStatement<{ readonly environment: string; readonly limit: number }>(
  'read_messages',
  (s) => `
SELECT o.id::text AS id, o.tenant, o.kind, o.subject, o.body, o.nonce FROM ${s}.outbox o
WHERE o.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) ORDER BY o.id LIMIT (SELECT $2::int)
`,
  (p) => [p.environment, p.limit],
)

export interface MessageParams {
  readonly environment: string
  readonly messageId: string
}

/** Takes a message, for the statements behind it in the batch; one that somebody else is telling is theirs. */
export const lockMessage = defineStatement<MessageParams>(
  'lock_message',
  (s) => `
SELECT true AS taken FROM ${s}.outbox o
WHERE o.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) AND o.id = $2::bigint FOR UPDATE SKIP LOCKED
`,
  (p) => [p.environment, p.messageId],
)

/** Deletes the message that this transaction has locked. */
export const dropMessage = defineStatement<MessageParams>(
  'drop_message',
  (s) => `
DELETE FROM ${s}.outbox o
WHERE o.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) AND o.id = $2::bigint AND o.xmax = pg_current_xact_id()::xid
`,
  (p) => [p.environment, p.messageId],
)
