import { once } from 'node:events'
import { fromMs } from '../../core/duration.ts'
import { type LogFields, type Logger, silentLogger } from '../../core/logger.ts'
import type { TickReport } from '../../core/tick.ts'
import { node } from '../../hosts/node.ts'
import { type Command, UsageError } from '../command.ts'
import { APP_OPTION, loadApp } from '../load-app.ts'
import type { Terminal } from '../terminal.ts'
import { DEFAULT_PORT } from '../with-api.ts'

export const devCommand: Command = {
  name: 'dev',
  does: 'serves the API and works, on an embedded database in .pawl/, for this machine alone and without keys',
  options: {
    ...APP_OPTION,
    url: { kind: 'text', does: 'postgres://… or another folder. Default: .pawl/database' },
    port: { kind: 'text', does: `Default: ${DEFAULT_PORT}` },
    environment: { kind: 'text', does: 'whose runs are run. Default: production' },
  },
  run: async (call) => {
    const { terminal } = call
    const port = toPort(call.text('port') ?? String(DEFAULT_PORT))
    const { file, pawl } = await loadApp(call)
    const logger = pawl.logger === silentLogger ? loggerTo(terminal) : pawl.logger
    const host = await node(
      { ...pawl, logger },
      {
        database: call.text('url'),
        migrate: true,
        port,
        environment: call.text('environment'),
        onPass: (report) => tellPass(terminal, report),
      },
    )
    terminal.print(`${host.url}/v1  ${pawl.registry.names.join(', ')}  (${file})`)
    const signal = await Promise.race(ENDING.map((name) => once(process, name).then(() => name)))
    terminal.tell(`${signal}: finishing what is in hand; again to end at once`)
    // the second time the system's own way
    for (const name of ENDING) process.once(name, () => process.exit(130))
    await host.close()
    return 0
  },
}

const ENDING = ['SIGINT', 'SIGTERM'] as const

function toPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN
  if (port <= 65_535) return port
  throw new UsageError(`--port: got ${text}, allowed is 0 to 65535`)
}

const TOLD = [
  'completed',
  'failed',
  'waiting',
  'retried',
  'discarded',
  'cancelled',
  'uncertain',
  'held',
  'released',
  'stale',
  'rescued',
  'fired',
] as const

function tellPass(terminal: Terminal, report: TickReport): void {
  const counts = TOLD.filter((name) => report[name] > 0).map((name) => `${report[name]} ${name}`)
  if (counts.length > 0) terminal.tell(`${counts.join(', ')} in ${fromMs(Math.round(report.elapsedMs))}`)
}

/** What goes wrong is told, where the application has no logger of its own. */
function loggerTo(terminal: Terminal): Logger {
  const tell = (message: string, fields: LogFields = {}) => terminal.tell(`${message} ${JSON.stringify(fields)}`)
  return { ...silentLogger, warn: tell, error: tell }
}
