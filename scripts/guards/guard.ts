/** One guard of the engine, how to take it away, and the test that must see it gone. */
export interface Guard {
  readonly guard: string
  readonly file: string
  /** Found exactly once in the file, unless `every`. */
  readonly find: string
  readonly replace: string
  readonly every?: boolean
  readonly test: string
  /** Part of the name of the test. */
  readonly name: string
}
