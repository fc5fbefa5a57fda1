import type { DetailedRun, HistoryEntry, HttpClient, ListedRun, PawlTypes } from '../../client/http-client.ts'
import { isStatus, STATUSES, type Status } from '../../core/status.ts'
import { type Command, type CommandCall, required, toJson, toNumber, UsageError } from '../command.ts'
import { toTable } from '../terminal.ts'
import { API_OPTIONS, apiClient } from '../with-api.ts'

export const JSON_OPTION = { json: { kind: 'flag', does: 'print JSON, a line per item' } } as const

export const spawnCommand: Command = {
  name: 'spawn',
  takes: '<definition> [<input as JSON>]',
  arguments: 2,
  does: 'spawns a run and prints its id',
  options: {
    ...API_OPTIONS,
    version: { kind: 'text', does: 'of the definition. Default: the latest' },
    key: { kind: 'text', does: 'business identity: a live run that has it is answered instead' },
    queue: { kind: 'text', does: 'Default: that of the definition' },
    delay: { kind: 'text', does: 'such as 90s or "1 day"' },
    id: { kind: 'text', does: 'a UUID of your own' },
    'idempotency-key': { kind: 'text', does: 'the same request under the same key is done once' },
    wait: { kind: 'text', does: 'wait so long for its end, at most 25s, and print its result' },
  },
  run: async (call) => {
    const definition = required(call, 0, 'definition')
    const input = toJson(call.positionals[1], 'input')
    const client = apiClient(call)
    const { id, status, created } = await client.spawn(definition, input, {
      version: toNumber(call.text('version'), '--version'),
      key: call.text('key'),
      queue: call.text('queue'),
      delay: call.text('delay') as `${number}s` | undefined,
      id: call.text('id'),
      idempotencyKey: call.text('idempotency-key'),
    })
    call.terminal.print(id)
    if (!created) call.terminal.tell(`it was there before, and is ${status}`)
    const wait = call.text('wait')
    return wait === undefined ? 0 : printResult(call, await client.run(id, { wait: wait as `${number}s` }))
  },
}

function printResult({ terminal }: CommandCall, { status, result, error }: DetailedRun): number {
  if (status === 'completed') {
    terminal.print(JSON.stringify(result ?? null))
    return 0
  }
  terminal.tell(error ? `${status}: ${error.message}` : status)
  return 1
}

export const signalCommand: Command = {
  name: 'signal',
  takes: '<name> [<payload as JSON>]',
  arguments: 2,
  does: 'sends a signal to one run, by --id or --key',
  options: {
    ...API_OPTIONS,
    id: { kind: 'text', does: 'the id of the run' },
    key: { kind: 'text', does: 'or the key of a live one' },
    definition: { kind: 'text', does: 'where runs of several definitions have the key' },
    'idempotency-key': { kind: 'text', does: 'the same signal under the same key arrives once' },
  },
  run: async (call) => {
    const name = required(call, 0, 'name')
    const [id, key] = [call.text('id'), call.text('key')]
    if ((id === undefined) === (key === undefined)) throw new UsageError('give --id or --key')
    const to = id !== undefined ? { id } : { key: key ?? '', definition: call.text('definition') }
    // names of signals are texts here: there are no definitions to type them by
    const send = apiClient(call).signal as unknown as SendSignal
    const sent = await send(to, name, toJson(call.positionals[1], 'payload'), { idempotencyKey: call.text('idempotency-key') })
    call.terminal.print(
      `signal ${sent.id} is in the inbox of run ${sent.runId}${sent.replayed ? ', since an earlier request' : ''}`,
    )
    return 0
  },
}

type SendSignal = (
  to: object,
  name: string,
  payload: unknown,
  options: { readonly idempotencyKey: string | undefined },
) => ReturnType<HttpClient<PawlTypes>['signal']>

