import { execFile } from 'node:child_process'
import { access, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'

const ROOT = new URL('../../', import.meta.url)
const MOST_LINES = 25

/** What the README's import names stand for in this repository. */
const SOURCES: Readonly<Record<string, string>> = {
  pawl: '../src/index.ts',
  'pawl/node': '../src/hosts/node.ts',
  'pawl/cloudflare': '../src/hosts/cloudflare.ts',
  'pawl/neon-http': '../src/db/drivers/neon-http.ts',
}

const readme = await readFile(new URL('README.md', ROOT), 'utf8')
const programs = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = '']) => code)

function withSources(code: string): string {
  return code.replaceAll(/from '(pawl[^']*)'/g, (_, name: string) => `from '${SOURCES[name] ?? name}'`)
}

describe('README', () => {
  test('shows a whole program of at most 25 lines, the one in examples', async () => {
    const example = await readFile(new URL('examples/quickstart.ts', ROOT), 'utf8')
    expect(withSources(programs[0] ?? '')).toBe(example)
    expect(example.trimEnd().split('\n').length).toBeLessThanOrEqual(MOST_LINES)
  })

  test('shows a program that runs and prints what it says', { timeout: 60_000 }, async () => {
    const { stdout } = await promisify(execFile)(process.execPath, ['examples/quickstart.ts'], {
      cwd: ROOT,
      env: { ...process.env, NODE_NO_WARNINGS: '1' },
    })
    expect(stdout).toContain("status: 'completed'")
    expect(stdout).toContain("result: 'parcel-42'")
  })

  test('shows a Worker that typechecks over the example definitions', { timeout: 60_000 }, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pawl-readme-'))
    try {
      const root = fileURLToPath(ROOT)
      const code = withSources(programs[1] ?? '')
        .replaceAll("'../src/", `'${root}src/`)
        .replace("'./pawl.ts'", `'${root}examples/definitions.ts'`)
      await writeFile(join(folder, 'worker.ts'), code)
      // what `wrangler types` writes
      await writeFile(join(folder, 'env.d.ts'), 'interface Env { DATABASE_URL: string; PAWL_ROOT_KEY: string }')
      await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
      const compilerOptions = { typeRoots: [`${root}node_modules/@types`], rewriteRelativeImportExtensions: false }
      await writeFile(
        join(folder, 'tsconfig.json'),
        JSON.stringify({ extends: `${root}tsconfig.json`, compilerOptions, include: ['worker.ts', 'env.d.ts'] }),
      )
      await promisify(execFile)('npx', ['tsc', '-p', join(folder, 'tsconfig.json')], { cwd: ROOT })
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  test('shows what a definition and a call can say, in a program that typechecks and prints what it says', {
    timeout: 60_000,
  }, async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pawl-readme-'))
    try {
      const root = fileURLToPath(ROOT)
      await symlink(`${root}node_modules`, join(folder, 'node_modules'))
      await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
      await writeFile(join(folder, 'program.ts'), withSources(programs[2] ?? '').replaceAll("'../src/", `'${root}src/`))
      const compilerOptions = { typeRoots: [`${root}node_modules/@types`], rewriteRelativeImportExtensions: false }
      const config = { extends: `${root}tsconfig.json`, compilerOptions, include: ['program.ts'] }
      await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config))
      await promisify(execFile)('npx', ['tsc', '-p', join(folder, 'tsconfig.json')], { cwd: ROOT })
      const env = { ...process.env, NODE_NO_WARNINGS: '1' }
      const { stdout } = await promisify(execFile)(process.execPath, ['program.ts'], { cwd: folder, env })
      expect(stdout).toContain('not_due')
      expect(stdout).toContain("did: 'cancelled'")
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  test('leads to documents that are there', async () => {
    const targets = [...readme.matchAll(/(?:docs|examples|bench)\/[\w.-]+\.(?:md|ts)/g)].map(([path]) => path)
    expect(targets.length).toBeGreaterThan(0)
    for (const path of targets) await expect(access(new URL(path, ROOT)), path).resolves.toBeUndefined()
  })

  test('names the commands that package.json and CI have', async () => {
    const ci = await readFile(new URL('.ci/run', ROOT), 'utf8')
    expect(readme).toContain('npm ci && npm run demo')
    expect(readme).toContain('npm ci && npm test')
    expect(ci.trimEnd().split('\n').at(-1)).toBe('npm ci && npm test')
  })
})
