import { CLOCK, defineStatement } from './statement.ts'

export interface DeclareLimitsParams {
  readonly now: string | null
  readonly environment: string
  readonly names: readonly string[]
  readonly concurrency: readonly (number | null)[]
  readonly bursts: readonly (number | null)[]
  readonly msPerToken: readonly (number | null)[]
  readonly shards: readonly number[]
}

/**
 * Writes policies. What is held stays held: a lowered limit admits nobody until enough has been given back. Of one that is changed nobody else
 * looks at who waits for it before he would have been let in by the old one: upkeep is due at once, and does.
 */
export const declareLimits = defineStatement<DeclareLimitsParams>(
  'declare_limits',
  (s) => `
WITH ${CLOCK},
written AS (
  INSERT INTO ${s}.limits (environment_id, name, concurrency, burst, ms_per_token, shards)
  SELECT e.id, i.name, i.concurrency, i.burst, i.ms_per_token, i.shards
  FROM unnest($3::text[], $4::int[], $5::int[], $6::float8[], $7::int[]) AS i(name, concurrency, burst, ms_per_token, shards) JOIN ${s}.environments e ON e.name = $2::text
  ORDER BY i.name
  ON CONFLICT (environment_id, name) DO UPDATE
  SET concurrency = excluded.concurrency, burst = excluded.burst, ms_per_token = excluded.ms_per_token, shards = excluded.shards
  WHERE (limits.concurrency, limits.burst, limits.ms_per_token, limits.shards) IS DISTINCT FROM (excluded.concurrency, excluded.burst, excluded.ms_per_token, excluded.shards)
  RETURNING xmax <> 0 AS changed
)
UPDATE ${s}.environments e SET upkeep_at = clock.at FROM clock
WHERE e.name = $2::text AND e.upkeep_at > clock.at AND (SELECT true FROM written w WHERE w.changed LIMIT 1)
`,
  (p) => [p.now, p.environment, p.names, p.concurrency, p.bursts, p.msPerToken, p.shards],
)
