import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const root = fileURLToPath(new URL('../../', import.meta.url))
/** The least a plan allows is 3 MiB, but what is loaded at a cold start is paid for in its latency. */
const MAX_GZIP_KIB = 150
const QUIET = { CI: '1', WRANGLER_SEND_METRICS: 'false', CLOUDFLARE_CF_FETCH_ENABLED: 'false', WRANGLER_HIDE_BANNER: 'true' }

let folder = ''
let script = Buffer.alloc(0)
let said = ''

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pawl-bundle-'))
  const wrangler = join(root, 'node_modules/.bin/wrangler')
  const { stdout } = await promisify(execFile)(wrangler, ['deploy', '--dry-run', '--minify', '--outdir', folder], {
    cwd: root,
    env: { ...process.env, ...QUIET, PATH: `${join(root, 'node_modules/.bin')}:${process.env.PATH}` },
  })
  said = stdout
  script = await readFile(join(folder, 'main.js'))
}, 120_000)

afterAll(() => rm(folder, { recursive: true, force: true }))

describe('the Worker of the example', () => {
  test(`is smaller than ${MAX_GZIP_KIB} KiB, compressed`, () => {
    expect(gzipSync(script).length / 1_024).toBeLessThan(MAX_GZIP_KIB)
  })

  test('is what wrangler says that it uploads', () => {
    const kib = Number(/gzip: ([\d.]+) KiB/.exec(said)?.[1])
    expect(kib).toBeGreaterThan(30)
    expect(kib).toBeLessThan(MAX_GZIP_KIB)
  })

  test('is one script: nothing is loaded beside it', async () => {
    expect((await readdir(folder)).filter((name) => !/^(main\.js(\.map)?|README\.md)$/.test(name))).toEqual([])
  })

  test('holds no locales of zod, and no drizzle', () => {
    const text = script.toString()
    for (const foreign of ['Ungültige Eingabe', 'drizzle']) expect(text).not.toContain(foreign)
  })
})
