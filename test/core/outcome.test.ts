import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createInbox } from '../../src/core/context.ts'
import { ERROR_CODES, isPawlError, PawlError } from '../../src/core/errors.ts'
import { job } from '../../src/core/job.ts'
import { toStored } from '../../src/core/json.ts'
import {
  isNonRetryable,
  isOutcome,
  makeOutcomeFunctions,
  NonRetryableError,
  nonRetryable,
  toInstant,
  toOutcome,
  toRunError,
} from '../../src/core/outcome.ts'
import { parse } from '../../src/core/schema.ts'
import { isStatus, isTerminal, STATUSES, TERMINAL } from '../../src/core/status.ts'

const send = job({ name: 'send', input: z.object({ to: z.string() }), run: () => null })
const { next, waitFor, join, done, fail, retry, snooze, discard } = makeOutcomeFunctions({
  definition: 'order',
  steps: new Set(['start', 'end']),
  events: new Set(),
  signals: new Set(['paid', 'cancelled']),
})

function refusal(run: () => unknown): PawlError {
  try {
    run()
  } catch (error) {
    return error as PawlError
  }
  return expect.unreachable('nothing was refused')
}

describe('outcomes', () => {
  test('are plain values that say what happens next', () => {
    expect(next('end', { state: { n: 1 }, delay: '2s', yield: true })).toMatchObject({
      kind: 'next',
      step: 'end',
      state: { n: 1 },
      delayMs: 2_000,
      yield: true,
    })
    expect(next('end')).toMatchObject({ kind: 'next', state: undefined, delayMs: 0, yield: false, commit: undefined })
    expect(waitFor(['paid', 'cancelled', 'paid'], { goto: 'end' })).toMatchObject({
      kind: 'wait',
      names: ['paid', 'cancelled'],
      ends: [],
      step: 'end',
      timeoutMs: undefined,
    })
    expect(join([send.with({ to: 'a' })], { goto: 'end', need: 1, deadline: '1h' })).toMatchObject({
      kind: 'join',
      step: 'end',
      need: 1,
      deadlineMs: 3_600_000,
      calls: [{ definition: 'send', input: { to: 'a' } }],
    })
    expect(join([], { goto: 'end' })).toMatchObject({ kind: 'join', need: 'all', calls: [] })
    expect(done({ ok: true })).toMatchObject({ kind: 'done', result: { ok: true } })
    expect(retry({ after: '1s', reason: 'busy' })).toMatchObject({ kind: 'retry', afterMs: 1_000, at: undefined, reason: 'busy' })
    expect(retry()).toMatchObject({ kind: 'retry', afterMs: undefined, at: undefined })
    expect(snooze('60s')).toMatchObject({ kind: 'snooze', forMs: 60_000, at: undefined })
    expect(snooze({ until: new Date(0) })).toMatchObject({ kind: 'snooze', forMs: 0, at: '1970-01-01T00:00:00.000Z' })
    expect(discard('duplicate')).toMatchObject({ kind: 'discard', reason: 'duplicate' })
  })

  test('C077 a retry at an instant keeps it exactly', () => {
    expect(retry({ at: '2026-11-30T12:00:00.123Z' }).at).toBe('2026-11-30T12:00:00.123Z')
    expect(retry({ at: '2026-11-30T13:00:00+01:00' }).at).toBe('2026-11-30T12:00:00.000Z')
    expect(refusal(() => toInstant('yesterday', 'at')).field).toBe('at')
    expect(refusal(() => toInstant(new Date(Number.NaN), 'at')).code).toBe('invalid_outcome')
  })

  test('C069 fail keeps a text, data, or an error', () => {
    expect(fail('no stock').error).toEqual({ code: 'failed', message: 'no stock' })
    expect(fail({ reason: 'stock', message: 'none left' }).error).toEqual({
      code: 'failed',
      message: 'none left',
      data: { reason: 'stock', message: 'none left' },
    })
    expect(fail(new TypeError('x')).error).toMatchObject({ code: 'failed', name: 'TypeError', message: 'x' })
    expect(fail(undefined).error).toEqual({ code: 'failed', message: 'failed', data: undefined })
  })

  test('statements ride with any outcome', () => {
    const commit = [{ sql: 'UPDATE orders SET paid = $1', params: [true] }]
    for (const outcome of [
      next('end', { commit }),
      waitFor('paid', { goto: 'end', commit }),
      done(1, { commit }),
      retry({ commit }),
    ]) {
      expect(outcome.commit).toEqual(commit)
    }
    expect(done(1, { commit: [] }).commit).toBeUndefined()
  })

  test.each([
    ['an unknown step', () => next('nope'), 'order: next'],
    ['a step of Object.prototype', () => next('toString'), 'order: next'],
    ['an undeclared signal', () => waitFor('payd', { goto: 'end' }), 'order: waitFor'],
    ['no signal', () => waitFor([], { goto: 'end' }), 'waitFor'],
    ['no goal', () => waitFor('paid', undefined as never), 'order: waitFor.goto'],
    ['a call that is none', () => join([{} as never], { goto: 'end' }), 'join'],
    ['more needed than called', () => join([send.with({ to: 'a' })], { goto: 'end', need: 2 }), 'join.need'],
    [
      'too many children',
      () =>
        join(
          Array.from({ length: 10_001 }, () => send.with({ to: 'a' })),
          { goto: 'end' },
        ),
      'join',
    ],
    ['a delay without a unit', () => next('end', { delay: '5' as never }), 'next.delay'],
    ['a snooze of nothing', () => snooze(undefined as never), 'snooze'],
    ['a commit that is a callback', () => done(1, { commit: (() => null) as never }), 'commit'],
    ['51 statements', () => done(1, { commit: Array.from({ length: 51 }, () => ({ sql: 'SELECT 1' })) }), 'commit'],
  ])('%s is refused as invalid_outcome', (_, run, field) => {
    const error = refusal(run)
    expect([error.code, error.field]).toEqual(['invalid_outcome', field])
  })

  test('what a job returns is done, unless it is an outcome; a look-alike is a result', () => {
    expect(toOutcome('job', { messageId: 'x' })).toMatchObject({ kind: 'done', result: { messageId: 'x' } })
    expect(toOutcome('job', undefined)).toMatchObject({ kind: 'done', result: undefined })
    expect(toOutcome('job', { kind: 'discard', reason: 'x' })).toMatchObject({ kind: 'done', result: { kind: 'discard' } })
    const outcome = snooze('1s')
    expect(toOutcome('job', outcome)).toBe(outcome)
    expect(isOutcome(JSON.parse(JSON.stringify(outcome)))).toBe(false)
  })

  test('a machine step that returns no outcome is refused', () => {
    expect(refusal(() => toOutcome('machine', { n: 1 })).code).toBe('invalid_outcome')
    expect(refusal(() => toOutcome('machine', undefined)).message).toContain('undefined')
  })
})

