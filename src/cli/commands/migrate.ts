import { migrate } from '../../db/migrate.ts'
import { printMigrations } from '../../db/migrations.ts'
import { type Command, toNumber } from '../command.ts'
import { DATABASE_OPTIONS, withDatabase } from '../with-database.ts'

export const migrateCommand: Command = {
  name: 'migrate',
  does: 'brings the schema to the version of this build; safe from many processes at once',
  options: {
    ...DATABASE_OPTIONS,
    print: { kind: 'flag', does: 'print the SQL instead, for a role that may run it' },
    from: { kind: 'text', does: 'with --print: the version the database has. Default: 0' },
  },
  run: async (call) => {
    const { terminal } = call
    const schema = call.text('schema')
    if (call.flag('print')) {
      terminal.print(printMigrations({ schema, from: toNumber(call.text('from'), '--from') }))
      return 0
    }
    const { from, to, applied } = await withDatabase(call, (database) => migrate(database, { schema }))
    for (const name of applied) terminal.print(`applied ${name}`)
    terminal.print(
      applied.length > 0 ? `the schema went from version ${from} to ${to}` : `the schema is at version ${to}: nothing to do`,
    )
    return 0
  },
}
