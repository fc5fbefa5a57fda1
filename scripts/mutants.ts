/**
 * Takes each guard of the engine away, one at a time, in a copy of the tree, and runs the test that must see it gone: `npm run mutants`.
 * Words after it choose guards that contain them. Ends with 1 when a test stays green, or when a guard or a test is not found.
 */
import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { GUARDS } from './guards/all.ts'
import type { Guard } from './guards/guard.ts'

interface Verdict {
  readonly guard: Guard
  readonly verdict: 'red' | 'survived' | 'guard not found' | 'test not found'
}

const root = fileURLToPath(new URL('../', import.meta.url))
const words = process.argv.slice(2)
const guards = GUARDS.filter(({ guard, file, test }) => words.every((word) => `${guard} ${file} ${test}`.includes(word)))
if (guards.length === 0) throw new Error(`No guard has ${JSON.stringify(words.join(' '))} in its name, file or test.`)

/** The files of the repository, those not yet committed too. */
function copyTree(): string {
  const copy = mkdtempSync(join(tmpdir(), 'mutants-'))
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: root })
  for (const file of new Set(listed.toString().split('\0').filter(Boolean))) {
    const target = join(copy, file)
    mkdirSync(dirname(target), { recursive: true })
    try {
      writeFileSync(target, readFileSync(join(root, file)))
    } catch (error) {
      // deleted and not yet committed
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
  }
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  return copy
}

/** Tests of those names on PostgreSQL 18 where there are several servers: a guard is in the statement, not in the server. */
function patternOf(names: readonly string[]): string {
  const escaped = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return `^(?!.*PostgreSQL 15).*(${escaped.join('|')})`
}

interface Result {
  readonly fullName: string
  readonly status: 'passed' | 'failed' | 'skipped' | 'pending' | 'todo'
}

function runTests(copy: string, files: readonly string[], names: readonly string[]): Promise<readonly Result[]> {
  const report = join(copy, 'report.json')
  rmSync(report, { force: true })
  const args = ['run', '--project', 'node', ...files, '-t', patternOf(names), '--reporter=json', `--outputFile=${report}`]
  return new Promise((resolve, reject) => {
    // no PostgreSQL 15: its tests are left out, and starting it is half the time
    const env = { ...process.env, CI: '', PG15_BIN: join(copy, 'none') }
    const child = spawn(process.execPath, [join(copy, 'node_modules/vitest/vitest.mjs'), ...args], {
      cwd: copy,
      stdio: 'ignore',
      env,
    })
    child.once('error', reject)
    child.once('close', () => {
      const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as {
        testResults: readonly { assertionResults: readonly Result[] }[]
      }
      resolve(testResults.flatMap(({ assertionResults }) => assertionResults))
    })
  })
}

async function judge(copy: string, guard: Guard): Promise<Verdict> {
  const path = join(copy, guard.file)
  const text = readFileSync(path, 'utf8')
  const count = text.split(guard.find).length - 1
  if (count === 0 || (count > 1 && !guard.every)) return { guard, verdict: 'guard not found' }
  writeFileSync(
    path,
    text.replaceAll(guard.find, () => guard.replace),
  )
  try {
    const results = await runTests(copy, [guard.test], [guard.name])
    if (results.some(({ status }) => status === 'failed')) return { guard, verdict: 'red' }
    return { guard, verdict: results.some(({ status }) => status === 'passed') ? 'survived' : 'test not found' }
  } finally {
    writeFileSync(path, text)
  }
}

/** Tests that are red with all guards in place prove nothing. */
async function notGreen(copy: string): Promise<readonly string[]> {
  const names = [...new Set(guards.map(({ name }) => name))]
  const results = await runTests(copy, [...new Set(guards.map(({ test }) => test))], names)
  const green = (name: string) => {
    const own = results.filter(({ fullName, status }) => fullName.includes(name) && status !== 'skipped' && status !== 'pending')
    return own.length > 0 && own.every(({ status }) => status === 'passed')
  }
  return names.filter((name) => !green(name))
}

const copy = copyTree()
try {
  const red = await notGreen(copy)
  for (const name of red) process.stdout.write(`NOT GREEN WITH ALL GUARDS  ${name}\n`)
  const verdicts: Verdict[] = []
  for (const guard of guards) {
    const verdict = await judge(copy, guard)
    verdicts.push(verdict)
    process.stdout.write(`${verdict.verdict.padEnd(16)} ${guard.guard} → ${guard.test}: ${guard.name}\n`)
  }
  const bad = verdicts.filter(({ verdict }) => verdict !== 'red')
  process.stdout.write(`${verdicts.length - bad.length} passed, ${bad.length + red.length} failed\n`)
  process.exitCode = bad.length + red.length > 0 ? 1 : 0
} finally {
  rmSync(copy, { recursive: true, force: true })
}