export const emitCommand: Command = {
  name: 'emit',
  takes: '<event> [<payload as JSON>]',
  arguments: 2,
  does: 'broadcasts an event, once for its name, to all that wait for it and those that will',
  options: {
    ...API_OPTIONS,
    retention: { kind: 'text', does: 'how long it is kept for late joiners, such as 7d' },
    'idempotency-key': { kind: 'text', does: 'the same event under the same key is emitted once' },
  },
  run: async (call) => {
    const name = required(call, 0, 'event')
    const options = { retention: call.text('retention'), idempotencyKey: call.text('idempotency-key') }
    // as with signals
    const send = apiClient(call).emit as unknown as EmitEvent
    const { created } = await send(name, toJson(call.positionals[1], 'payload'), options)
    call.terminal.print(created ? `event ${name} is emitted` : `event ${name} was there before, and is as it was`)
    return 0
  },
}

type EmitEvent = (name: string, payload: unknown, options: object) => ReturnType<HttpClient<PawlTypes>['emit']>

/** Which runs, of those that match all that is given. */
export const FILTER_OPTIONS = {
  status: { kind: 'text', does: `some of ${STATUSES.join(',')}` },
  definition: { kind: 'text', does: 'only its runs' },
  queue: { kind: 'text', does: 'only runs of this queue' },
  key: { kind: 'text', does: 'only runs with this key' },
  tag: { kind: 'text', does: 'only runs with this tag' },
  parent: { kind: 'text', does: 'only children of this run' },
} as const

export function toFilter({ text }: CommandCall) {
  return {
    status: toStatuses(text('status')),
    definition: text('definition'),
    queue: text('queue'),
    key: text('key'),
    tag: text('tag'),
    parent: text('parent'),
  }
}

export const runsCommand: Command = {
  name: 'runs',
  does: 'lists runs, the newest first',
  options: {
    ...API_OPTIONS,
    ...JSON_OPTION,
    ...FILTER_OPTIONS,
    limit: { kind: 'text', does: 'Default 50, at most 500' },
    cursor: { kind: 'text', does: 'to go on after an earlier list' },
  },
  run: async (call) => {
    const { terminal, text } = call
    const { items, nextCursor } = await apiClient(call).list({
      ...toFilter(call),
      limit: toNumber(text('limit'), '--limit'),
      cursor: text('cursor'),
    })
    const lines = call.flag('json') ? items.map((run) => JSON.stringify(run)) : toTable(RUN_COLUMNS, items.map(toRunRow))
    for (const line of lines) terminal.print(line)
    if (nextCursor !== null) terminal.tell(`there are more: --cursor ${nextCursor}`)
    return 0
  },
}

const RUN_COLUMNS = ['ID', 'STATUS', 'DEFINITION', 'STEP', 'ATTEMPT', 'CREATED', 'KEY']

function toRunRow({ id, status, hold, definition, step, attempt, createdAt, key }: ListedRun): readonly string[] {
  return [id, hold ? `${status} (${hold.reason})` : status, definition, step, String(attempt), createdAt, key ?? '']
}

function toStatuses(text: string | undefined): readonly Status[] | undefined {
  return text?.split(',').map((status) => {
    if (isStatus(status)) return status
    throw new UsageError(`--status: got ${status}, allowed are ${STATUSES.join(', ')}`)
  })
}

export const showCommand: Command = {
  name: 'show',
  takes: '<id>',
  arguments: 1,
  does: 'shows a run, what happened to it, and why it is not moving',
  options: { ...API_OPTIONS, ...JSON_OPTION },
  run: async (call) => {
    const id = required(call, 0, 'id')
    const client = apiClient(call)
    const run = await client.run(id)
    const [{ items }, why] = await Promise.all([client.history(id, { limit: 500 }), client.explain(id)])
    const lines = call.flag('json') ? [JSON.stringify({ ...run, why, history: items })] : describe(run, items)
    for (const line of lines) call.terminal.print(line)
    if (!call.flag('json')) call.terminal.print(`\n${why.reason}: ${why.detail}`)
    return 0
  },
}

function describe(run: DetailedRun, history: readonly HistoryEntry[]): readonly string[] {
  const facts = Object.entries(run).map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)])
  const rows = history.map(({ finishedAt, step, attempt, outcome, error }) => [
    finishedAt,
    step,
    String(attempt),
    outcome,
    error?.message ?? '',
  ])
  const past = rows.length === 0 ? [] : ['', ...toTable(['WHEN', 'STEP', 'ATTEMPT', 'OUTCOME', 'ERROR'], rows)]
  return [...toTable(['', ''], facts).slice(1), ...past]
}
