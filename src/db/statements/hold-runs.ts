import { CLOCK, defineStatement, instantText } from './statement.ts'

/** Longest pause of a held run, in seconds: the code that it waits for may have come, and nobody says so. */
const LONGEST_PAUSE_SECONDS = 900
/** The first, and how it grows. */
const FIRST_PAUSE_SECONDS = 30

/**
 * Holds runs that this build's code does not fit, whose outcome in this batch was `hold`. After `apply_outcomes`; resent, it changes nothing.
 * Their timer ends the hold (`promote_due`): then whichever build claims them looks again, and a hold in the same visit lasts twice as long.
 */
export const holdMismatched = defineStatement<{
  readonly now: string | null
  readonly ids: readonly string[]
  /** What does not fit. Parallel to the ids. */
  readonly details: readonly string[]
}>(
  'hold_mismatched',
  (s) => `
WITH ${CLOCK},
held AS (
  SELECT r.id, i.detail, coalesce(b.same, false) AS same, CASE WHEN b.same THEN coalesce((r.hold_detail->>'times')::int, 0) ELSE 0 END AS times
  FROM unnest($2::uuid[], $3::text[]) AS i(id, detail)
  JOIN ${s}.runs r ON r.id = i.id
  CROSS JOIN LATERAL (SELECT (r.hold_detail->>'visit')::int = r.visit AS same) b
  WHERE r.status = 'pending' AND r.hold IS NULL AND r.xmin = pg_current_xact_id()::xid
)
UPDATE ${s}.runs r
SET hold = 'mismatch', timer_at = clock.at + make_interval(secs => least(${FIRST_PAUSE_SECONDS} * power(2, least(h.times, 10)), ${LONGEST_PAUSE_SECONDS})),
    hold_detail = jsonb_build_object('since', CASE WHEN h.same THEN r.hold_detail->>'since' ELSE ${instantText('clock.at')} END, 'detail', h.detail, 'visit', r.visit, 'times', h.times + 1)
FROM held h, clock
WHERE r.id = h.id
`,
  (p) => [p.now, p.ids, p.details],
)
