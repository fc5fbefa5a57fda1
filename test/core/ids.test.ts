import { describe, expect, test } from 'vitest'
import { isUuid, randomUuid, uuidv7 } from '../../src/core/ids.ts'

describe('ids', () => {
  test('a uuidv7 bears version, variant and the millisecond', () => {
    const before = Date.now()
    const id = uuidv7()
    const after = Date.now()
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    const ms = Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)
    expect(ms).toBeGreaterThanOrEqual(before)
    expect(ms).toBeLessThanOrEqual(after)
  })

  test('two hundred thousand ids made at once are unique and rise', () => {
    let last = ''
    let rises = true
    const ids = new Set<string>()
    for (let count = 0; count < 200_000; count += 1) {
      const id = uuidv7()
      if (id <= last) rises = false
      last = id
      ids.add(id)
    }
    expect(rises).toBe(true)
    expect(ids.size).toBe(200_000)
  })

  test('ids go on rising when the clock goes back or stands still', () => {
    const now = Date.now() + 10_000
    const clock = [now, now, now - 5_000, now - 3_600_000, now, now + 1, now - 1]
    const ids = clock.map((ms) => uuidv7(ms))
    expect([...ids].sort()).toEqual(ids)
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('the random part differs between ids', () => {
    const tails = new Set(Array.from({ length: 1_000 }, () => uuidv7().slice(24)))
    expect(tails.size).toBe(1_000)
  })

  test.each([
    ['0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b', true],
    ['0198A1B2-C3D4-7E5F-8A9B-0C1D2E3F4A5B', false],
    ['{0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b}', false],
    ['0198a1b2c3d47e5f8a9b0c1d2e3f4a5b', false],
    ['0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b\n', false],
    ['order:42', false],
    [42, false],
  ])('isUuid(%j) is %s', (value, expected) => {
    expect(isUuid(value)).toBe(expected)
  })

  test('a random uuid is a uuid', () => {
    expect(isUuid(randomUuid())).toBe(true)
  })
})
