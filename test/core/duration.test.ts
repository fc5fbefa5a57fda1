import { describe, expect, test } from 'vitest'
import { fromMs, toMs } from '../../src/core/duration.ts'
import type { PawlError } from '../../src/core/errors.ts'

describe('durations', () => {
  test.each([
    [0, 0],
    [1.4, 1],
    ['500ms', 500],
    ['90s', 90_000],
    ['1.5h', 5_400_000],
    ['0s', 0],
    ['5m', 300_000],
    ['1 minute', 60_000],
    ['2 hours', 7_200_000],
    ['1 day', 86_400_000],
    ['3d', 259_200_000],
    ['2 weeks', 1_209_600_000],
    ['36500 days', 3_153_600_000_000],
  ])('%j is %d ms', (duration, ms) => {
    expect(toMs(duration, 'x')).toBe(ms)
  })

  test.each([
    '',
    '5',
    's',
    '-1s',
    '1 fortnight',
    '1  day',
    ' 1s',
    '1s ',
    '1e3s',
    '1S',
    'Infinity s',
    '0x10s',
    '1constructor',
    '1__proto__',
    '101 years',
    '40000 days',
    '999999999999999w',
    '9'.repeat(400),
    Number.NaN,
    Number.POSITIVE_INFINITY,
    -1,
    3_155_760_000_001,
    null,
    undefined,
    {},
    [],
    10n,
    true,
  ])('refuses %s, naming field, got and allowed', (duration) => {
    try {
      toMs(duration, 'delay', { code: 'invalid_request' })
      expect.unreachable()
    } catch (error) {
      const refused = error as PawlError
      expect(refused.code).toBe('invalid_request')
      expect(refused.field).toBe('delay')
      expect(refused.got).toBeTruthy()
      expect(refused.allowed).toContain('100 years')
    }
  })

  test('narrower bounds are named in the error', () => {
    expect(() => toMs('26h', 'timeout', { minMs: 1, maxMs: 86_400_000 })).toThrow('timeout: got "26h", allowed is 1ms to 1 day.')
    expect(toMs('1 day', 'timeout', { minMs: 1, maxMs: 86_400_000 })).toBe(86_400_000)
  })

  test.each([
    [0, '0s'],
    [1, '1ms'],
    [1_500, '1500ms'],
    [90_000, '90s'],
    [300_000, '5m'],
    [7_200_000, '2h'],
    [86_400_000, '1 day'],
    [172_800_000, '2 days'],
  ])('%d ms is written %j and read back the same', (ms, text) => {
    expect(fromMs(ms)).toBe(text)
    expect(toMs(text, 'x')).toBe(ms)
  })
})
