import { parseArgs } from 'node:util'
import type { Terminal } from './terminal.ts'

/** What the user got wrong in the call itself: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** `text` takes a value, `flag` none. */
export type OptionKind = 'text' | 'flag'

export interface Command {
  readonly name: string
  /** Positional arguments, for the help. */
  readonly takes?: string
  /** How many of them there are at most. Default none. */
  readonly arguments?: number
  readonly does: string
  readonly options: Readonly<Record<string, { readonly kind: OptionKind; readonly does: string }>>
  /** Answers the exit code. */
  run(call: CommandCall): Promise<number>
}

export interface CommandCall {
  readonly terminal: Terminal
  readonly env: Readonly<Record<string, string | undefined>>
  readonly positionals: readonly string[]
  readonly text: (name: string) => string | undefined
  readonly flag: (name: string) => boolean
}

/** Reads the arguments of a command. Throws a UsageError for options it does not know, and for an argument too many. */
export function toCall(command: Command, args: readonly string[], around: Pick<CommandCall, 'terminal' | 'env'>): CommandCall {
  const options = Object.fromEntries(
    Object.entries(command.options).map(([name, { kind }]) => [name, { type: kind === 'text' ? 'string' : 'boolean' } as const]),
  )
  const { values, positionals } = parse(args, options)
  const extra = positionals[command.arguments ?? 0]
  if (extra !== undefined) throw new UsageError(`got ${extra}, allowed is ${command.takes ?? 'no argument'}`)
  return {
    ...around,
    positionals,
    text: (name) => (typeof values[name] === 'string' ? values[name] : undefined),
    flag: (name) => values[name] === true,
  }
}

type ParseOptions = Readonly<Record<string, { readonly type: 'string' | 'boolean' }>>

function parse(args: readonly string[], options: ParseOptions) {
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true, strict: true })
  } catch (error) {
    // the first sentence says what is wrong; what follows is advice for options that no command has
    const [what = ''] = String(error instanceof Error ? error.message : error).split(/\.\s/)
    if (!what.startsWith('Unknown option')) throw new UsageError(what)
    throw new UsageError(
      `${what}. There are ${Object.keys(options)
        .map((name) => `--${name}`)
        .join(', ')}`,
    )
  }
}

/** The positional argument at that place. */
export function required(call: CommandCall, index: number, name: string): string {
  const value = call.positionals[index]
  if (value === undefined) throw new UsageError(`<${name}> is missing`)
  return value
}

/** The whole number that an option was given. */
export function toNumber(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined
  if (/^\d{1,9}$/.test(text)) return Number(text)
  throw new UsageError(`${option}: got ${text}, allowed is a whole number`)
}

/** JSON as the user wrote it on the command line; nothing is undefined. */
export function toJson(text: string | undefined, name: string): unknown {
  if (text === undefined) return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw new UsageError(`<${name}> is not JSON: ${text.slice(0, 60)} (texts need their quotes: '"like this"')`)
  }
}
