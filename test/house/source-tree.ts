import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync } from 'vite'

export interface SyntaxNode {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [field: string]: unknown
}

/** One source file, named by its path from the root of the repository, with its syntax tree. */
export interface SourceFile {
  readonly path: string
  readonly text: string
  readonly program: SyntaxNode
}

const root = fileURLToPath(new URL('../../', import.meta.url))

export function parseSource(path: string, text: string): SourceFile {
  const { program, errors } = parseSync(path, text)
  if (errors.length > 0) throw new Error(`${path}: ${errors[0]?.message}`)
  // The parser's own node types are a union of a hundred shapes; the rules look at a handful of fields by name.
  return { path, text, program: program as unknown as SyntaxNode }
}

/** Every TypeScript file under the folders given, in the order of their paths. Folders that do not exist yet are empty. */
export function readSources(...folders: readonly string[]): SourceFile[] {
  return folders.flatMap((folder) => filesUnder(folder)).map((path) => parseSource(path, readFileSync(join(root, path), 'utf8')))
}

function filesUnder(folder: string): string[] {
  const found: string[] = []
  for (const entry of readFolder(folder)) {
    const path = posix.join(folder, entry.name)
    if (entry.isDirectory() && entry.name !== 'node_modules') found.push(...filesUnder(path))
    if (entry.isFile() && /\.tsx?$/.test(entry.name)) found.push(path)
  }
  return found.sort()
}

function readFolder(folder: string) {
  try {
    return readdirSync(join(root, folder), { withFileTypes: true })
  } catch {
    return []
  }
}

/** Every node under this one, itself included, with its ancestors from the root down. */
export function* walk(
  node: SyntaxNode,
  ancestors: readonly SyntaxNode[] = [],
): Generator<{ node: SyntaxNode; ancestors: readonly SyntaxNode[] }> {
  yield { node, ancestors }
  const below = [...ancestors, node]
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (isNode(child)) yield* walk(child, below)
    }
  }
}

export function isNode(value: unknown): value is SyntaxNode {
  return typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string'
}

export function lineOf(file: SourceFile, offset: number): number {
  return file.text.slice(0, offset).split('\n').length
}

export interface Import {
  readonly specifier: string
  readonly line: number
  /** Gone after compilation: `import type`, `import('…').T`. */
  readonly typeOnly: boolean
  readonly names: readonly string[]
}

/** Static, re-exporting, dynamic and type imports alike. A dynamic import of something computed cannot be judged and is not listed. */
export function importsOf(file: SourceFile): Import[] {
  const found: Import[] = []
  for (const { node } of walk(file.program)) {
    const source = node.source
    if (!isNode(source) || typeof source.value !== 'string') continue
    const specifiers = Array.isArray(node.specifiers) ? node.specifiers.filter(isNode) : []
    const names = specifiers.map((item) => (isNode(item.imported) ? String(item.imported.name) : item.type))
    const typeOnly = node.importKind === 'type' || node.exportKind === 'type' || node.type === 'TSImportType'
    found.push({ specifier: source.value, line: lineOf(file, node.start), typeOnly, names })
  }
  return found
}

/** The path that a relative import names, from the root of the repository. */
export function resolveImport(from: string, specifier: string): string {
  return posix.join(dirname(from), specifier)
}
