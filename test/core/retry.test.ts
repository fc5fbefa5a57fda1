import { describe, expect, test } from 'vitest'
import type { PawlError } from '../../src/core/errors.ts'
import { DEFAULT_RETRY, nextDelayMs, type RetryOptions, toRetryPolicy } from '../../src/core/retry.ts'

const noRandom = (): number => {
  throw new Error('random must not be drawn without jitter')
}

function delays(options: RetryOptions | undefined, attempts: number, random = noRandom): (number | undefined)[] {
  const policy = toRetryPolicy(options, 'retry')
  return Array.from({ length: attempts }, (_, index) => nextDelayMs(policy, index + 1, random))
}

describe('retry', () => {
  test('C071 the default delays are the table of the documentation, exactly', () => {
    expect(delays(undefined, 5)).toEqual([5_000, 15_000, 45_000, 135_000, 405_000])
    expect(delays(undefined, 10).slice(5)).toEqual([1_215_000, 3_600_000, 3_600_000, 3_600_000, undefined])
    expect(DEFAULT_RETRY.maxAttempts).toBe(10)
  })

  test('C072 a fixed backoff of 7 s waits 7 s every time', () => {
    expect(delays({ maxAttempts: 4, backoff: { kind: 'fixed', base: '7s' } }, 4)).toEqual([7_000, 7_000, 7_000, undefined])
  })

  test('C073 an exponential backoff doubles up to its cap', () => {
    const backoff = { kind: 'exponential', base: '2s', max: '30s' } as const
    expect(delays({ maxAttempts: 8, backoff }, 8)).toEqual([2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, undefined])
  })

  test('an exponential backoff stays finite however many attempts failed', () => {
    const policy = toRetryPolicy({ maxAttempts: 1_000_000, backoff: { kind: 'exponential', base: '2s', max: '1h' } }, 'retry')
    expect(nextDelayMs(policy, 999_999, noRandom)).toBe(3_600_000)
  })

  test('a linear backoff grows by its step up to its cap', () => {
    const backoff = { kind: 'linear', base: '1s', step: '2s', max: '6s' } as const
    expect(delays({ maxAttempts: 5, backoff }, 5)).toEqual([1_000, 3_000, 5_000, 6_000, undefined])
    expect(delays({ maxAttempts: 4, backoff: { kind: 'linear', base: '2s' } }, 3)).toEqual([2_000, 4_000, 6_000])
  })

  test('C074 a thousand jittered delays fill the stated band and never leave it', () => {
    let state = 42
    const random = (): number => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
      return state / 2_147_483_648
    }
    const policy = toRetryPolicy({ backoff: { kind: 'fixed', base: '100s', jitter: 0.1 } }, 'retry')
    const drawn = Array.from({ length: 1_000 }, () => nextDelayMs(policy, 1, random) as number)
    expect(Math.min(...drawn)).toBeGreaterThanOrEqual(90_000)
    expect(Math.max(...drawn)).toBeLessThanOrEqual(100_000)
    for (let tenth = 0; tenth < 10; tenth += 1) {
      const from = 90_000 + tenth * 1_000
      expect(drawn.filter((ms) => ms >= from && ms <= from + 1_000).length).toBeGreaterThan(50)
    }
    expect(new Set(drawn).size).toBeGreaterThan(900)
  })

  test('C074 jitter never exceeds the cap', () => {
    const policy = toRetryPolicy({ backoff: { kind: 'exponential', base: '10s', max: '15s', jitter: 1 } }, 'retry')
    expect(nextDelayMs(policy, 9, () => 0)).toBe(15_000)
    expect(nextDelayMs(policy, 9, () => 0.999_999)).toBe(0)
  })

  test('C075 a function is given the attempt and the error, and what it returns is used as it is', () => {
    const seen: unknown[] = []
    const policy = toRetryPolicy(
      {
        maxAttempts: 3,
        backoff: (attempt, error) => {
          seen.push([attempt, error])
          return `${attempt * 11}s`
        },
      },
      'retry',
    )
    expect(nextDelayMs(policy, 1, noRandom, 'boom')).toBe(11_000)
    expect(nextDelayMs(policy, 2, noRandom, 'bang')).toBe(22_000)
    expect(nextDelayMs(policy, 3, noRandom, 'over')).toBeUndefined()
    expect(seen).toEqual([
      [1, 'boom'],
      [2, 'bang'],
    ])
  })

  test('C079 none means one attempt', () => {
    expect(delays('none', 1)).toEqual([undefined])
    expect(delays({ maxAttempts: 5, backoff: { kind: 'none' } }, 1)).toEqual([undefined])
    expect(toRetryPolicy('none', 'retry').maxAttempts).toBe(1)
  })

  test('what is left out comes from the defaults', () => {
    const defaults = toRetryPolicy({ maxAttempts: 3, backoff: { kind: 'fixed', base: '1s' } }, 'retry')
    expect(toRetryPolicy(undefined, 'retry', defaults)).toBe(defaults)
    expect(toRetryPolicy({ maxAttempts: 7 }, 'retry', defaults)).toEqual({ maxAttempts: 7, backoff: defaults.backoff })
  })

  test.each([
    [{ maxAttempts: 0 }, 'retry.maxAttempts'],
    [{ maxAttempts: 1.5 }, 'retry.maxAttempts'],
    [{ backoff: { kind: 'fixed', base: '-1s' } }, 'retry.backoff.base'],
    [{ backoff: { kind: 'fixed', base: '1s', jitter: 1.5 } }, 'retry.backoff.jitter'],
    [{ backoff: { kind: 'exponential', base: '1s', factor: 0 } }, 'retry.backoff.factor'],
    [{ backoff: { kind: 'surprise' } }, 'retry.backoff.kind'],
    ['always', 'retry'],
  ])('refuses %j, naming the field', (options, field) => {
    try {
      toRetryPolicy(options as RetryOptions, 'retry')
      expect.unreachable()
    } catch (error) {
      expect((error as PawlError).code).toBe('invalid_configuration')
      expect((error as PawlError).field).toBe(field)
      expect((error as PawlError).allowed).toBeTruthy()
    }
  })
})
