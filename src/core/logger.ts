/** What pawl writes to, given by the host. Fields are small and never hold payloads. */
export interface Logger {
  debug(message: string, fields?: LogFields): void
  info(message: string, fields?: LogFields): void
  warn(message: string, fields?: LogFields): void
  error(message: string, fields?: LogFields): void
}

export type LogFields = Readonly<Record<string, unknown>>

function nothing(): void {}

/** Drops everything. */
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing }
