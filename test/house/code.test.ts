import { describe, expect, test } from 'vitest'
import * as rules from './code-rules.ts'
import { parseSource, readSources, type SourceFile } from './source-tree.ts'

const source = readSources('src')
const examples = readSources('examples')
const scripts = readSources('scripts')
const tests = readSources('test')

/** Waiting for a random moment is what the chaos runs are about. */
const suite = tests.filter(({ path }) => !path.startsWith('test/chaos/'))
const needsNode = /^src\/(hosts\/node|cli\/|testing\/|db\/drivers\/(node-postgres|pglite))/

describe('the code', () => {
  test('has file names that say what is inside, in kebab-case', () => {
    expect([...source, ...examples, ...scripts, ...tests].flatMap(rules.nameViolations)).toEqual([])
  })

  test('has no file over 400 lines', () => {
    expect([...source, ...examples, ...scripts, ...tests].flatMap(rules.fileLengthViolations)).toEqual([])
  })

  test('has no function over 60 lines', () => {
    expect([...source, ...examples, ...scripts].flatMap(rules.functionLengthViolations)).toEqual([])
  })

  test('has no any, but for the one that inference through limit.by() needs', () => {
    const known = /^src\/core\/limit\.ts:\d+ any$/
    const found = [...source, ...examples, ...scripts, ...tests].flatMap(rules.anyViolations)
    expect(found.filter((violation) => !known.test(violation))).toEqual([])
    expect(found.length).toBeLessThanOrEqual(1)
  })

  test('prints only from the command line and the examples', () => {
    expect(source.filter(({ path }) => !path.startsWith('src/cli/')).flatMap(rules.consoleViolations)).toEqual([])
  })

  test('uses no Node global where a Worker runs it', () => {
    expect(source.filter(({ path }) => !needsNode.test(path)).flatMap(rules.nodeGlobalViolations)).toEqual([])
  })
})

describe('the tests', () => {
  test('are all switched on', () => {
    expect(tests.flatMap(rules.switchedOffViolations)).toEqual([])
  })

  test('never sleep', () => {
    expect(suite.flatMap(rules.sleepViolations)).toEqual([])
  })
})

describe('the rules see', () => {
  const lines = (count: number) => 'x()\n'.repeat(count)
  const cases: readonly [string, (file: SourceFile) => string[], string, string][] = [
    ['a name that says nothing', rules.nameViolations, 'src/core/time-utils.ts', ''],
    ['a folder that says nothing', rules.nameViolations, 'src/common/clock.ts', ''],
    ['a name in another case', rules.nameViolations, 'src/core/claimRuns.ts', ''],
    ['a long file', rules.fileLengthViolations, 'src/core/x.ts', lines(401)],
    ['a long function', rules.functionLengthViolations, 'src/core/x.ts', `const f = () => {\n${lines(59)}}`],
    ['any', rules.anyViolations, 'src/core/x.ts', 'const rows = (value: Array<any>) => value'],
    ['a print', rules.consoleViolations, 'src/core/x.ts', 'console.warn(1)'],
    ['a Node global', rules.nodeGlobalViolations, 'src/core/x.ts', 'const key = process.env.KEY'],
    ['a focused test', rules.switchedOffViolations, 'test/x.test.ts', "test.only('x', () => {})"],
    ['a skipped group', rules.switchedOffViolations, 'test/x.test.ts', "describe.skipIf(true)('x', () => {})"],
    ['a sleep', rules.sleepViolations, 'test/x.test.ts', 'await new Promise((resolve) => setTimeout(resolve, 5))'],
    ['a wrapped sleep', rules.sleepViolations, 'test/x.test.ts', 'const p = new Promise((ok) => { setTimeout(() => ok(1), 5) })'],
    [
      'a long function that holds a text',
      rules.functionLengthViolations,
      'src/core/x.ts',
      `const f = () => {\nx(\`${lines(60)}\`)\n}`,
    ],
    ['an imported sleep', rules.sleepViolations, 'test/x.test.ts', "import { setTimeout as pause } from 'node:timers/promises'"],
  ]

  test.each(cases)('%s', (_, rule, path, text) => {
    expect(rule(parseSource(path, text))).toHaveLength(1)
  })

  test('no fault in a deadline, a property called process, a statement of 100 lines, or a function of exactly 60', () => {
    const statement = `const s = () => \`\n${lines(99)}\``
    const file = parseSource(
      'src/core/x.ts',
      `const f = () => {\n${lines(58)}}\nconst g = { process: run.process }\nconst { setImmediate } = h\nsetImmediate(g)\n${statement}`,
    )
    const deadline = parseSource('test/x.test.ts', 'const p = new Promise((ok, no) => { setTimeout(() => no(new Error()), 5) })')
    expect([
      ...rules.functionLengthViolations(file),
      ...rules.nodeGlobalViolations(file),
      ...rules.sleepViolations(deadline),
    ]).toEqual([])
  })
})
