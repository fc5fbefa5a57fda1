import { describe, expect, test } from 'vitest'
import { DatabaseError } from '../../src/core/database.ts'
import { type Phase, sendWithRetries, toDatabaseError } from '../../src/db/errors.ts'

const answer = (code: string) => Object.assign(new Error('the server says no'), { code, severity: 'ERROR' })
const failure = (code: string, cause?: unknown) => Object.assign(new Error('the socket says no', { cause }), { code })

const fates: readonly (readonly [thrown: Error, phase: Phase, fate: DatabaseError['fate'], sqlstate: string | undefined])[] = [
  [answer('23505'), 'sent', 'refused', '23505'],
  [answer('28P01'), 'connecting', 'refused', '28P01'],
  [answer('3D000'), 'sent', 'refused', '3D000'],
  [answer('53300'), 'sent', 'not_sent', '53300'],
  [answer('57P03'), 'connecting', 'not_sent', '57P03'],
  [answer('57P01'), 'connecting', 'not_sent', '57P01'],
  [answer('57P01'), 'sent', 'lost', '57P01'],
  [answer('57P02'), 'sent', 'lost', '57P02'],
  [answer('08006'), 'sent', 'lost', '08006'],
  [failure('EPIPE'), 'sent', 'lost', undefined],
  [failure('ECONNRESET'), 'sent', 'lost', undefined],
  [failure('ECONNRESET'), 'connecting', 'not_sent', undefined],
  [failure('ECONNREFUSED'), 'sent', 'not_sent', undefined],
  [new TypeError('fetch failed', { cause: failure('ENOTFOUND') }), 'sent', 'not_sent', undefined],
  [new TypeError('fetch failed', { cause: failure('UND_ERR_SOCKET') }), 'sent', 'lost', undefined],
  [new AggregateError([failure('ECONNREFUSED'), failure('ENETUNREACH')]), 'sent', 'not_sent', undefined],
  [new AggregateError([failure('ECONNREFUSED'), failure('ETIMEDOUT')]), 'sent', 'lost', undefined],
]

describe('a failure of a driver', () => {
  test.each(fates)('%j while %s is %s', (thrown, phase, fate, sqlstate) => {
    expect(toDatabaseError(thrown, phase)).toMatchObject({ fate, sqlstate, cause: thrown })
  })

  test('is lost when it cannot be told at all, and has a message', () => {
    for (const thrown of [undefined, 'text', {}, new AggregateError([new Error('one')])]) {
      const error = toDatabaseError(thrown, 'sent')
      expect(error.fate).toBe('lost')
      expect(error.message).not.toBe('')
    }
  })

  test('whose causes go in a circle is mapped too', () => {
    const circle = new Error('circle')
    circle.cause = circle
    expect(toDatabaseError(circle, 'sent').fate).toBe('lost')
  })

  test('that is mapped already stays what it is', () => {
    const error = new DatabaseError('x', { fate: 'refused' })
    expect(toDatabaseError(error, 'sent')).toBe(error)
  })

  test('is not answered by sending again when it was lost, even with a code that would be', async () => {
    let sends = 0
    const work = sendWithRetries(async () => {
      sends++
      throw new DatabaseError('x', { fate: 'lost', sqlstate: '40001' })
    })
    await expect(work).rejects.toMatchObject({ fate: 'lost' })
    expect(sends).toBe(1)
  })
})
