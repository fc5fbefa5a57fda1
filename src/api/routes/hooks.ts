import type { Context } from 'hono'
import { MAX_KEY_LENGTH } from '../../core/bounds.ts'
import { sha256Hex } from '../../core/canonical.ts'
import { verifyDelivery } from '../../core/delivery.ts'
import { isPawlError, PawlError } from '../../core/errors.ts'
import type { Registry } from '../../core/registry.ts'
import { parseOptional } from '../../core/schema.ts'
import type { Delivery } from '../../core/trigger.ts'
import { nowOf } from '../access.ts'
import type { ApiContext } from '../api-context.ts'
import { readBytes } from '../body.ts'
import { json } from '../respond.ts'
import { addRoute, kick, type Routing } from '../routing.ts'

type Webhook = NonNullable<ReturnType<Registry['webhooks']['get']>>

export function addHookRoutes(routing: Routing): void {
  addRoute(routing, '/hooks/:name', { POST: { open: receive } })
}

/**
 * A delivery is let in by its signature, not by a key, and done once per delivery id: 202 with what it spawned or signalled,
 * `replayed` when that was done before. What the mapping has no use for is acknowledged as `ignored`.
 */
async function receive(http: Context, api: ApiContext): Promise<Response> {
  const name = http.req.param('name') ?? ''
  const webhook = api.registry.webhooks.get(name)
  if (webhook === undefined) throw new PawlError('not_found', 'There is no such webhook.', { field: 'name' })
  const rawBody = await readBytes(http)
  const secrets = webhook.trigger.secrets(api.env)
  const verified = await verifyDelivery({
    headers: http.req.raw.headers,
    rawBody,
    trigger: webhook.trigger,
    secrets,
    now: new Date(nowOf(api)),
  })
  const body = await parseOptional(webhook.trigger.body, verified.body, { code: 'invalid_input', field: 'body' })
  const answer = await act(api, webhook, { ...verified, body })
  if ('replayed' in answer && !answer.replayed) kick(api)
  const replayed = 'replayed' in answer && answer.replayed
  return json(202, answer, { 'idempotent-replayed': replayed ? 'true' : undefined })
}

type Answer =
  | { readonly ignored: true }
  | { readonly id: string; readonly created: boolean; readonly replayed: boolean }
  | { readonly id: string; readonly runId: string; readonly replayed: boolean }
  | { readonly replayed: true }

async function act(api: ApiContext, webhook: Webhook, delivery: Delivery<unknown>): Promise<Answer> {
  try {
    return await actOnce(api, webhook, delivery)
  } catch (error) {
    // the same delivery, mapped otherwise than the first time (other headers, other code): it was done then
    if (isPawlError(error, 'idempotency_mismatch')) return { replayed: true }
    throw error
  }
}

async function actOnce(api: ApiContext, { definition, trigger }: Webhook, delivery: Delivery<unknown>): Promise<Answer> {
  const { action } = trigger
  const idempotencyKey = await keyOf(trigger.name, delivery.deliveryId)
  if (action.kind === 'signal') {
    const signal = action.toSignal(delivery)
    if (signal === undefined) return { ignored: true }
    const { id, runId, replayed } = await api.calls.signal({ ...signal, idempotencyKey })
    return { id, runId, replayed }
  }
  const input = action.toInput(delivery)
  if (input === undefined) return { ignored: true }
  const origin = { hook: trigger.name, deliveryId: delivery.deliveryId }
  const { id, created, replayed } = await api.calls.spawn({ definition: definition.name, input, origin, idempotencyKey })
  return { id, created, replayed }
}

/** `hook:{name}:{deliveryId}`; an id that leaves no room is taken by its hash. */
async function keyOf(name: string, deliveryId: string): Promise<string> {
  const key = `hook:${name}:${deliveryId}`
  return key.length <= MAX_KEY_LENGTH ? key : `hook:${name}:sha256:${await sha256Hex(deliveryId)}`
}
