import { basename } from 'node:path'
import { isNode, lineOf, type SourceFile, type SyntaxNode, walk } from './source-tree.ts'

const MAX_FILE_LINES = 400
const MAX_FUNCTION_LINES = 60

const EMPTY_NAMES = new Set(['util', 'utils', 'common', 'helper', 'helpers', 'type', 'types', 'manager', 'misc', 'shared'])
const KEBAB_CASE = /^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9-]+)*\.tsx?$/
const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'])

const BINDINGS = new Set(['VariableDeclarator', 'FunctionDeclaration', 'ImportSpecifier', 'ImportDefaultSpecifier'])

/** Node's own globals, which no import announces. */
const NODE_GLOBALS = new Set(['process', 'Buffer', '__dirname', '__filename', 'require', 'setImmediate', 'global'])

/** A name says the one idea of its file. */
export function nameViolations(file: SourceFile): string[] {
  // `test/types` holds the tests of types: that is its idea.
  const words = file.path
    .replace(/^test\/types\//, 'test/')
    .split('/')
    .map((part) => part.replace(/(\.test)?\.tsx?$/, ''))
  const empty = words.filter((word) => EMPTY_NAMES.has(word) || /-(utils?|helpers?|manager)$/.test(word))
  const kebab = KEBAB_CASE.test(basename(file.path)) ? [] : [`${file.path} is not in kebab-case`]
  return [...empty.map((word) => `${file.path}: "${word}" says nothing about what is inside`), ...kebab]
}

export function fileLengthViolations(file: SourceFile): string[] {
  const lines = file.text.trimEnd().split('\n').length
  return lines > MAX_FILE_LINES ? [`${file.path} has ${lines} lines; ${MAX_FILE_LINES} is the most`] : []
}

export function functionLengthViolations(file: SourceFile): string[] {
  return [...walk(file.program)]
    .filter(({ node }) => FUNCTIONS.has(node.type))
    .flatMap(({ node, ancestors }) => {
      const lines = lineOf(file, node.end) - lineOf(file, node.start) + 1 - textLines(file, node)
      if (lines <= MAX_FUNCTION_LINES) return []
      return [
        `${file.path}:${lineOf(file, node.start)} ${functionName(node, ancestors)} has ${lines} lines; ${MAX_FUNCTION_LINES} is the most`,
      ]
    })
}

/** An arrow that only fills in one text, as a statement does, has the lines of its head; the text is SQL. */
function textLines(file: SourceFile, { type, body }: SyntaxNode): number {
  if (type !== 'ArrowFunctionExpression' || !isNode(body) || body.type !== 'TemplateLiteral') return 0
  return lineOf(file, body.end) - lineOf(file, body.start)
}

export function anyViolations(file: SourceFile): string[] {
  return nodesOf(file, (node) => node.type === 'TSAnyKeyword').map((node) => `${at(file, node)} any`)
}

export function consoleViolations(file: SourceFile): string[] {
  const isConsole = (node: SyntaxNode) => node.type === 'MemberExpression' && nameOf(node.object) === 'console'
  return nodesOf(file, isConsole).map((node) => `${at(file, node)} prints: use the injected logger`)
}

export function nodeGlobalViolations(file: SourceFile): string[] {
  return [...walk(file.program)]
    .filter(({ node, ancestors }) => {
      if (node.type !== 'Identifier' || !NODE_GLOBALS.has(String(node.name))) return false
      const parent = ancestors.at(-1)
      // `x.process` and `{ process: … }` name a property, not the global.
      const isPropertyName = (parent?.property === node || parent?.key === node) && parent.computed !== true
      return !isPropertyName && !declaresName(file, String(node.name))
    })
    .map(({ node }) => `${at(file, node)} uses Node's global ${node.name}`)
}

/** Nothing in the suite is switched off, and nothing switches the rest off. */
export function switchedOffViolations(file: SourceFile): string[] {
  const switches = new Set(['only', 'skip', 'todo', 'skipIf', 'runIf', 'fails'])
  const subjects = new Set(['test', 'it', 'describe', 'suite', 'context', 'ctx', 'task'])
  const isSwitch = (node: SyntaxNode) =>
    node.type === 'MemberExpression' && switches.has(nameOf(node.property)) && subjects.has(nameOf(node.object))
  return nodesOf(file, isSwitch).map((node) => `${at(file, node)} ${nameOf(node.object)}.${nameOf(node.property)}`)
}

/** A test waits on an event or moves the database clock; a pause is either too short or too long. */
export function sleepViolations(file: SourceFile): string[] {
  const sleeps: string[] = []
  for (const { node, ancestors } of walk(file.program)) {
    if (importsSleep(node)) sleeps.push(`${at(file, node)} imports a sleep`)
    if (node.type === 'CallExpression' && nameOf(node.callee) === 'setTimeout' && resolvesPromise(node, ancestors))
      sleeps.push(`${at(file, node)} sleeps`)
  }
  return sleeps
}

/** `setImmediate` of the same module is a turn of the event loop, not a pause. */
function importsSleep(node: SyntaxNode): boolean {
  if (!isNode(node.source) || !/^(node:)?timers\/promises$/.test(String(node.source.value))) return false
  const names = Array.isArray(node.specifiers) ? node.specifiers.filter(isNode).map((item) => nameOf(item.imported)) : []
  return names.length === 0 || names.some((name) => name !== 'setImmediate')
}

/** `new Promise((resolve) => setTimeout(resolve, …))` and its longer spellings; a timer that rejects is a deadline, and fine. */
function resolvesPromise(call: SyntaxNode, ancestors: readonly SyntaxNode[]): boolean {
  const promise = ancestors.findLast((node) => node.type === 'NewExpression' && nameOf(node.callee) === 'Promise')
  const executor = Array.isArray(promise?.arguments) ? promise.arguments[0] : undefined
  const first = isNode(executor) && Array.isArray(executor.params) ? executor.params[0] : undefined
  const callback = Array.isArray(call.arguments) ? call.arguments[0] : undefined
  if (!isNode(first) || !isNode(callback)) return false
  return [...walk(callback)].some(({ node }) => node.type === 'Identifier' && node.name === first.name)
}

function declaresName(file: SourceFile, name: string): boolean {
  return [...walk(file.program)].some(({ node, ancestors }) => {
    if (BINDINGS.has(node.type)) return nameOf(node.id) === name || nameOf(node.local) === name
    const parent = ancestors.at(-1)
    if (parent?.type === 'ObjectPattern') return node.type === 'Property' && nameOf(node.value) === name
    const isParameter = parent !== undefined && FUNCTIONS.has(parent.type) && isIn(parent.params, node)
    return isParameter && nameOf(node) === name
  })
}

function isIn(list: unknown, node: SyntaxNode): boolean {
  return Array.isArray(list) && list.includes(node)
}

function functionName(node: SyntaxNode, ancestors: readonly SyntaxNode[]): string {
  const parent = ancestors.at(-1)
  return nameOf(node.id) || nameOf(parent?.id) || nameOf(parent?.key) || 'a function'
}

function nodesOf(file: SourceFile, matches: (node: SyntaxNode) => boolean): SyntaxNode[] {
  return [...walk(file.program)].map(({ node }) => node).filter(matches)
}

function nameOf(node: unknown): string {
  return isNode(node) && node.type === 'Identifier' ? String(node.name) : ''
}

function at(file: SourceFile, node: SyntaxNode): string {
  return `${file.path}:${lineOf(file, node.start)}`
}
