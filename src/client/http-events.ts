import type { EmitResult } from '../core/calls.ts'
import { fromMs } from '../core/duration.ts'
import { exchange, type HttpExchangeOptions } from './http-exchange.ts'
import type { EmitOptions } from './typed-calls.ts'

export async function emitEvent(
  over: HttpExchangeOptions,
  name: string,
  payload: unknown,
  { retention, idempotencyKey }: EmitOptions = {},
): Promise<EmitResult> {
  const { body, replayed } = await exchange(over, {
    method: 'POST',
    path: '/v1/events',
    body: { name, payload, retention: typeof retention === 'number' ? fromMs(Math.round(retention)) : retention },
    idempotencyKey,
    repeatable: idempotencyKey !== undefined,
    asked: `Emitting the event "${name}"`,
  })
  return { ...(body as Omit<EmitResult, 'replayed'>), replayed }
}
