import { describe, expect, test } from 'vitest'
import { parseInstant, RowReader } from '../../src/db/values.ts'

const instants: readonly (readonly [text: string, instant: string])[] = [
  ['2026-11-30 12:00:00+00', '2026-11-30T12:00:00.000Z'],
  ['2026-11-30 12:00:00.1+00', '2026-11-30T12:00:00.100Z'],
  ['2026-11-30 12:00:00.123456', '2026-11-30T12:00:00.123Z'],
  ['2026-11-30 23:59:59.999999-00:30', '2026-12-01T00:29:59.999Z'],
  ['1883-11-18 12:00:00-04:56:02', '1883-11-18T16:56:02.000Z'],
  ['2026-11-30 12:00:00+05:45', '2026-11-30T06:15:00.000Z'],
  ['2026-11-30 12:00:00+14', '2026-11-29T22:00:00.000Z'],
  ['0001-01-01 00:00:00+00', '0001-01-01T00:00:00.000Z'],
  ['0001-01-01 00:00:00+00 BC', '0000-01-01T00:00:00.000Z'],
  ['12026-11-30 12:00:00+00', '+012026-11-30T12:00:00.000Z'],
  ['294276-12-31 23:59:59+00', '294276-12-31 23:59:59+00'],
  ['infinity', 'infinity'],
  ['-infinity', '-infinity'],
]

describe('an instant of Postgres', () => {
  test.each(instants)('%s is %s', (text, instant) => {
    expect(parseInstant(text)).toBe(instant)
  })
})

describe('a row', () => {
  test('has its columns in order, the last of the same name winning', () => {
    const reader = new RowReader([
      { name: 'b', dataTypeID: 23 },
      { name: 'a', dataTypeID: 25 },
      { name: 'b', dataTypeID: 16 },
    ])
    const row = reader.read(['1', 'x', 't'])
    expect(Object.entries(row)).toEqual([
      ['b', true],
      ['a', 'x'],
    ])
  })

  test('keeps text of a type that is not known, arrays of it too', () => {
    const reader = new RowReader([{ name: 'a', dataTypeID: 999_999 }])
    expect(reader.read(['{x,y}'])).toEqual({ a: '{x,y}' })
  })

  test('does not share anything with the next one', () => {
    const reader = new RowReader([{ name: 'a', dataTypeID: 1009 }])
    const first = reader.read(['{x}'])
    expect(reader.read([null])).toEqual({ a: null })
    expect(first).toEqual({ a: ['x'] })
  })
})
