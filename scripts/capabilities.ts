// Writes docs/capabilities.md: which promise is proven by which test. With --check it only says whether the file is up to date.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

interface Proof {
  readonly file: string
  readonly title: string
}

const root = new URL('../', import.meta.url)
const output = new URL('docs/capabilities.md', root)

/** A call whose first argument is a title that opens with one or more ids: `test('C005 C006 runs in order', …)`. */
const TITLE = /([\w.]*)(?:\([^()]*\))?\(\s*(['"`])((?:C\d{3}\s+)+)((?:\\.|(?!\2)[^\\])*)\2/g

function readTitles(): Map<string, string> {
  const titles: Record<string, string> = JSON.parse(readFileSync(new URL('docs/capabilities.json', root), 'utf8'))
  return new Map(Object.entries(titles))
}

function testFiles(): string[] {
  const folder = fileURLToPath(new URL('test/', root))
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  return files
    .filter((file) => file.endsWith('.ts'))
    .map((file) => `test/${file.replaceAll('\\', '/')}`)
    .sort()
}

export function proofsIn(file: string, source: string): { id: string; proof: Proof }[] {
  return [...source.matchAll(TITLE)]
    .filter(([, callee]) => callee !== 'describe')
    .flatMap(([, , , ids = '', title = '']) =>
      ids
        .trim()
        .split(/\s+/)
        .map((id) => ({ id, proof: { file, title: title.replace(/\\(['"`])/g, '$1') } })),
    )
}

function collectProofs(titles: ReadonlyMap<string, string>): Map<string, Proof[]> {
  const proofs = new Map<string, Proof[]>()
  for (const file of testFiles()) {
    for (const { id, proof } of proofsIn(file, readFileSync(new URL(file, root), 'utf8'))) {
      if (!titles.has(id)) throw new Error(`${file}: no capability ${id} ("${proof.title}")`)
      proofs.set(id, [...(proofs.get(id) ?? []), proof])
    }
  }
  return proofs
}

function render(titles: ReadonlyMap<string, string>, proofs: ReadonlyMap<string, readonly Proof[]>): string {
  const rows = [...titles].map(([id, title]) => {
    const proven = proofs.get(id) ?? []
    const tests = proven.map(({ file, title: name }) => `${inCell(name)} (${file.slice('test/'.length)})`).join('<br>')
    return `| ${id} | ${inCell(title)} | ${tests} | ${proven.length > 0 ? 'proven' : 'open'} |`
  })
  return [
    '# Capabilities',
    '',
    `${proofs.size} of ${titles.size} proven. A row is *proven* when a test opens with its id, and the suite is green.`,
    'Written by `npm run capabilities`; not by hand.',
    '',
    '| id | capability | proven by | state |',
    '|---|---|---|---|',
    ...rows,
    '',
  ].join('\n')
}

function inCell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;')
}

function readOutput(): string {
  try {
    return readFileSync(output, 'utf8')
  } catch {
    return ''
  }
}

function main(): void {
  const titles = readTitles()
  const content = render(titles, collectProofs(titles))
  if (!process.argv.includes('--check')) {
    writeFileSync(output, content)
    return
  }
  if (readOutput() === content) return
  process.stderr.write('docs/capabilities.md is stale: run `npm run capabilities` and commit it\n')
  process.exitCode = 1
}

main()
