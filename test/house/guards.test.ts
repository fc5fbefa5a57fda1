import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { GUARDS } from '../../scripts/guards/all.ts'

const root = new URL('../../', import.meta.url)

/** How often the text that a guard consists of stands in its file. */
function countOf({ file, find }: { readonly file: string; readonly find: string }): number {
  const path = new URL(file, root)
  return existsSync(path) ? readFileSync(path, 'utf8').split(find).length - 1 : 0
}

test('every guard that a mutant takes away is where it is looked for', () => {
  const lost = GUARDS.filter((guard) => (guard.every ? countOf(guard) === 0 : countOf(guard) !== 1))
  expect(lost.map(({ guard, file }) => `${file}: ${guard}`)).toEqual([])
  expect(GUARDS.length).toBeGreaterThan(100)
})

test('every guard has a test file that must see it gone', () => {
  expect(GUARDS.filter(({ test: file }) => !existsSync(new URL(file, root))).map(({ guard }) => guard)).toEqual([])
})
