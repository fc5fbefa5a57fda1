import { defineStatement } from './statement.ts'

/** Which installation this is, and of which database: a copy of a database has the installation of the original. */
export const PLACE = `m.installation::text || '/' || current_database()`

/** How the failure of a check begins: what was refused and what was got follow, each behind a colon. */
export const REFUSAL = 'pawl:'

/**
 * Fails outside of a transaction block (25P01), and where there is no such table. The lock is the one that any reading of the table
 * takes.
 */
export const requireTransaction = defineStatement<Record<never, never>>(
  'require_transaction',
  (s) => `LOCK TABLE ${s}.meta IN ACCESS SHARE MODE`,
  () => [],
)

export interface CheckTransactionParams {
  /** Where the engine's own connection leads. Null: not known yet. */
  readonly place: string | null
}

/**
 * Fails in a transaction in which nothing may be admitted: of another database, above READ COMMITTED (later statements of an admission
 * must see what earlier ones waited for), or that may not write. The reason is a text that is no number (22P02): so the statements
 * behind it in the same request do not run.
 */
export const checkTransaction = defineStatement<CheckTransactionParams>(
  'check_transaction',
  (s) => `
SELECT (CASE
  WHEN m.installation IS NULL THEN '${REFUSAL}wrong_database:' || current_database()
  WHEN $1::text <> ${PLACE} THEN '${REFUSAL}wrong_database:' || current_database()
  WHEN current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN '${REFUSAL}isolation:' || current_setting('transaction_isolation')
  WHEN current_setting('transaction_read_only') = 'on' THEN '${REFUSAL}access:read only'
  ELSE '0' END)::int AS checked
FROM (SELECT) one LEFT JOIN ${s}.meta m ON true
`,
  (p) => [p.place],
)
