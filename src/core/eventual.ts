/** A value, or the promise of one: what users' functions and validators may give. Waiting for what is there already costs a turn. */
export type Eventual<T> = T | Promise<T>

/** True for promises and for whatever else `await` would wait for. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function'
}

/** Uses a value as soon as it is there: at once when it is no promise. What `use` throws at once is thrown here. */
export function whenReady<T, R>(value: Eventual<T>, use: (value: T) => Eventual<R>): Eventual<R> {
  return value instanceof Promise ? value.then(use) : use(value)
}
