import { type Command, type CommandCall, required, UsageError } from '../command.ts'
import { API_OPTIONS, apiClient } from '../with-api.ts'

const KINDS = 'queue, definition or run'

export const pauseCommand: Command = {
  name: 'pause',
  takes: '<queue|definition|run> <name or id>',
  arguments: 2,
  does: 'claims nothing more of it until it is resumed',
  options: API_OPTIONS,
  run: (call) => change(call, 'pause'),
}

export const resumeCommand: Command = {
  name: 'resume',
  takes: '<queue|definition|run> <name or id>',
  arguments: 2,
  does: 'lets it go on where it was',
  options: API_OPTIONS,
  run: (call) => change(call, 'resume'),
}

async function change(call: CommandCall, verb: 'pause' | 'resume'): Promise<number> {
  const [kind, name] = [required(call, 0, KINDS), required(call, 1, 'name or id')]
  const client = apiClient(call)
  const asking = {
    queue: () => (verb === 'pause' ? client.pauseQueue(name) : client.resumeQueue(name)),
    definition: () => (verb === 'pause' ? client.pauseDefinition(name) : client.resumeDefinition(name)),
    run: () => (verb === 'pause' ? client.pauseRun(name) : client.resumeRun(name)),
  }
  if (!Object.hasOwn(asking, kind)) throw new UsageError(`got ${kind}, allowed is ${KINDS}`)
  const { did } = await asking[kind as keyof typeof asking]()
  call.terminal.print(`${kind} ${name}: ${did.replace('_', ' ')}`)
  return 0
}
