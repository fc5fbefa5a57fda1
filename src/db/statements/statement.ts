import type { Parameter, Statement } from '../../core/database.ts'

export interface DefinedStatement<P> {
  (schema: string, values: P): Statement
  /** With values that are asked for as it is written: in a batch, the server has begun with the one before by then. */
  readonly later: (schema: string, values: () => P) => Statement
}

/**
 * One verb, one statement, one params type. The text is static for a schema, so a server that keeps prepared statements plans it
 * once; whatever varies is a typed parameter.
 */
export function defineStatement<P>(
  name: string,
  text: (schema: string) => string,
  params: (params: P) => readonly Parameter[],
): DefinedStatement<P> {
  const texts = new Map<string, string>()
  const textFor = (schema: string): string => {
    const known = texts.get(schema)
    if (known !== undefined) return known
    const sql = text(quoteIdentifier(schema)).trim()
    texts.set(schema, sql)
    return sql
  }
  return Object.assign((schema: string, values: P): Statement => ({ name, text: textFor(schema), params: params(values) }), {
    later: (schema: string, values: () => P): Statement => {
      let made: readonly Parameter[] | undefined
      return {
        name,
        text: textFor(schema),
        isLater: true,
        get params() {
          made ??= params(values())
          return made
        },
      }
    },
  })
}

/** Quotes a schema name that `createEngine` has already validated. */
export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** The separator between the parts of a gate and between the names of one wait: names are printable, so they never hold it. */
export const UNIT_SEPARATOR = '\u001f'

/** Statements take the test clock as their first parameter; null means the server's. */
export const CLOCK = `clock AS (SELECT coalesce($1::timestamptz, now()) AS at)`

/** An instant as milliseconds since 1970: the same on every driver, whatever the session's time zone and date style. */
export function epochMs(expression: string): string {
  return `(extract(epoch FROM ${expression}) * 1000)::float8`
}

/**
 * Splits parallel columns into their distinct rows (kinds, parallel again) and, for each of `length` items, the 1-based number of its
 * kind; no numbers when there is one kind. What most items of a batch have in common is so sent, parsed and joined once.
 */
export function kindsOf(length: number, columns: readonly Column[]) {
  const numbers = new Map<string, number>()
  const firsts: number[] = []
  const kinds: number[] = []
  let number = 0
  for (let i = 0; i < length; i++) {
    if (i === 0 || !isLikeTheOneBefore(columns, i)) {
      const key = keyOf(columns, i)
      number = numbers.get(key) ?? firsts.push(i)
      numbers.set(key, number)
    }
    kinds.push(number)
  }
  return { kinds: firsts.length > 1 ? kinds : [], columns: columns.map((column) => firsts.map((i) => column[i] ?? null)) }
}

type Column = readonly (string | number | null)[]

function isLikeTheOneBefore(columns: readonly Column[], i: number): boolean {
  for (const column of columns) if (column[i] !== column[i - 1]) return false
  return true
}

function keyOf(columns: readonly Column[], i: number): string {
  let key = ''
  for (const column of columns) key += `${column[i] ?? ''}\n`
  return key
}

/** An instant as jsonb holds it: RFC 3339 in UTC with milliseconds, whatever the session's time zone. */
export function instantText(expression: string): string {
  return `to_char((${expression}) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
}
