import 'vitest'

declare module 'vitest' {
  interface ProvidedContext {
    /** See test/support/edge-servers.ts, which provides it. */
    edgeDatabases: string
  }
}
