import { DatabaseError, type Parameter, type Row, type Statement, type Value } from '../core/database.ts'

/**
 * The one place where Postgres text becomes a `Value` and a `Parameter` becomes Postgres text. Every driver delivers raw
 * text with its type's OID, so that none of them can differ. DateStyle is taken to be ISO, its default; the session's
 * TimeZone does not matter.
 */

type ValueParser = (text: string) => Value

const parseText: ValueParser = (text) => text
const parseNumber: ValueParser = (text) => Number(text)
const parseBoolean: ValueParser = (text) => text === 't'
// The cast is where JSON enters: JSON.parse gives exactly the JSON part of `Value`, and null for a JSON null.
const parseJson: ValueParser = (text) => JSON.parse(text) as Value

/** Up to 15 digits a double is exact, and the detour through it is several times faster than reading the text. */
const EXACT_DIGITS = 15
const parseBigint: ValueParser = (text) => BigInt(text.length <= EXACT_DIGITS ? Number(text) : text)

const INSTANT = /^(\d{4,6})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?( BC)?$/

/**
 * Postgres' ISO output as RFC 3339 in UTC, cut to milliseconds. What has no such form (infinity, and instants beyond
 * what a Date holds) stays as it came.
 */
export function parseInstant(text: string): string {
  const millis = readMillisInUtc(text)
  if (millis !== undefined) return `${text.slice(0, 10)}T${text.slice(11, 19)}.${millis}Z`
  const parts = INSTANT.exec(text)
  if (!parts) return text
  const [, year, month, day, hour, minute, second, fraction = '', sign, offsetHour, offsetMinute = '0', offsetSecond = '0', bc] =
    parts
  const date = new Date(0)
  date.setUTCFullYear(bc ? 1 - Number(year) : Number(year), Number(month) - 1, Number(day))
  date.setUTCHours(Number(hour), Number(minute), Number(second), Number(fraction.padEnd(3, '0').slice(0, 3)))
  const offsetSeconds = Number(offsetHour ?? 0) * 3600 + Number(offsetMinute) * 60 + Number(offsetSecond)
  const at = date.getTime() - (sign === '-' ? -1 : 1) * offsetSeconds * 1000
  return Number.isNaN(at) ? text : new Date(at).toISOString()
}

/** The three digits of milliseconds when the text is `YYYY-MM-DD HH:MM:SS[.ffffff]` in UTC already, the usual case. */
function readMillisInUtc(text: string): string | undefined {
  if (text.charCodeAt(4) !== 45 || text.charCodeAt(10) !== 32) return undefined
  const end = text.endsWith('+00') ? text.length - 3 : text.length
  if (end === 19) return '000'
  if (end < 21 || end > 26 || text.charCodeAt(19) !== 46) return undefined
  for (let at = 20; at < end; at++) if (!isDigit(text.charCodeAt(at))) return undefined
  return text.slice(20, Math.min(end, 23)).padEnd(3, '0')
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57
}

/** Reads Postgres' array output: nested braces, quotes, backslashes, NULL, and lower bounds (`[0:1]={…}`), which are dropped. */
function arrayOf(parseElement: ValueParser): ValueParser {
  return (text) => {
    const start = text.charCodeAt(0) === 91 ? text.indexOf('=') + 1 : 0
    return readArray(text, start, parseElement).value
  }
}

function readArray(text: string, start: number, parseElement: ValueParser): { value: Value[]; end: number } {
  const value: Value[] = []
  let at = start + 1
  while (at < text.length) {
    const code = text.charCodeAt(at)
    if (code === 125) return { value, end: at + 1 }
    if (code === 44) {
      at++
    } else if (code === 123) {
      const inner = readArray(text, at, parseElement)
      value.push(inner.value)
      at = inner.end
    } else if (code === 34) {
      const end = findClosingQuote(text, at + 1)
      const quoted = text.slice(at + 1, end)
      value.push(parseElement(quoted.includes('\\') ? quoted.replace(/\\(.)/gs, '$1') : quoted))
      at = end + 1
    } else {
      const end = findElementEnd(text, at)
      const bare = text.slice(at, end)
      value.push(bare === 'NULL' ? null : parseElement(bare))
      at = end
    }
  }
  return { value, end: at }
}

function findClosingQuote(text: string, start: number): number {
  let end = start
  while (end < text.length && text.charCodeAt(end) !== 34) end += text.charCodeAt(end) === 92 ? 2 : 1
  return end
}

function findElementEnd(text: string, start: number): number {
  let end = start
  while (end < text.length && text.charCodeAt(end) !== 44 && text.charCodeAt(end) !== 125) end++
  return end
}

/** OID of the type, OID of its array, parser. What is not listed is text. */
const TYPES: readonly (readonly [oid: number, arrayOid: number, parse: ValueParser])[] = [
  [16, 1000, parseBoolean],
  [18, 1002, parseText], // "char"
  [19, 1003, parseText], // name
  [20, 1016, parseBigint],
  [21, 1005, parseNumber],
  [23, 1007, parseNumber],
  [25, 1009, parseText],
  [26, 1028, parseNumber], // oid
  [114, 199, parseJson],
  [700, 1021, parseNumber],
  [701, 1022, parseNumber],
  [1042, 1014, parseText], // char(n)
  [1043, 1015, parseText],
  [1082, 1182, parseText], // date
  [1114, 1115, parseInstant],
  [1184, 1185, parseInstant],
  [1186, 1187, parseText], // interval
  [1700, 1231, parseText], // numeric
  [2950, 2951, parseText],
  [3802, 3807, parseJson],
]

const parsers = new Map<number, ValueParser>(
  TYPES.flatMap(([oid, arrayOid, parse]) => [[oid, parse] as const, [arrayOid, arrayOf(parse)] as const]),
)

/** Types that a driver with parsers and serializers of its own must be told to leave alone. */
export const TYPE_OIDS: readonly number[] = [...parsers.keys()]

/** A column of a result: its name and the OID of its type. */
export interface Field {
  readonly name: string
  readonly dataTypeID: number
}

/** Builds the rows of one statement's result; made once per result description, not per row. */
export class RowReader {
  private readonly names: readonly string[]
  private readonly parsers: readonly (ValueParser | undefined)[]
  private readonly template: Row

  constructor(fields: readonly Field[]) {
    this.names = fields.map((field) => field.name)
    this.parsers = fields.map((field) => {
      const parse = parsers.get(field.dataTypeID)
      return parse === parseText ? undefined : parse
    })
    // Copying a row that has all its columns gives every row one hidden class, and makes even a column named __proto__ an own property.
    this.template = Object.fromEntries(this.names.map((name) => [name, null]))
  }

  read(texts: readonly (string | null)[]): Row {
    const row: Record<string, Value> = { ...this.template }
    for (let column = 0; column < this.names.length; column++) {
      const text = texts[column] as string | null
      const parse = this.parsers[column]
      row[this.names[column] as string] = text === null || parse === undefined ? text : parse(text)
    }
    return row
  }
}

/**
 * The parameters of a statement as Postgres text. Throws a `DatabaseError` with fate `not_sent` for what Postgres cannot
 * hold: text with a NUL or a lone surrogate, more than 65,535 parameters.
 */
export function encodeParameters(statement: Statement): (string | null)[] {
  const { params, name } = statement
  if (params.length > MAX_PARAMETERS) {
    throw new DatabaseError(
      `Statement ${name} has ${params.length} parameters; Postgres takes ${MAX_PARAMETERS}: bind arrays instead.`,
      { fate: 'not_sent' },
    )
  }
  return params.map((param, index) => {
    try {
      return encodeParameter(param)
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause)
      throw new DatabaseError(`Parameter $${index + 1} of statement ${name} ${reason}`, { fate: 'not_sent', cause })
    }
  })
}

/** A Bind message counts parameters in 16 bits. */
const MAX_PARAMETERS = 65_535

function encodeParameter(param: Parameter): string | null {
  if (param === null) return null
  if (typeof param === 'string') return requireStorable(param)
  if (typeof param === 'object') return encodeArray(param)
  return encodeScalar(param)
}

function encodeScalar(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'boolean' || typeof value === 'bigint') return String(value)
  throw new TypeError(`is of type ${typeof value}: bind JSON text and cast it instead.`)
}

function encodeArray(elements: readonly unknown[]): string {
  if (!Array.isArray(elements)) throw new TypeError('is an object: bind JSON text and cast it instead.')
  let literal = '{'
  for (let index = 0; index < elements.length; index++) {
    const element: unknown = elements[index]
    if (index > 0) literal += ','
    if (element === null) literal += 'NULL'
    else if (typeof element === 'string') literal += quoteElement(element)
    else literal += encodeScalar(element)
  }
  return `${literal}}`
}

/** Ids, names and other text of printable ASCII that needs no escapes: most of what is bound, so it is told first. */
const PLAIN_TEXT = /^[ !#-[\]-~]*$/
const CONTROL_CHARACTER = /[^ -\uffff]/

/** Within double quotes Postgres wants backslashes before `"` and `\` alone: JSON's quoting, but for control characters. */
function quoteElement(text: string): string {
  if (PLAIN_TEXT.test(text)) return `"${text}"`
  requireStorable(text)
  return CONTROL_CHARACTER.test(text) ? `"${text.replace(/["\\]/g, '\\$&')}"` : JSON.stringify(text)
}

function requireStorable(text: string): string {
  if (text.includes('\0')) throw new TypeError('contains a NUL character, which Postgres text cannot hold.')
  // The cast: every runtime we support has ES2024's isWellFormed, the configured library does not name it yet.
  if (!(text as string & { isWellFormed(): boolean }).isWellFormed()) {
    throw new TypeError('contains a lone surrogate, which UTF-8 cannot hold.')
  }
  return text
}
