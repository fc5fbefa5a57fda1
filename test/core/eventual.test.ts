import { describe, expect, test } from 'vitest'
import { isThenable, whenReady } from '../../src/core/eventual.ts'

describe('what may be a promise', () => {
  test('is used at once when it is none', () => {
    expect(whenReady(2, (value) => value + 1)).toBe(3)
  })

  test('is used when it has come', async () => {
    await expect(whenReady(Promise.resolve(2), (value) => value + 1)).resolves.toBe(3)
  })

  test('is told from a value by its then, as await tells it', () => {
    const method = 'then'
    const query = { [method]: (use: (rows: number) => void) => use(1) }
    expect([query, Promise.resolve()].every(isThenable)).toBe(true)
    expect([null, undefined, 'text', { [method]: 'later' }].some(isThenable)).toBe(false)
  })
})
