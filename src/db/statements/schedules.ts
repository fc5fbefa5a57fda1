import { CLOCK, defineStatement, epochMs } from './statement.ts'

export interface DeclareSchedulesParams {
  readonly environment: string
  readonly tenants: readonly string[]
  readonly names: readonly string[]
  readonly definitions: readonly string[]
  readonly expressions: readonly string[]
  readonly timeZones: readonly string[]
  readonly inputs: readonly (string | null)[]
  readonly nextAts: readonly (number | null)[]
}

/** Makes the schedules declared in code what the code says. The next slot is kept while expression and zone stay as they were. */
export const declareSchedules = defineStatement<DeclareSchedulesParams>(
  'declare_schedules',
  (s) => `
INSERT INTO ${s}.schedules (tenant, environment_id, name, definition, expression, time_zone, input, source, next_at)
SELECT i.tenant, e.id, i.name, i.definition, i.expression, i.time_zone, i.input::jsonb, 'code', to_timestamp(i.next_at / 1000)
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::float8[]) AS i(tenant, name, definition, expression, time_zone, input, next_at)
JOIN ${s}.environments e ON e.name = $1::text
ORDER BY i.tenant, i.name
ON CONFLICT (tenant, environment_id, name) DO UPDATE
SET definition = excluded.definition, expression = excluded.expression, time_zone = excluded.time_zone, input = excluded.input,
    next_at = CASE WHEN schedules.expression = excluded.expression AND schedules.time_zone = excluded.time_zone THEN schedules.next_at ELSE excluded.next_at END
WHERE schedules.source = 'code' AND (schedules.definition, schedules.expression, schedules.time_zone, schedules.input)
  IS DISTINCT FROM (excluded.definition, excluded.expression, excluded.time_zone, excluded.input)
`,
  (p) => [p.environment, p.tenants, p.names, p.definitions, p.expressions, p.timeZones, p.inputs, p.nextAts],
)

export const readDueSchedules = defineStatement<{
  readonly now: string | null
  readonly environment: string
  readonly limit: number
}>(
  'read_due_schedules',
  (s) => `
WITH ${CLOCK}
SELECT c.tenant, c.name, c.definition, c.version, c.expression, c.time_zone, c.input, c.enabled, c.source, ${epochMs('c.next_at')} AS next_at, ${epochMs('c.last_at')} AS last_at,
  ${epochMs('clock.at')} AS now
FROM ${s}.schedules c, clock
WHERE c.environment_id = (SELECT id FROM ${s}.environments WHERE name = $2::text) AND c.enabled AND c.next_at IS NOT NULL AND c.next_at <= clock.at
ORDER BY c.next_at LIMIT $3::int
`,
  (p) => [p.now, p.environment, p.limit],
)

/** Moves a schedule on from the slot that was just fired, by compare and set: only the first of many ticks moves it. */
export const advanceSchedule = defineStatement<{
  readonly environment: string
  readonly tenant: string
  readonly name: string
  readonly firedAt: number
  readonly nextAt: number | null
}>(
  'advance_schedule',
  (s) => `
UPDATE ${s}.schedules c SET last_at = c.next_at, next_at = to_timestamp($5::float8 / 1000)
WHERE c.tenant = $2::text AND c.environment_id = (SELECT id FROM ${s}.environments WHERE name = $1::text) AND c.name = $3::text
  AND ${epochMs('c.next_at')} = $4::float8
`,
  (p) => [p.environment, p.tenant, p.name, p.firedAt, p.nextAt],
)
