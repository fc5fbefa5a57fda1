import type { ClaimRequest } from '../../src/core/store.ts'
import type { TestEngine } from '../support/engine.ts'

export const LEASE_MS = 30_000
/** How long a run pauses that was lost while it was alone in its host's hands. */
export const PAUSE_MS = 2_000

/** A claim of everything that an engine knows: what a tick sends, by hand. */
export function claimOf(engine: TestEngine, limit: number, changes: Partial<ClaimRequest> = {}): ClaimRequest {
  return {
    claimId: crypto.randomUUID(),
    definitions: engine.registry.definitions,
    queues: null,
    limit,
    maxBytes: 8_388_608,
    leaseMs: LEASE_MS,
    laneCursor: 0,
    alone: true,
    besides: [],
    peek: true,
    ...changes,
  }
}

/** Inputs `{ n }` from 0. */
export const numbers = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))
