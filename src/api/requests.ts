/** Bodies of requests: types and unknown fields. What a name, a key or a priority may be is core's to say, for every way in alike. */
import * as z from 'zod'
import { MAX_BATCH_ITEMS } from '../core/bounds.ts'

const RFC3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)$/

/** An instant with its offset, as RFC 3339 writes it. */
export const instant = z
  .string()
  .refine(
    (text) => RFC3339.test(text) && !Number.isNaN(Date.parse(text)),
    'must be an RFC 3339 instant, such as 2026-11-30T12:00:00.000Z',
  )

const spawnFields = {
  definition: z.string(),
  version: z.number().optional(),
  input: z.unknown().optional(),
  id: z.string().optional(),
  key: z.string().optional(),
  onConflict: z.enum(['keep', 'reschedule']).optional(),
  queue: z.string().optional(),
  priority: z.number().optional(),
  /** With a unit: `"90s"`. */
  delay: z.string().optional(),
  at: instant.optional(),
  maxAttempts: z.number().optional(),
  tags: z.array(z.string()).optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** With a unit, like the next two. */
  maxDuration: z.string().optional(),
  startWithin: z.string().optional(),
  progressWithin: z.string().optional(),
}

export const SPAWN_FIELDS: readonly string[] = Object.keys(spawnFields)

export const spawnBody = z
  .strictObject(spawnFields)
  .refine((body) => body.delay === undefined || body.at === undefined, { path: ['at'], message: 'delay or at, not both' })

export type SpawnBody = z.output<typeof spawnBody>

/** Items are matched one by one, so that one that is wrong leaves the others alone. */
export const batchBody = z.strictObject({ runs: z.array(z.unknown()).min(1) })

export const MAX_ITEMS = MAX_BATCH_ITEMS

export const signalBody = z.strictObject({
  to: z.union([z.strictObject({ id: z.string() }), z.strictObject({ key: z.string(), definition: z.string().optional() })], {
    error: 'must be {id} or {key, definition?}',
  }),
  name: z.string(),
  payload: z.unknown().optional(),
})

export const SIGNAL_FIELDS: readonly string[] = ['to', 'name', 'payload']

export const cancelBody = z.strictObject({ reason: z.string().optional() })

export const CANCEL_FIELDS: readonly string[] = ['reason']

export const retryBody = z.strictObject({ asNewRun: z.boolean().optional(), maxAttempts: z.number().optional() })

export const RETRY_FIELDS: readonly string[] = Object.keys(retryBody.shape)

export const resolveBody = z.strictObject({
  id: z.string(),
  decision: z.enum(['success', 'failure', 'replay']),
  result: z.unknown().optional(),
  error: z
    .union([z.string(), z.strictObject({ message: z.string(), code: z.string().optional(), data: z.unknown().optional() })])
    .optional(),
  by: z.string().optional(),
  details: z.unknown().optional(),
})

export const RESOLVE_FIELDS: readonly string[] = Object.keys(resolveBody.shape)

export const eventBody = z.strictObject({
  name: z.string(),
  payload: z.unknown().optional(),
  /** With a unit: `"1 day"`. */
  retention: z.string().optional(),
})

export const EVENT_FIELDS: readonly string[] = ['name', 'payload', 'retention']

export const emptyBody = z.strictObject({})

export const apiKeyBody = z.strictObject({
  name: z.string(),
  scopes: z.array(z.string()).min(1),
  tenant: z.string().optional(),
  expiresAt: instant.optional(),
})
