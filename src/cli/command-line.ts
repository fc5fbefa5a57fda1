import { VERSION } from '../hosts/version.ts'
import { type Command, toCall, UsageError } from './command.ts'
import { cancelCommand, retryCommand } from './commands/changes.ts'
import { checkCommand } from './commands/check.ts'
import { devCommand } from './commands/dev.ts'
import { doctorCommand } from './commands/doctor.ts'
import { keysCommand } from './commands/keys.ts'
import { migrateCommand } from './commands/migrate.ts'
import { partitionsCommand } from './commands/partitions.ts'
import { pauseCommand, resumeCommand } from './commands/pauses.ts'
import { emitCommand, runsCommand, showCommand, signalCommand, spawnCommand } from './commands/runs.ts'
import { statsCommand } from './commands/stats.ts'
import { type Terminal, toTable } from './terminal.ts'

const COMMANDS: readonly Command[] = [
  devCommand,
  migrateCommand,
  partitionsCommand,
  keysCommand,
  spawnCommand,
  signalCommand,
  emitCommand,
  runsCommand,
  showCommand,
  cancelCommand,
  retryCommand,
  pauseCommand,
  resumeCommand,
  statsCommand,
  checkCommand,
  doctorCommand,
]

export interface CommandLineParams {
  readonly terminal: Terminal
  readonly env: Readonly<Record<string, string | undefined>>
}

/** Runs one command. Answers the exit code: 0 done, 1 it could not be done, 2 the call was wrong. Throws nothing. */
export async function runCommandLine([name, ...args]: readonly string[], around: CommandLineParams): Promise<number> {
  const { terminal } = around
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') return print(terminal, helpLines())
  if (name === '--version' || name === '-v') return print(terminal, [VERSION])
  const command = COMMANDS.find((known) => known.name === name)
  if (command === undefined) {
    terminal.tell(`pawl: there is no command ${name}. There are ${COMMANDS.map((known) => known.name).join(', ')}.`)
    return 2
  }
  if (args.includes('--help') || args.includes('-h')) return print(terminal, commandHelpLines(command))
  try {
    return await command.run(toCall(command, args, around))
  } catch (error) {
    terminal.tell(`pawl ${name}: ${lineOf(error)}`)
    return error instanceof UsageError ? 2 : 1
  }
}

function print(terminal: Terminal, lines: readonly string[]): number {
  for (const line of lines) terminal.print(line)
  return 0
}

function helpLines(): readonly string[] {
  const rows = COMMANDS.map(({ name, takes = '', does }) => [`  ${name} ${takes}`, does])
  const head = 'pawl: durable jobs and state machines on your Postgres'
  return [head, '', ...toTable(['', ''], rows).slice(1), '', 'pawl <command> --help says more.']
}

function commandHelpLines({ name, takes = '', does, options }: Command): readonly string[] {
  const rows = Object.entries(options).map(([option, { kind, does: what }]) => [
    `  --${option}${kind === 'text' ? ' <…>' : ''}`,
    what,
  ])
  return [`pawl ${name} ${takes}`.trim(), `  ${does}`, '', ...toTable(['', ''], rows).slice(1)]
}

/** One line: what went wrong, not where in our code. */
function lineOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const code = 'code' in error && typeof error.code === 'string' ? ` (${error.code})` : ''
  const message = error.message || (error.cause instanceof Error ? error.cause.message : error.name)
  return `${message.replace(/\s*\n\s*/g, ' ')}${code}`
}
