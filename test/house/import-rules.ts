import { builtinModules } from 'node:module'
import { importsOf, resolveImport, type SourceFile } from './source-tree.ts'

/** Who may import whom, by the first folder under `src/`; `root` is the files directly in it, which only compose. */
const LAYERS: Readonly<Record<string, readonly string[]>> = {
  core: ['core'],
  client: ['client', 'core'],
  worker: ['worker', 'core'],
  db: ['db', 'core'],
  api: ['api', 'core'],
  root: ['root', 'core', 'client', 'worker', 'db', 'api'],
  hosts: ['hosts', 'root', 'core', 'client', 'worker', 'db', 'api', 'testing'],
  cli: ['cli', 'hosts', 'root', 'core', 'client', 'worker', 'db', 'api', 'testing'],
  testing: ['testing', 'hosts', 'root', 'core', 'client', 'worker', 'db', 'api'],
}

/** Where a package may be named. What is not listed here is not a dependency of the product. */
const PACKAGES: Readonly<Record<string, RegExp>> = {
  '@standard-schema/spec': /^src\//,
  croner: /^src\/core\//,
  zod: /^src\/(api|hosts|cli|client|db|worker|testing)\//,
  hono: /^src\/(api|hosts|cli|testing)\//,
  '@hono/node-server': /^src\/(hosts\/node|cli\/|testing\/)/,
  'drizzle-orm': /^src\/db\//,
  '@neondatabase/serverless': /^src\/db\/drivers\/neon-/,
  pg: /^src\/(db\/drivers\/node-postgres|testing\/)/,
  '@electric-sql/pglite': /^src\/(db\/drivers\/pglite|testing\/|hosts\/node|cli\/)/,
  ws: /^src\/testing\//,
  'cloudflare:workers': /^src\/hosts\/cloudflare/,
}

/** Everything else runs on web standards, so that it runs in a Worker. */
const NODE_FOLDERS = /^src\/(hosts\/node|cli\/|testing\/|db\/drivers\/(node-postgres|pglite))/

export function layerViolations(file: SourceFile): string[] {
  const layer = layerOf(file.path)
  const allowed = LAYERS[layer] ?? []
  return importsOf(file)
    .filter(({ specifier }) => specifier.startsWith('.'))
    .flatMap(({ specifier, line }) => {
      const target = resolveImport(file.path, specifier)
      if (!target.startsWith('src/')) return [`${file.path}:${line} leaves src/ (${specifier})`]
      if (!specifier.endsWith('.ts')) return [`${file.path}:${line} imports without .ts (${specifier})`]
      const to = layerOf(target)
      return allowed.includes(to) ? [] : [`${file.path}:${line} ${layer} must not import ${to} (${specifier})`]
    })
}

export function packageViolations(file: SourceFile): string[] {
  return importsOf(file)
    .filter(({ specifier }) => !specifier.startsWith('.') && !isBuiltin(specifier))
    .flatMap(({ specifier, line, names }) => {
      if (specifier === 'zod' && names.includes('z'))
        return [`${file.path}:${line} write import * as z from 'zod': the named import drags in 260 KB`]
      const name = packageOf(specifier)
      return PACKAGES[name]?.test(file.path) === true ? [] : [`${file.path}:${line} must not import the package ${name}`]
    })
}

export function builtinViolations(file: SourceFile): string[] {
  if (NODE_FOLDERS.test(file.path)) return []
  return importsOf(file)
    .filter(({ specifier }) => isBuiltin(specifier))
    .map(({ specifier, line }) => `${file.path}:${line} must not import ${specifier}: web standards only here`)
}

/** What a bundler would load when it starts at `entry`: files of ours, then packages and builtins by name. Types are gone by then. */
export function loadedBy(entry: string, files: readonly SourceFile[]): { files: string[]; outside: string[] } {
  const byPath = new Map(files.map((file) => [file.path, file]))
  const seen = new Set<string>()
  const outside = new Set<string>()
  const queue = [entry]
  for (let path = queue.pop(); path !== undefined; path = queue.pop()) {
    const file = byPath.get(path)
    if (file === undefined || seen.has(path)) continue
    seen.add(path)
    for (const { specifier, typeOnly } of importsOf(file)) {
      if (typeOnly) continue
      if (specifier.startsWith('.')) queue.push(resolveImport(path, specifier))
      else outside.add(isBuiltin(specifier) ? specifier : packageOf(specifier))
    }
  }
  return { files: [...seen].sort(), outside: [...outside].sort() }
}

/**
 * Files that import each other in a loop, each loop as the files of it. Types may run in one within core, where what they describe is one
 * thing; values may nowhere, and outside core nothing may.
 */
export function circles(files: readonly SourceFile[]): string[][] {
  const next = new Map(
    files.map((file) => [
      file.path,
      importsOf(file)
        .filter(({ specifier, typeOnly }) => specifier.startsWith('.') && !(typeOnly && layerOf(file.path) === 'core'))
        .map(({ specifier }) => resolveImport(file.path, specifier)),
    ]),
  )
  const reached = (from: string): Set<string> => {
    const seen = new Set<string>()
    const queue = [...(next.get(from) ?? [])]
    for (let path = queue.pop(); path !== undefined; path = queue.pop()) {
      if (seen.has(path)) continue
      seen.add(path)
      queue.push(...(next.get(path) ?? []))
    }
    return seen
  }
  const reach = new Map(files.map(({ path }) => [path, reached(path)]))
  const inCircle = (left: string, right: string): boolean =>
    reach.get(left)?.has(right) === true && reach.get(right)?.has(left) === true
  const loops = files.map(({ path }) => files.map((other) => other.path).filter((other) => inCircle(path, other)))
  return loops.filter(([first], index) => first !== undefined && first === files[index]?.path)
}

export function isBuiltin(specifier: string): boolean {
  return specifier.startsWith('node:') || builtinModules.includes(specifier)
}

function layerOf(path: string): string {
  const [, first = '', second] = path.split('/')
  return second === undefined ? 'root' : first
}

function packageOf(specifier: string): string {
  const parts = specifier.split('/')
  return specifier.startsWith('@') ? parts.slice(0, 2).join('/') : (parts[0] ?? specifier)
}
