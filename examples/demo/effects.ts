import { readFileSync } from 'node:fs'

/** What happened to one run, as its effects say: they are written outside the engine and survive its crash. */
export interface RunEffects {
  readonly begun: number
  readonly done: number
}

export type Effects = ReadonlyMap<string, RunEffects>

export function readEffects(file: string): Effects {
  const effects = new Map<string, { begun: number; done: number }>()
  // a line that is being written has no end yet
  for (const line of readFileSync(file, 'utf8').split('\n').slice(0, -1)) {
    const { kind, runId } = JSON.parse(line) as { readonly kind: 'begun' | 'done'; readonly runId: string }
    const known = effects.get(runId) ?? { begun: 0, done: 0 }
    known[kind] += 1
    effects.set(runId, known)
  }
  return effects
}

export function countDone(effects: Effects): number {
  return [...effects.values()].filter(({ done }) => done > 0).length
}

/** Runs that were begun more often than they were done: in flight, or interrupted. */
export function countInterrupted(effects: Effects): number {
  return [...effects.values()].filter(({ begun, done }) => begun > done).length
}
