export interface TimedCacheOptions {
  readonly ttlMs: number
  readonly maxEntries: number
}

/** Values by key for a while; when full, the oldest goes. Requests for one key that is being loaded share the load; a failed load is not kept. */
export class TimedCache<T> {
  readonly #entries = new Map<string, { readonly until: number; readonly value: Promise<T>; settled: T | undefined }>()
  readonly #options: TimedCacheOptions

  constructor(options: TimedCacheOptions) {
    this.#options = options
  }

  get(key: string, now: number, load: () => Promise<T>): Promise<T> {
    const known = this.#entries.get(key)
    if (known !== undefined && known.until > now) return known.value
    const { ttlMs, maxEntries } = this.#options
    this.#entries.delete(key)
    const oldest = this.#entries.keys().next()
    if (this.#entries.size >= maxEntries && !oldest.done) this.#entries.delete(oldest.value)
    const entry = { until: now + ttlMs, value: load(), settled: undefined as T | undefined }
    this.#entries.set(key, entry)
    entry.value.then(
      (value) => {
        entry.settled = value
      },
      () => {
        if (this.#entries.get(key) === entry) this.#entries.delete(key)
      },
    )
    return entry.value
  }

  drop(matches: (value: T) => boolean): void {
    for (const [key, { settled }] of this.#entries) if (settled !== undefined && matches(settled)) this.#entries.delete(key)
  }
}
