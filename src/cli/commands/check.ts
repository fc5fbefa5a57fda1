import type { Command } from '../command.ts'
import { APP_OPTION, loadApp } from '../load-app.ts'
import { toTable } from '../terminal.ts'

export const checkCommand: Command = {
  name: 'check',
  does: 'loads the definitions, which validates them, and lists them with their triggers',
  options: { ...APP_OPTION },
  run: async (call) => {
    const { pawl } = await loadApp(call)
    const rows = pawl.registry.definitions.map(({ name, version, kind, queue, triggers }) => [
      name,
      String(version),
      kind,
      queue,
      triggers.map((trigger) => (trigger.kind === 'cron' ? `cron ${trigger.expression}` : `webhook ${trigger.name}`)).join(', '),
    ])
    for (const line of toTable(['DEFINITION', 'VERSION', 'KIND', 'QUEUE', 'TRIGGERS'], rows)) call.terminal.print(line)
    return 0
  },
}
