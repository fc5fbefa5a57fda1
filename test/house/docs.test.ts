import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startNeonEndpoint } from '../../src/testing/neon-endpoint.ts'
import { freshDatabase } from '../support/database.ts'
import { FRAMES } from './docs-frames.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const run = promisify(execFile)

interface Block {
  /** Document and number, such as `limits-0`. */
  readonly name: string
  readonly code: string
}

async function readBlocks(): Promise<readonly Block[]> {
  const documents = (await readdir(join(root, 'docs'))).filter((name) => name.endsWith('.md'))
  const blocks = await Promise.all(
    documents.map(async (document) => {
      const found = (await readFile(join(root, 'docs', document), 'utf8')).matchAll(/```ts\n([\s\S]*?)```/g)
      return [...found].map(([, code = ''], at) => ({ name: `${document.replace('.md', '')}-${at}`, code }))
    }),
  )
  return blocks.flat()
}

/** The code as a program: as it stands, or in the frame that gives it what it takes for granted. */
function toProgram({ name, code }: Block): string {
  const frame = FRAMES[name]
  return frame ? frame.replace('// the block', () => code) : code
}

const blocks = await readBlocks()
let folder = ''

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pawl-docs-'))
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'))
  const sources = {
    pawl: 'index.ts',
    'pawl/node': 'hosts/node.ts',
    'pawl/neon-http': 'db/drivers/neon-http.ts',
    'pawl/node-postgres': 'db/drivers/node-postgres.ts',
  }
  for (const block of blocks) {
    const code = toProgram(block).replaceAll(/from '(pawl[^']*)'/g, (_, path: string) => {
      return `from '${root}src/${sources[path as keyof typeof sources]}'`
    })
    await writeFile(join(folder, `${block.name}.ts`), code)
  }
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
  const compilerOptions = { typeRoots: [`${root}node_modules/@types`], rewriteRelativeImportExtensions: false }
  const include = blocks.map(({ name }) => `${name}.ts`)
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ extends: `${root}tsconfig.json`, compilerOptions, include }))
})

afterAll(() => rm(folder, { recursive: true, force: true }))

async function say(name: string, env: Readonly<Record<string, string>> = {}): Promise<string> {
  const { stdout } = await run(process.execPath, [`${name}.ts`], {
    cwd: folder,
    env: { ...process.env, NODE_NO_WARNINGS: '1', ...env },
  })
  return stdout.trim()
}

describe('the programs in docs', () => {
  test('typecheck, all of them, and each frame frames one', { timeout: 60_000 }, async () => {
    expect(Object.keys(FRAMES).filter((name) => !blocks.some((block) => block.name === name))).toEqual([])
    const tsc = run('npx', ['tsc', '-p', folder], { cwd: root }).catch((error: { stdout: string }) => error)
    expect((await tsc).stdout).toBe('')
  })

  test('run: definitions are valid, a machine waits for three things and tells others', { timeout: 60_000 }, async () => {
    const alone = blocks.map(({ name }) => name).filter((name) => !name.startsWith('transactions'))
    const said = await Promise.all(alone.map((name) => say(name)))
    expect(Object.fromEntries(alone.map((name, at) => [name, said[at]]))).toEqual({
      'coordination-0': '{"printing":"completed","timedOut":false} {"cents":7,"timedOut":false}',
      'coordination-1': '1250',
      'limits-0': '',
      'uniqueness-0': '',
    })
  })

  test('run in transactions of a caller, over node-postgres and Neon', { timeout: 60_000 }, async () => {
    const fresh = await freshDatabase()
    const endpoint = await startNeonEndpoint({ target: fresh.connectionString })
    const env = {
      DATABASE_URL: fresh.connectionString,
      NEON_URL: endpoint.connectionString,
      NEON_ENDPOINT: endpoint.httpUrl,
    }
    try {
      expect(await say('transactions-0', env)).toBe('1 order, pending')
      expect(await say('transactions-1', env)).toBe('2 orders, pending')
      expect(await say('transactions-2', env)).toBe('run 3')
    } finally {
      await endpoint.close()
      await fresh.close()
    }
  })
})
