import type { Command } from '../command.ts'
import { toTable } from '../terminal.ts'
import { API_OPTIONS, apiClient } from '../with-api.ts'
import { JSON_OPTION } from './runs.ts'

const COLUMNS = ['QUEUE', 'DUE', 'READY', 'DELAYED', 'BLOCKED', 'HELD', 'RUNNING', 'WAITING', 'OLDEST DUE', '']

export const statsCommand: Command = {
  name: 'stats',
  does: 'says how much there is and how much is due, by queue, and when the last tick was',
  options: { ...API_OPTIONS, ...JSON_OPTION },
  run: async (call) => {
    const client = apiClient(call)
    const [stats, health] = await Promise.all([client.stats(), client.health()])
    if (call.flag('json')) {
      call.terminal.print(JSON.stringify({ ...stats, health }))
      return 0
    }
    const rows = stats.queues.map((queue) => {
      const counts = [queue.due, queue.ready, queue.delayed, queue.blocked, queue.held, queue.running, queue.waiting]
      return [queue.name, ...counts.map(String), queue.oldestDueAge ?? '', queue.paused ? 'paused' : '']
    })
    for (const line of toTable(COLUMNS, rows)) call.terminal.print(line)
    const counted = Object.entries(stats.byStatus).map(([status, count]) => `${count} ${status}`)
    call.terminal.print(`\n${stats.exact ? '' : 'at least '}${stats.total} runs: ${counted.join(', ')}`)
    const { lastTickAt, lastTickSource, tickIsStale } = health
    call.terminal.print(
      `last tick: ${lastTickAt ?? 'none yet'}${lastTickSource ? ` (${lastTickSource})` : ''}${tickIsStale ? ', and work has been due since: nobody ticks' : ''}`,
    )
    return 0
  },
}
