import type { HttpClient, PawlTypes } from '../../client/http-client.ts'
import { type Command, type CommandCall, UsageError } from '../command.ts'
import { API_OPTIONS, apiClient } from '../with-api.ts'
import { FILTER_OPTIONS, toFilter } from './runs.ts'

type Client = HttpClient<PawlTypes>

export const cancelCommand: Command = {
  name: 'cancel',
  takes: '[<id>]',
  arguments: 1,
  does: 'ends a run, or asks a running one to end; without an id all runs that match the filter',
  options: {
    ...API_OPTIONS,
    ...FILTER_OPTIONS,
    reason: { kind: 'text', does: 'with an id: why, as its children and readers are told' },
  },
  run: async (call) => {
    const reason = call.text('reason')
    return change(call, 'cancel', async (client, id) => (await client.cancel(id, { reason })).did)
  },
}

export const retryCommand: Command = {
  name: 'retry',
  takes: '[<id>]',
  arguments: 1,
  does: 'has a run that failed go on in place; without an id all runs that match the filter',
  options: { ...API_OPTIONS, ...FILTER_OPTIONS },
  run: (call) => change(call, 'retry', async (client, id) => (await client.retry(id)).did),
}

async function change(call: CommandCall, action: 'cancel' | 'retry', one: (client: Client, id: string) => Promise<string>) {
  const [id] = call.positionals
  const filter = toFilter(call)
  const isFiltered = Object.values(filter).some((value) => value !== undefined)
  if ((id === undefined) !== isFiltered) throw new UsageError('give the <id> of a run, or a filter')
  const client = apiClient(call)
  if (id !== undefined) {
    call.terminal.print(`run ${id}: ${(await one(client, id)).replaceAll('_', ' ')}`)
    return 0
  }
  let affected = 0
  let cursor: string | undefined
  for (let more = true; more; ) {
    const answer = await client.changeMany({ action, filter, cursor })
    affected += answer.affected
    more = answer.more
    cursor = answer.nextCursor ?? undefined
  }
  call.terminal.print(`${affected} runs ${action === 'cancel' ? 'are cancelled, or asked to end' : 'are retried'}`)
  return 0
}
