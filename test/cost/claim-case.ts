import type { Statement } from '../../src/core/database.ts'

/** A statement of the hot path, or of an upkeep that rides with it, and what it needs to have happened before in its transaction. */
export interface Case {
  readonly name: string
  readonly before?: readonly Statement[]
  readonly statement: Statement
  /** The indexes it is to use. */
  readonly indexes: readonly string[]
}
