import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { errorPage } from '../../scripts/error-page.ts'
import { toProblem } from '../../src/api/problem.ts'
import { ERROR_CODES, type ErrorCode, PawlError } from '../../src/core/errors.ts'

const page = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8')

describe('docs/errors.md', () => {
  test('is what `npm run errors` writes', () => {
    expect(page).toBe(errorPage())
  })

  test('has an entry for the type of every problem document', () => {
    for (const code of Object.keys(ERROR_CODES) as ErrorCode[]) {
      const { type, status, title } = toProblem(new PawlError(code, 'detail'))
      const heading = type.replace('urn:pawl:problem:', '## ')
      const entry = page.split('\n## ').find((text) => `## ${text}`.startsWith(`${heading}\n`))
      expect(entry, type).toContain(title)
      expect(entry).toContain(`HTTP ${status}`)
    }
  })
})
