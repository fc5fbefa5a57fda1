import { type PartitionReport, partition, printPartitions } from '../../db/partitions.ts'
import { PERIODS, type Period } from '../../db/periods.ts'
import { type Command, UsageError } from '../command.ts'
import { DATABASE_OPTIONS, withDatabase } from '../with-database.ts'

export const partitionsCommand: Command = {
  name: 'partitions',
  does: 'for very many runs: partitions the tables (--every), makes partitions ahead and drops those that are over; run it daily',
  options: {
    ...DATABASE_OPTIONS,
    every: {
      kind: 'text',
      does: 'day, week or month: partitions plain tables by it, or those made from now on. Default: as it is',
    },
    print: { kind: 'flag', does: 'print the SQL of what is to be done instead, for a role that may do it' },
  },
  run: async (call) => {
    const { terminal } = call
    const options = { schema: call.text('schema'), every: toPeriod(call.text('every')) }
    if (call.flag('print')) {
      terminal.print(await withDatabase(call, (database) => printPartitions(database, options)))
      return 0
    }
    for (const line of linesOf(await withDatabase(call, (database) => partition(database, options)))) terminal.print(line)
    return 0
  },
}

function toPeriod(text: string | undefined): Period | undefined {
  const period = PERIODS.find((known) => known === text)
  if (text !== undefined && period === undefined) throw new UsageError(`--every: got ${text}, allowed is ${PERIODS.join(', ')}`)
  return period
}

function linesOf({ every, converted, made, skipped, dropped, kept }: PartitionReport): readonly string[] {
  const lines = [
    ...(converted ? [`the tables are partitioned by ${every} now`] : []),
    ...made.map((name) => `made ${name}`),
    ...skipped.map((name) => `skipped ${name}: runs of it lie among the others already, and are deleted singly`),
    ...dropped.map((name) => `dropped ${name}`),
    ...kept.map(({ name, run, because }) => `kept ${name}: run ${run} is ${because}`),
  ]
  return lines.length > 0 ? lines : [`the tables are partitioned by ${every}: nothing to do`]
}
