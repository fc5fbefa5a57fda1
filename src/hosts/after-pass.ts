/** What follows a pass that could not finish everything: other invocations take over, now or when it is due. */
import type { Logger } from '../core/logger.ts'
import type { TickReport } from '../core/tick.ts'
import type { AlarmPort, SelfTarget } from './host-options.ts'

/** How far from the first invocation a handed-on one is. */
export const HAND_ON_HEADER = 'pawl-hand-on'

/**
 * Invocations that may follow one another. Cloudflare allows 32 invocations in one chain of service bindings
 * (developers.cloudflare.com/workers/runtime-apis/bindings/service-bindings): with the width below, 1 + 2 + 4 · 7 = 31.
 */
const MAX_DEPTH = 8
/** Levels on which the backlog is spread over twice as many invocations. */
const WIDENING_LEVELS = 2
const WIDTH = 2

export interface AfterPassParams {
  readonly report: TickReport
  /** 0: not handed on to. */
  readonly depth: number
  readonly alarm: AlarmPort | undefined
  readonly self: SelfTarget | undefined
  /** What a handed-on invocation proves itself with. */
  readonly secret: string | undefined
  readonly basePath: string
  readonly nowMs: () => number
  readonly logger: Logger
}

/** Hands on what is left over, else tells the alarm when work is next due. Never throws: whatever fails here, the next tick finds the work. */
export async function afterPass(params: AfterPassParams): Promise<void> {
  const { report, alarm, logger, nowMs } = params
  try {
    if (report.more && (await handOn(params))) return
    const dueAt = report.more ? nowMs() : report.nextDueAt
    if (dueAt !== null) await alarm?.setAt(dueAt)
  } catch (error) {
    logger.warn('pawl: what a pass left over could not be handed on', { error: String(error) })
  }
}

/** False when there is nobody to hand on to, or all of them declined. */
async function handOn({ depth, self, secret, basePath, logger }: AfterPassParams): Promise<boolean> {
  if (self === undefined || secret === undefined || depth >= MAX_DEPTH) return false
  const width = depth < WIDENING_LEVELS ? WIDTH : 1
  const request = (): Request =>
    new Request(tickUrl(self, basePath), {
      method: 'POST',
      headers: { authorization: `Bearer ${secret}`, [HAND_ON_HEADER]: String(depth + 1) },
    })
  const send = (): Promise<Response> => (typeof self === 'string' ? fetch(request()) : self.fetch(request()))
  const answers = await Promise.allSettled(Array.from({ length: width }, send))
  const accepted = await Promise.all(answers.map(wasAccepted))
  if (accepted.includes(true)) return true
  logger.warn('pawl: no invocation took over what is left', { depth })
  return false
}

async function wasAccepted(answer: PromiseSettledResult<Response>): Promise<boolean> {
  if (answer.status === 'rejected') return false
  // an unread body holds one of the few connections
  await answer.value.body?.cancel()
  return answer.value.status === 202
}

/** A service binding ignores the host of the address. */
function tickUrl(self: SelfTarget, basePath: string): URL {
  const base = typeof self === 'string' ? self : 'https://self.invalid'
  return new URL(`${basePath === '/' ? '' : basePath}/v1/tick`, base)
}

/** How deep a handed-on request is; undefined for any other. */
export function handedOnDepth(headers: Headers): number | undefined {
  const text = headers.get(HAND_ON_HEADER)
  return text !== null && /^\d{1,2}$/.test(text) ? Number(text) : undefined
}
