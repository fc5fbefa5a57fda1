/** Failures by which a request surely never left. */

/** Of a connect or a name lookup, by the codes that Node and undici give them. */
const CONNECT_FAILURES = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
  'ERR_INVALID_URL',
])

/** A chain of causes may be a circle. */
const MAX_CAUSES = 5

interface Failure {
  readonly code?: unknown
  readonly cause?: unknown
  readonly sourceError?: unknown
  readonly errors?: unknown
}

/** Whether the failure, or what it was caused by, is one of connecting. Every attempt of several addresses must have failed so. */
export function isConnectFailure(thrown: unknown, depth = 0): boolean {
  const { code, cause, sourceError, errors }: Failure = typeof thrown === 'object' && thrown !== null ? thrown : {}
  if (typeof code === 'string' && CONNECT_FAILURES.has(code)) return true
  if (depth > MAX_CAUSES) return false
  if (Array.isArray(errors) && errors.length > 0) return errors.every((error) => isConnectFailure(error, depth + 1))
  return [cause, sourceError].some((source) => source !== undefined && isConnectFailure(source, depth + 1))
}
