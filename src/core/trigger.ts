import { checkCron } from './cron.ts'
import { type Duration, toMs } from './duration.ts'
import { notAllowed } from './errors.ts'
import type { Json } from './json.ts'
import { checkName } from './names.ts'
import type { Env } from './register.ts'
import { isSchema, type Out, type Schema } from './schema.ts'

/** A schedule declared with a definition. `I` is what the definition takes. */
export interface CronTrigger<I> {
  readonly kind: 'cron'
  /** Name of the schedule; when absent, the definition's name. */
  readonly name: string | undefined
  readonly expression: string
  readonly timeZone: string
  readonly input: I | undefined
}

export interface CronOptions<I> {
  /** IANA name. Default `UTC`. */
  readonly timeZone?: string | undefined
  /** What every firing spawns. */
  readonly input?: I | undefined
  readonly name?: string | undefined
}

/** Spawns a run at each slot of a five-field cron expression, once per slot however many ticks run. Throws `invalid_configuration`. */
export function cron<I = undefined>(expression: string, options: CronOptions<I> = {}): CronTrigger<I> {
  const { timeZone = 'UTC', input, name } = options
  checkCron(expression, timeZone, 'cron')
  if (name !== undefined) checkName(name, { field: 'cron.name' })
  return { kind: 'cron', name, expression, timeZone, input }
}

/** A verified inbound request. Header names are lower case. */
export interface Delivery<B = Json> {
  readonly deliveryId: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: B
}

/** How a delivery is signed: HMAC-SHA256 over the raw body (`standard`: over `id.timestamp.body`). */
export type SignatureScheme =
  | { readonly kind: 'standard'; readonly toleranceMs: number }
  | { readonly kind: 'github' }
  | {
      readonly kind: 'hmac'
      /** Header with the signature, lower case. */
      readonly header: string
      readonly encoding: 'hex' | 'base64'
      /** Text before the signature, e.g. `sha256=`. */
      readonly prefix: string
      /** Header with the delivery's id; when absent the id is the hash of the body, so equal bodies are one delivery. */
      readonly idHeader: string | undefined
    }

export interface HmacOptions {
  readonly header: string
  readonly encoding?: 'hex' | 'base64' | undefined
  readonly prefix?: string | undefined
  readonly idHeader?: string | undefined
}

/** What a webhook signals, on behalf of the delivery. */
export interface SignalRequest {
  readonly to: { readonly id: string } | { readonly key: string; readonly definition?: string | undefined }
  readonly name: string
  readonly payload?: Json | undefined
}

/** An inbound webhook declared with a definition: `POST /hooks/{name}`. */
export interface WebhookTrigger<I> {
  readonly kind: 'webhook'
  readonly name: string
  readonly scheme: SignatureScheme
  /** Secrets that may have signed a delivery, the newest first: several while one is rotated. */
  readonly secrets: (env: unknown) => readonly string[]
  readonly body: Schema | undefined
  readonly action: WebhookAction<I>
}

/** What a verified delivery does. `undefined` from the mapping: the delivery is acknowledged and does nothing. */
export type WebhookAction<I> =
  | { readonly kind: 'spawn'; readonly toInput: (delivery: Delivery<unknown>) => I | undefined }
  | { readonly kind: 'signal'; readonly toSignal: (delivery: Delivery<unknown>) => SignalRequest | undefined }

export interface WebhookBase<B extends Schema> {
  readonly name: string
  /** The secret, or several while one is rotated. `whsec_…` is base64, anything else is taken as text. */
  readonly secret: (env: Env) => string | readonly string[]
  /**
   * `standard` (default; https://www.standardwebhooks.com): `webhook-id`, `webhook-timestamp`, `webhook-signature`.
   * `github`: `x-hub-signature-256` with `x-github-delivery`. Or a header of your own over the raw body.
   */
  readonly scheme?: 'standard' | 'github' | HmacOptions | undefined
  /** How far the timestamp of a `standard` delivery may be from now, either way. Default 5 minutes. */
  readonly tolerance?: Duration | undefined
  /** Checks the body and types it. A delivery that does not match is 422 `invalid_input`. */
  readonly body?: B | undefined
}

export type WebhookOptions<I, B extends Schema> = WebhookBase<B> &
  (
    | { readonly spawn: (delivery: Delivery<Out<B>>) => I | undefined; readonly signal?: undefined }
    | { readonly signal: (delivery: Delivery<Out<B>>) => SignalRequest | undefined; readonly spawn?: undefined }
  )

export type Trigger<I> = CronTrigger<I> | WebhookTrigger<I>

/**
 * Accepts signed deliveries at `POST /hooks/{name}`, each delivery id once, and spawns the definition with `spawn(delivery)`
 * or sends the signal of `signal(delivery)`. Throws `invalid_configuration`.
 */
export function webhook<I = never, B extends Schema = Schema<Json, Json>>(options: WebhookOptions<I, B>): WebhookTrigger<I> {
  const name = checkName(options.name, { field: 'webhook.name' })
  const field = `webhook "${name}"`
  const { secret, body } = options
  if (typeof secret !== 'function') {
    throw notAllowed('invalid_configuration', { field: `${field}.secret`, got: secret, allowed: 'a function of env' })
  }
  if (body !== undefined && !isSchema(body)) {
    throw notAllowed('invalid_configuration', { field: `${field}.body`, got: body, allowed: 'a Standard Schema' })
  }
  return {
    kind: 'webhook',
    name,
    scheme: toScheme(options, field),
    // the host's env is typed by Register; the engine hands it through untyped
    secrets: (env) => [secret(env as Env)].flat(),
    body,
    action: toAction(options, field),
  }
}

function toAction<I, B extends Schema>(options: WebhookOptions<I, B>, field: string): WebhookAction<I> {
  const { spawn, signal } = options
  if ((spawn === undefined) === (signal === undefined)) {
    throw notAllowed('invalid_configuration', { field, got: spawn ? 'spawn and signal' : 'neither', allowed: 'spawn or signal' })
  }
  // the body has been parsed with `options.body` before the mapping is called
  if (spawn) return { kind: 'spawn', toInput: spawn as (delivery: Delivery<unknown>) => I | undefined }
  return { kind: 'signal', toSignal: signal as (delivery: Delivery<unknown>) => SignalRequest | undefined }
}

const HEADER = /^[a-z0-9-]{1,128}$/

function toScheme(options: WebhookBase<Schema>, field: string): SignatureScheme {
  const { scheme = 'standard', tolerance = '5m' } = options
  if (scheme === 'standard') return { kind: 'standard', toleranceMs: toMs(tolerance, `${field}.tolerance`, { minMs: 1_000 }) }
  if (scheme === 'github') return { kind: 'github' }
  const header = String(scheme.header).toLowerCase()
  const idHeader = scheme.idHeader?.toLowerCase()
  if (!HEADER.test(header) || (idHeader !== undefined && !HEADER.test(idHeader))) {
    throw notAllowed('invalid_configuration', { field: `${field}.scheme`, got: scheme.header, allowed: 'names of headers' })
  }
  return { kind: 'hmac', header, encoding: scheme.encoding ?? 'hex', prefix: scheme.prefix ?? '', idHeader }
}
