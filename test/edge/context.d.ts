import 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** See test/support/edge-servers.ts, which provides it. */
    edgeDatabases: string
  }
}

declare global {
  /** As the DOM and Node have it: what runs here is checked against both. */
  function clearTimeout(id: number | undefined): void
}
