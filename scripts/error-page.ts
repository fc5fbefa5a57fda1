// Writes docs/errors.md from the codes and what is said of each: `npm run errors`. A test compares.
import { writeFileSync } from 'node:fs'
import { ERROR_CODES, type ErrorCode } from '../src/core/errors.ts'
import { ADVICE, KINDS } from './error-advice.ts'

export function errorPage(): string {
  const codes = Object.keys(ERROR_CODES).sort() as ErrorCode[]
  const entries = codes.map((code) => {
    const { kind, status, title } = ERROR_CODES[code]
    const { when, remedy } = ADVICE[code]
    return `## ${code}\n\n${title}\n\nKind \`${kind}\`, HTTP ${status}.\n\n**When:** ${when}\n\n**What to do:** ${remedy}\n`
  })
  const kinds = Object.entries(KINDS).map(([kind, means]) => `| \`${kind}\` | ${means} |`)
  return `# Errors

Everything that pawl throws is a \`PawlError\` with one of these codes; over HTTP it is a problem document (RFC 9457) with the same \`code\`, and
its \`type\` is \`urn:pawl:problem:\` and the code: the heading here that says what it means. The list is closed. Match on \`code\`, never on text.

Written by \`npm run errors\` from \`src/core/errors.ts\`.

| kind | what it means for who asked |
|---|---|
${kinds.join('\n')}

${entries.join('\n')}`
}

if (import.meta.main) writeFileSync(new URL('../docs/errors.md', import.meta.url), errorPage())