describe('errors of a run', () => {
  test('C063 an error keeps name, message and stack; anything else that was thrown is described', () => {
    expect(toRunError(new TypeError('boom'))).toMatchObject({ code: 'thrown', name: 'TypeError', message: 'boom' })
    expect(toRunError(new TypeError('boom')).stack).toContain('outcome.test.ts')
    expect(toRunError('boom')).toEqual({ code: 'thrown', message: 'boom' })
    expect(toRunError(undefined)).toEqual({ code: 'thrown', message: 'undefined' })
    expect(toRunError(12n, 'timeout')).toEqual({ code: 'timeout', message: '12n' })
    expect(toRunError(new PawlError('invalid_result', 'no'))).toMatchObject({ code: 'invalid_result', message: 'no' })
  })

  test('what was thrown can always be stored, whatever it holds', () => {
    const hostile = new Error(`NUL \0 lone \ud800 ${'x'.repeat(100_000)}`)
    const trap = Object.defineProperty(new Error('x'), 'message', {
      get: () => {
        throw new Error('trap')
      },
    })
    const proxy = new Proxy(
      {},
      {
        get: () => {
          throw new Error('trap')
        },
        getPrototypeOf: () => {
          throw new Error('trap')
        },
      },
    )
    for (const thrown of [hostile, trap, proxy, Symbol('x'), Object.create(null), () => 1, { toString: null }]) {
      const error = toRunError(thrown)
      expect(error.message.length).toBeLessThanOrEqual(4_000)
      expect(toStored(error, { field: 'error' }).bytes).toBeLessThan(40_000)
    }
  })

  test('C064 nonRetryable keeps the message and is recognised, also from another copy of the library', () => {
    const error = nonRetryable(new TypeError('bad card'))
    expect(error).toBeInstanceOf(NonRetryableError)
    expect(error.message).toBe('bad card')
    expect(nonRetryable(error)).toBe(error)
    expect(isNonRetryable(error)).toBe(true)
    expect(isNonRetryable(Object.assign(new Error('x'), { name: 'NonRetryableError' }))).toBe(true)
    expect(isNonRetryable(new Error('x'))).toBe(false)
  })
})

