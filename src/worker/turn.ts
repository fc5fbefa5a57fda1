/**
 * Gives the event loop one turn: what is ready to finish finishes first, so that outcomes of one moment share a flush. `setImmediate`
 * where the host has it (Node, workerd with Node compatibility): a timer of 0 costs a millisecond there.
 */
export function nextTurn(): Promise<void> {
  const { setImmediate } = globalThis as { readonly setImmediate?: (callback: () => void) => unknown }
  return new Promise((resolve) => {
    if (setImmediate) setImmediate(resolve)
    else setTimeout(resolve, 0)
  })
}
