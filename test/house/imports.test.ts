import { describe, expect, test } from 'vitest'
import { builtinViolations, circles, isBuiltin, layerViolations, loadedBy, packageViolations } from './import-rules.ts'
import { parseSource, readSources } from './source-tree.ts'

const source = readSources('src')

describe('the import rule', () => {
  test('core imports only core; client, worker, db and api only themselves and core', () => {
    expect(source.flatMap(layerViolations)).toEqual([])
  })

  test('no files import each other in a circle: values nowhere, types only within core', () => {
    expect(circles(source)).toEqual([])
  })

  test('a package is imported only where it belongs', () => {
    expect(source.flatMap(packageViolations)).toEqual([])
  })

  test('Node builtins stay in the hosts, drivers and tools that need Node', () => {
    expect(source.flatMap(builtinViolations)).toEqual([])
  })

  test.each([
    'src/index.ts',
    'src/client/index.ts',
    'src/hosts/cloudflare.ts',
    'src/hosts/vercel.ts',
    'src/db/drivers/neon-http.ts',
  ])('what a Worker loads from %s holds no Node builtin, no pg, no PGlite and no drizzle', (entry) => {
    const forbidden = loadedBy(entry, source).outside.filter(
      (name) => isBuiltin(name) || ['pg', 'ws', '@electric-sql/pglite', '@hono/node-server', 'drizzle-orm'].includes(name),
    )
    expect(forbidden).toEqual([])
  })

  test('the client alone brings neither the engine nor the server', () => {
    const { files, outside } = loadedBy('src/client/index.ts', source)
    expect(files.filter((file) => !/^src\/(client|core)\//.test(file))).toEqual([])
    expect(outside.filter((name) => name === 'hono')).toEqual([])
  })
})

describe('the import rule sees', () => {
  test.each([
    ['a static import', "import { a } from '../db/a.ts'"],
    ['a type import', "import type { A } from '../db/a.ts'"],
    ['an inline type import', "type A = import('../db/a.ts').A"],
    ['a re-export', "export { a } from '../db/a.ts'"],
    ['a re-export of everything', "export * from '../db/a.ts'"],
    ['a dynamic import', "const load = () => import('../db/a.ts')"],
    ['a side-effect import', "import '../db/a.ts'"],
  ])('%s', (_, text) => {
    expect(layerViolations(parseSource('src/worker/x.ts', text))).toEqual([
      'src/worker/x.ts:1 worker must not import db (../db/a.ts)',
    ])
  })

  test('a package in the wrong place, and a builtin without its prefix', () => {
    const file = parseSource('src/core/x.ts', "import { Hono } from 'hono/tiny'\nimport fs from 'fs'\nimport { z } from 'zod'")
    expect(packageViolations(file)).toEqual([
      'src/core/x.ts:1 must not import the package hono',
      "src/core/x.ts:3 write import * as z from 'zod': the named import drags in 260 KB",
    ])
    expect(builtinViolations(file)).toHaveLength(1)
  })

  test('a circle of three, through a type; none of types in core', () => {
    const circle = (folder: string, kind: string) => [
      parseSource(`src/${folder}/a.ts`, "export { b } from './b.ts'"),
      parseSource(`src/${folder}/b.ts`, "import { c } from './c.ts'"),
      parseSource(`src/${folder}/c.ts`, `import ${kind} { A } from './a.ts'`),
    ]
    expect(circles(circle('worker', 'type'))).toEqual([['src/worker/a.ts', 'src/worker/b.ts', 'src/worker/c.ts']])
    expect(circles(circle('core', 'type'))).toEqual([])
    expect(circles(circle('core', ''))).toHaveLength(1)
  })

  test('a builtin that is loaded only through another file', () => {
    const files = [
      parseSource('src/index.ts', "export * from './core/a.ts'\nimport type { P } from 'pg'"),
      parseSource('src/core/a.ts', "import 'node:fs'"),
    ]
    expect(loadedBy('src/index.ts', files).outside).toEqual(['node:fs'])
  })
})
