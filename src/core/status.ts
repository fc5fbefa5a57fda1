/** Where a run stands. `uncertain` waits for a decision by a person: it is neither terminal nor ever run by itself. */
export type Status = 'pending' | 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled' | 'discarded' | 'uncertain'

export type TerminalStatus = Extract<Status, 'completed' | 'failed' | 'cancelled' | 'discarded'>

export const STATUSES: readonly Status[] = [
  'pending',
  'running',
  'waiting',
  'completed',
  'failed',
  'cancelled',
  'discarded',
  'uncertain',
]

export const TERMINAL: readonly TerminalStatus[] = ['completed', 'failed', 'cancelled', 'discarded']

/** True when the run has ended for good and its result or error no longer changes (short of a manual retry). */
export function isTerminal(status: Status): status is TerminalStatus {
  return status === 'completed' || status === 'failed' || status === 'cancelled' || status === 'discarded'
}

export function isStatus(value: unknown): value is Status {
  return STATUSES.includes(value as Status)
}

/** Why a run that could move is held: by a person, because its history does not fit the code, or by the environment fence. */
export type Hold = 'paused' | 'mismatch' | 'environment'
