/** What a queue must offer to be measured: one file per queue in this folder, so that each is set up the way its own documents say. */

/** One queue in one process: enqueues, runs, or both. */
export interface Engine {
  /** Enqueues one no-op run and resolves once it is committed. */
  enqueue(index: number): Promise<void>
  /** Enqueues `count` no-op runs in one call. */
  enqueueBatch(from: number, count: number): Promise<void>
  /** Enqueues `count` runs of three no-op steps each, where the queue can do that. */
  enqueueChains?(count: number): Promise<void>
  /** Enqueues one run that spawns `children` no-op runs and ends after the last of them, where the queue can do that. */
  fanOut?(children: number): Promise<void>
  /** Begins to run what is there, and what comes. */
  start(): Promise<void>
  /** Database requests sent so far, where the queue counts them. */
  requests?(): number
  stop(): Promise<void>
}

export interface Adapter {
  readonly name: string
  /** Version and licence of what is measured do not change the code here: read from what is installed. */
  readonly version: string
  /** Makes the queue's tables in an empty database. */
  setup(url: string): Promise<void>
  /** `setting` is a key of the adapter's own settings. `onStart` is called by each handler as it begins. */
  open(url: string, setting: string, onStart: () => void): Promise<Engine>
  /** SQL of one row and one boolean: is anything left that has not ended? */
  readonly pendingSql: string
  /** Adds `count` runs that ended long ago, to a table in which one run ended just now; absent: the queue keeps none. */
  addFinished?(url: string, count: number): Promise<void>
}
