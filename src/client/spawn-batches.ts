/** Spawns that are asked for at the same time go to the database together, each answered once they are committed. */
import { DatabaseError } from '../core/database.ts'
import type { Admission, AdmissionStore, NewRun } from '../core/store.ts'

/** Runs in one batch: more gain nothing, and one batch holds its locks for as long as it takes. */
const MAX_BATCH_RUNS = 1_000
/** Payload in one batch, in bytes: well below what any driver takes in one request. */
const MAX_BATCH_BYTES = 4_194_304

/** The runs in as few batches as the bounds allow, in order. A run larger than a batch may be has one to itself. */
export function toBatches<T>(items: readonly T[], bytesOf: (item: T) => number): readonly (readonly T[])[] {
  const batches: T[][] = []
  let current: T[] = []
  let bytes = 0
  for (const item of items) {
    const more = bytesOf(item)
    if (current.length >= MAX_BATCH_RUNS || (current.length > 0 && bytes + more > MAX_BATCH_BYTES)) {
      batches.push(current)
      current = []
      bytes = 0
    }
    current.push(item)
    bytes += more
  }
  if (current.length > 0) batches.push(current)
  return batches
}

export type Settled = { readonly ok: true; readonly admission: Admission } | { readonly ok: false; readonly error: unknown }

/** Data that the server cannot take, whatever we checked: a bad value, a violated constraint, a limit of the server. */
const REFUSED_DATA = /^(22|23|54)/

/** True for what says nothing about the other runs of a batch. */
export function isRefusedData(error: unknown): boolean {
  return error instanceof DatabaseError && error.fate === 'refused' && REFUSED_DATA.test(error.sqlstate ?? '')
}

/**
 * One batch; never rejects. When the server refuses what is in it, nothing was written, and it is sent again in halves: one run that
 * cannot be stored must not take its neighbours along.
 */
export async function spawnBatch(store: Pick<AdmissionStore, 'spawn'>, runs: readonly NewRun[]): Promise<readonly Settled[]> {
  try {
    const admissions = await store.spawn(runs)
    return admissions.map((admission) => ({ ok: true, admission }))
  } catch (error) {
    if (!isRefusedData(error) || runs.length < 2) return runs.map(() => ({ ok: false, error }))
    const middle = runs.length >> 1
    return [...(await spawnBatch(store, runs.slice(0, middle))), ...(await spawnBatch(store, runs.slice(middle)))]
  }
}

interface Waiting {
  readonly run: NewRun
  readonly settle: (settled: Settled) => void
}

/**
 * Makes a function that spawns one run, prepared by what it is given. All that were asked for in the same turn of the event loop, and
 * have been prepared within it, go in one batch: a lone one at once, and none ever waits for a slow neighbour's preparation.
 */
export function createSpawnBatcher(store: Pick<AdmissionStore, 'spawn'>): (prepare: () => Promise<NewRun>) => Promise<Settled> {
  let preparing = 0
  let waiting: Waiting[] = []
  let timer: ReturnType<typeof setTimeout> | undefined

  const flush = (): void => {
    clearTimeout(timer)
    timer = undefined
    const batches = toBatches(waiting, ({ run }) => run.payloadBytes)
    waiting = []
    void sendAll(batches)
  }

  const sendAll = async (batches: readonly (readonly Waiting[])[]): Promise<void> => {
    for (const batch of batches) {
      const settled = await spawnBatch(
        store,
        batch.map(({ run }) => run),
      )
      batch.forEach(({ settle }, index) => {
        settle(settled[index] ?? { ok: false, error: new Error('A spawn was not answered.') })
      })
    }
  }

  const prepared = (): void => {
    preparing -= 1
    if (waiting.length === 0) return
    if (preparing === 0) flush()
    else timer ??= setTimeout(flush, 0)
  }

  return async (prepare) => {
    preparing += 1
    let answer: Promise<Settled> | undefined
    try {
      const run = await prepare()
      answer = new Promise((resolve) => {
        waiting.push({ run, settle: resolve })
      })
    } finally {
      prepared()
    }
    return answer
  }
}
