import { defineStatement, epochMs } from './statement.ts'

export interface ReadHistoryParams {
  readonly environment: string
  readonly tenant: string
  readonly id: string
  /** Entries up to this seq were shown. */
  readonly afterSeq: number
  readonly limit: number
}

/** What happened to a run, in order, by `history_pkey`. No row: no such run; one row without a seq: nothing (more) happened. */
export const readHistory = defineStatement<ReadHistoryParams>(
  'read_history',
  (s) => `
SELECT h.seq, h.visit, h.attempt, h.step, h.outcome, h.error, ${epochMs('h.started_at')} AS started_at, ${epochMs('h.finished_at')} AS finished_at
FROM ${s}.runs r
JOIN ${s}.lanes l ON l.id = r.lane_id
LEFT JOIN LATERAL (
  SELECT * FROM ${s}.history x WHERE x.run_id = r.id AND x.seq > $4::int ORDER BY x.seq LIMIT $5::int
) h ON true
WHERE r.id = $3::uuid
  AND r.environment_id = (SELECT e.id FROM ${s}.environments e WHERE e.name = $1::text)
  AND l.tenant = $2::text
ORDER BY h.seq
`,
  (p) => [p.environment, p.tenant, p.id, p.afterSeq, p.limit],
)
