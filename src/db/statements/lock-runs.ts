import { defineStatement } from './statement.ts'

export interface LockRunsParams {
  /** Own runs and the parents they report to, in one list: two sorted lists, one after the other, deadlock. */
  readonly ids: readonly string[]
}

/** Locks the rows that a flush will write, in the one order that all multi-row writers share. Waits; never skips. */
export const lockRuns = defineStatement<LockRunsParams>(
  'lock_runs',
  (s) => `
SELECT FROM ${s}.runs r WHERE r.id = ANY ($1::uuid[]) ORDER BY r.id FOR NO KEY UPDATE
`,
  (p) => [p.ids],
)
