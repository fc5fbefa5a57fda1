/** All of them once they are there: at once when none is a promise, which `Promise.all` would give a turn of the microtasks each. */
export function allOf<T>(items: readonly (T | Promise<T>)[]): readonly T[] | Promise<readonly T[]> {
  // the cast: there is no promise among them
  return items.some((item) => item instanceof Promise) ? Promise.all(items) : (items as readonly T[])
}
