import { defineStatement } from './statement.ts'

export interface DeclareLimitsParams {
  readonly environment: string
  readonly names: readonly string[]
  readonly concurrency: readonly (number | null)[]
  readonly bursts: readonly (number | null)[]
  readonly msPerToken: readonly (number | null)[]
  readonly shards: readonly number[]
}

/** Writes policies. What is held stays held: a lowered limit admits nobody until enough has been given back. */
export const declareLimits = defineStatement<DeclareLimitsParams>(
  'declare_limits',
  (s) => `
INSERT INTO ${s}.limits (environment_id, name, concurrency, burst, ms_per_token, shards)
SELECT e.id, i.name, i.concurrency, i.burst, i.ms_per_token, i.shards
FROM unnest($2::text[], $3::int[], $4::int[], $5::float8[], $6::int[]) AS i(name, concurrency, burst, ms_per_token, shards) JOIN ${s}.environments e ON e.name = $1::text
ORDER BY i.name
ON CONFLICT (environment_id, name) DO UPDATE
SET concurrency = excluded.concurrency, burst = excluded.burst, ms_per_token = excluded.ms_per_token, shards = excluded.shards
WHERE (limits.concurrency, limits.burst, limits.ms_per_token, limits.shards) IS DISTINCT FROM (excluded.concurrency, excluded.burst, excluded.ms_per_token, excluded.shards)
`,
  (p) => [p.environment, p.names, p.concurrency, p.bursts, p.msPerToken, p.shards],
)
