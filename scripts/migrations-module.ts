// Writes src/db/migrations.generated.ts: the SQL of drizzle/ as a module, so that it reaches bundles without a file system.
import { readFileSync, writeFileSync } from 'node:fs'

const folder = new URL('../drizzle/', import.meta.url)

/** The module's text, from the journal that drizzle-kit keeps. The suite compares it with the file. */
export function migrationsModule(): string {
  const journal: { readonly entries: readonly { readonly tag: string }[] } = JSON.parse(
    readFileSync(new URL('meta/_journal.json', folder), 'utf8'),
  )
  const entries = journal.entries.map(({ tag }) => {
    const sql = readFileSync(new URL(`${tag}.sql`, folder), 'utf8')
    return `  {\n    name: '${tag}',\n    sql: ${quote(sql)},\n  },\n`
  })
  return `// Made from drizzle/ by scripts/migrations-module.ts (npm run db:generate). Not edited by hand.
export const MIGRATION_FILES: readonly { readonly name: string; readonly sql: string }[] = [
${entries.join('')}]
`
}

/** One line, in the quotes that the formatter would choose. */
function quote(text: string): string {
  const body = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")
  return `'${body}'`
}

if (import.meta.main) {
  writeFileSync(new URL('../src/db/migrations.generated.ts', import.meta.url), migrationsModule())
}
