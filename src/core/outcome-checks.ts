/** What the functions that make outcomes check of their arguments, inside the step. All throw `invalid_outcome`. */
import { MAX_AWAITED_RUNS, MAX_BATCH_ITEMS, MAX_COMMIT_STATEMENTS, MAX_STATEMENT_PARAMETERS } from './bounds.ts'
import { notAllowed } from './errors.ts'
import { cleanText } from './json.ts'
import { checkInteger } from './names.ts'
import type { Call, CommitStatement, WaitOutcome } from './outcome.ts'
import { isEndOf } from './topics.ts'

export function oneOf(value: unknown, allowed: ReadonlySet<string>, field: string): string {
  if (typeof value === 'string' && allowed.has(value)) return value
  const names = allowed.size === 0 ? 'none' : `one of ${[...allowed].slice(0, 20).join(', ')}`
  throw notAllowed('invalid_outcome', { field, got: value, allowed: names })
}

export function checkAwaited(wanted: readonly unknown[], toName: (name: unknown) => string): Pick<WaitOutcome, 'names' | 'ends'> {
  const ends = wanted.filter(isEndOf).map(({ target }) => target)
  if (wanted.length === 0 || ends.length > MAX_AWAITED_RUNS) {
    const allowed = `one name or more, and at most ${MAX_AWAITED_RUNS} ends of runs`
    throw notAllowed('invalid_outcome', { field: 'waitFor', got: wanted, allowed })
  }
  return { names: [...new Set(wanted.filter((one) => !isEndOf(one)).map(toName))], ends }
}

export function checkCalls(calls: readonly Call[]): readonly Call[] {
  const areCalls = Array.isArray(calls) && calls.every((call) => typeof call?.definition === 'string')
  if (!areCalls || calls.length > MAX_BATCH_ITEMS) {
    const allowed = `at most ${MAX_BATCH_ITEMS} calls made by definition.with(input)`
    throw notAllowed('invalid_outcome', { field: 'join', got: calls, allowed })
  }
  return calls
}

export function checkNeed(need: 'all' | 'any' | number, count: number): 'all' | 'any' | number {
  if (need === 'all' || need === 'any') return need
  return checkInteger(need, { field: 'join.need', code: 'invalid_outcome', min: 0, max: count })
}

export function checkCommit(commit: readonly CommitStatement[] | undefined): readonly CommitStatement[] | undefined {
  if (commit === undefined) return undefined
  const areStatements = Array.isArray(commit) && commit.every((statement) => typeof statement?.sql === 'string')
  if (!areStatements || commit.length > MAX_COMMIT_STATEMENTS) {
    const allowed = `at most ${MAX_COMMIT_STATEMENTS} statements { sql, params }`
    throw notAllowed('invalid_outcome', { field: 'commit', got: commit, allowed })
  }
  for (const { sql, params = [] } of commit as readonly CommitStatement[]) checkStatement(sql, params)
  return commit.length === 0 ? undefined : commit
}

/** Refused here, inside the step, what no driver can send: found out at the flush, it would come again with every attempt. */
function checkStatement(sql: string, params: readonly unknown[]): void {
  const fits = Array.isArray(params) && params.length <= MAX_STATEMENT_PARAMETERS
  if (fits && isStorable(sql) && params.every(isParameter)) return
  const allowed = `at most ${MAX_STATEMENT_PARAMETERS} of null, boolean, number, bigint, text without NUL and lone surrogates, or an array of these`
  throw notAllowed('invalid_outcome', { field: 'commit.params', got: params, allowed })
}

function isParameter(value: unknown): boolean {
  return Array.isArray(value) ? value.every(isScalar) : isScalar(value)
}

function isScalar(value: unknown): boolean {
  if (typeof value === 'string') return isStorable(value)
  return value === null || typeof value === 'boolean' || typeof value === 'number' || typeof value === 'bigint'
}

function isStorable(text: string): boolean {
  return cleanText(text) === text
}
