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

/** Reads the arguments of a command. Throws a UsageError for options it does not know. */
export function toCall(command: Command, args: readonly string[], around: Pick<CommandCall, 'terminal' | 'env'>): CommandCall {
  const options = Object.fromEntries(
    Object.entries(command.options).map(([name, { kind }]) => [name, { type: kind === 'text' ? 'string' : 'boolean' } as const]),
  )
  try {
    const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true, strict: true })
    return {
      ...around,
      positionals,
      text: (name) => (typeof values[name] === 'string' ? values[name] : undefined),
      flag: (name) => values[name] === true,
    }
  } catch (error) {
    throw new UsageError(error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error))
  }
}

/** The positional argument at that place. */
export function required(call: CommandCall, index: number, name: string): string {
  const value = call.positionals[index]
  if (value === undefined) throw new UsageError(`<${name}> is missing`)
  return value
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