describe('inbox', () => {
  const signal = (id: string, name: string) => ({ id, name, payload: null, receivedAt: '2026-01-01T00:00:00.000Z' })

  test('first gives the oldest of a name', () => {
    const inbox = createInbox([signal('1', 'a'), signal('2', 'b'), signal('3', 'b')])
    expect(inbox.first('b')?.id).toBe('2')
    expect(inbox.first('c')).toBeUndefined()
    expect(createInbox([]).all).toEqual([])
  })
})

describe('schemas', () => {
  const options = { code: 'invalid_input', field: 'input' } as const

  test('a synchronous validator answers without a promise', () => {
    expect(parse(z.object({ n: z.number().default(1) }), {}, options)).toEqual({ n: 1 })
  })

  test('an asynchronous validator is awaited', async () => {
    const even = z.number().refine(async (value) => value % 2 === 0)
    await expect(parse(even, 2, options)).resolves.toBe(2)
    await expect(parse(even, 3, options)).rejects.toMatchObject({ code: 'invalid_input' })
  })

  test('C026 each issue has its pointer', () => {
    const schema = z.object({ 'a/b': z.array(z.object({ n: z.number() })), c: z.string() })
    const error = refusal(() => parse(schema, { 'a/b': [{ n: 1 }, { n: 'x' }] }, options))
    expect([error.code, error.status]).toEqual(['invalid_input', 422])
    expect(error.errors?.map((item) => item.pointer)).toEqual(['/a~1b/1/n', '/c'])
    expect(error.errors?.every((item) => item.detail.length > 0)).toBe(true)
  })

  test('a thousand issues are reported as a hundred', () => {
    const list = Array.from({ length: 1_000 }, () => 'x')
    expect(refusal(() => parse(z.array(z.number()), list, options)).errors).toHaveLength(100)
  })
})

describe('errors', () => {
  test('carry the meaning of their code', () => {
    const error = new PawlError('key_taken', 'order:42 is held by run 1.', { retryAfterMs: 5, cause: 'x' })
    expect(error).toMatchObject({
      code: 'key_taken',
      kind: 'mismatch',
      status: 409,
      detail: error.message,
      retryAfterMs: 5,
      cause: 'x',
    })
    expect(isPawlError(error)).toBe(true)
    expect(isPawlError(error, 'key_taken')).toBe(true)
    expect(isPawlError(error, 'conflict')).toBe(false)
    expect(isPawlError(new Error('x'))).toBe(false)
  })

  test('every code has a kind, an HTTP status and a sentence', () => {
    for (const meaning of Object.values(ERROR_CODES)) {
      expect(meaning.status).toBeGreaterThanOrEqual(400)
      expect(meaning.status).toBeLessThan(600)
      expect(meaning.title).toMatch(/^[A-Z].*\.$/)
    }
  })
})

describe('statuses', () => {
  test('uncertain is not terminal', () => {
    expect(STATUSES.filter(isTerminal)).toEqual([...TERMINAL])
    expect(isTerminal('uncertain')).toBe(false)
    expect(isStatus('waiting')).toBe(true)
    expect(isStatus('done')).toBe(false)
  })
})
