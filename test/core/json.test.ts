import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { canonical, sha256Hex } from '../../src/core/canonical.ts'
import type { PawlError } from '../../src/core/errors.ts'
import { cleanText, type Json, parseJson, toPointer, toStored, utf8Length } from '../../src/core/json.ts'

function refusal(run: () => unknown): PawlError {
  try {
    run()
  } catch (error) {
    return error as PawlError
  }
  return expect.unreachable('nothing was refused')
}

const store = (value: unknown): string => toStored(value, { field: 'input' }).text

function nested(levels: number): unknown {
  let value: unknown = 1
  for (let level = 0; level < levels; level += 1) value = level % 2 === 0 ? [value] : { a: value }
  return value
}

describe('toStored', () => {
  test('writes what JSON.stringify writes, for every JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6, stringUnit: 'binary' }), (value) => {
        const text = JSON.stringify(value)
        if (text.includes('\\u0000') || text.includes('__proto__')) return
        const stored = toStored(value, { field: 'input' })
        expect(stored.text).toBe(text)
        expect(stored.bytes).toBe(Buffer.byteLength(text))
        expect(JSON.parse(stored.text)).toEqual(JSON.parse(text))
      }),
      { numRuns: 500 },
    )
  })

  test('undefined and null are stored as null, members that are undefined are left out', () => {
    expect(store(undefined)).toBe('null')
    expect(store(null)).toBe('null')
    expect(store({ a: undefined, b: 1 })).toBe('{"b":1}')
  })

  test('a string that only looks like an escape is stored', () => {
    expect(JSON.parse(store({ text: '\\u0000 \\ud800' }))).toEqual({ text: '\\u0000 \\ud800' })
    expect(JSON.parse(store('\u0001\u001f😀'))).toBe('\u0001\u001f😀')
  })

  test('toJSON is honoured, called once, and what it gives is checked', () => {
    let calls = 0
    const money = {
      toJSON: () => {
        calls += 1
        return { cents: calls }
      },
    }
    expect(store({ at: new Date(0), money, list: [new Date(0)] })).toBe(
      '{"at":"1970-01-01T00:00:00.000Z","money":{"cents":1},"list":["1970-01-01T00:00:00.000Z"]}',
    )
    expect(calls).toBe(1)
    expect(refusal(() => store({ a: { toJSON: () => ({ n: 1n }) } })).errors).toEqual([
      { pointer: '/a/n', detail: 'a bigint cannot be stored' },
    ])
    expect(refusal(() => store({ a: new Date(Number.NaN) })).errors?.[0]?.pointer).toBe('/a')
    expect(refusal(() => store({ a: { toJSON: () => undefined } })).errors?.[0]?.pointer).toBe('/a')
  })

  test('an object of a class is stored as its members', () => {
    class Point {
      readonly x = 1
      get y(): number {
        return 2
      }
    }
    expect(store(new Point())).toBe('{"x":1}')
    expect(store(Object.assign(Object.create(null), { a: 1 }))).toBe('{"a":1}')
  })

  const circular: Record<string, unknown> = { a: { b: [] } }
  ;(circular.a as { b: unknown[] }).b.push(circular)

  test.each([
    ['a bigint', { n: [1, 2n] }, '/n/1'],
    ['NaN', { n: Number.NaN }, '/n'],
    ['Infinity', [Number.POSITIVE_INFINITY], '/0'],
    ['a top-level NaN', Number.NaN, ''],
    ['a function', { f: () => 1 }, '/f'],
    ['a top-level function', () => 1, ''],
    ['a symbol', { s: Symbol('x') }, '/s'],
    ['undefined in an array', { list: [1, undefined] }, '/list/1'],
    // biome-ignore lint/suspicious/noSparseArray: a hole is what is tested
    ['a hole in an array', { list: [1, , 2] }, '/list/1'],
    ['NUL in a string', { a: { 'b/c~d': 'x\0y' } }, '/a/b~1c~0d'],
    ['NUL in a key', { 'a\0b': 1 }, '/a\uFFFDb'],
    ['a lone high surrogate', ['\ud800x'], '/0'],
    ['a lone low surrogate', { a: '\udc00' }, '/a'],
    ['a lone surrogate in a key', { '\ud800': 1 }, '/\uFFFD'],
    ['an own __proto__', JSON.parse('{"a":{"__proto__":{"admin":true}}}'), '/a/__proto__'],
    ['a Map', { m: new Map([[1, 2]]) }, '/m'],
    ['a Set', { m: new Set([1]) }, '/m'],
    ['an Error', { e: new Error('x') }, '/e'],
    ['bytes', { b: new Uint8Array(2) }, '/b'],
    ['a promise', { p: Promise.resolve(1) }, '/p'],
    ['a RegExp', /x/, ''],
  ])('refuses %s, with its pointer', (_, value, pointer) => {
    const error = refusal(() => toStored(value, { field: 'result', code: 'invalid_result' }))
    expect(error.code).toBe('invalid_result')
    expect(error.field).toBe('result')
    expect(error.errors).toHaveLength(1)
    expect(error.errors?.[0]?.pointer).toBe(pointer)
    expect(store(error.message)).toBeTruthy()
  })

  test('C081 a value that contains itself is refused promptly', () => {
    const error = refusal(() => store(circular))
    expect(error.code).toBe('invalid_input')
    expect(error.message).toContain('contains itself')
  })

  test('200 levels are stored, 201 are refused', () => {
    expect(JSON.parse(store(nested(200)))).toBeTruthy()
    expect(refusal(() => store(nested(201))).message).toContain('nested deeper than 200 levels')
    expect(refusal(() => store(nested(100_000))).message).toContain('nested deeper than 200 levels')
  })

  test('C025 one byte above the limit is payload_too_large, the limit itself is stored', () => {
    const fits = 'x'.repeat(98)
    expect(toStored(fits, { field: 'input', maxBytes: 100 }).bytes).toBe(100)
    const error = refusal(() => toStored(`${fits}x`, { field: 'input', maxBytes: 100 }))
    expect([error.code, error.status, error.field, error.got, error.allowed]).toEqual([
      'payload_too_large',
      413,
      'input',
      '101 bytes',
      'at most 100 bytes of JSON',
    ])
    expect(refusal(() => toStored('é'.repeat(50), { field: 'input', maxBytes: 100 })).got).toBe('102 bytes')
  })

  test('shared references that would explode are refused without exploding', () => {
    let value: unknown = 'x'
    for (let level = 0; level < 60; level += 1) value = [value, value]
    expect(refusal(() => store(value)).code).toBe('payload_too_large')
  })
})

describe('parseJson', () => {
  test('gives the value', () => {
    expect(parseJson('{"a":[1,2.5e3,"x",null,true],"b":{}}')).toEqual({ a: [1, 2500, 'x', null, true], b: {} })
    expect(parseJson('9007199254740991')).toBe(9_007_199_254_740_991)
    expect(parseJson('{"big":"123456789012345678901234","small":0.1234567890123456789,"e":1e300}')).toEqual({
      big: '123456789012345678901234',
      small: 0.123_456_789_012_345_68,
      e: 1e300,
    })
    expect(parseJson('[9007199254740992, 1000000000000000000000]')).toEqual([9_007_199_254_740_992, 1e21])
  })

  test.each([
    ['not JSON', '{"a":', 'malformed', undefined],
    ['nothing', '', 'malformed', undefined],
    ['too deep', '['.repeat(1_000_000) + ']'.repeat(1_000_000), 'malformed', undefined],
    ['NUL', '{"a":"x\\u0000"}', 'invalid_request', '/a'],
    ['NUL in a key', '{"a\\u0000":1}', 'invalid_request', '/a\uFFFD'],
    ['a lone surrogate', '["\\ud800"]', 'invalid_request', '/0'],
    ['a raw lone surrogate', '["\ud800"]', 'invalid_request', '/0'],
    ['__proto__', '{"a":{"__proto__":{"admin":true}}}', 'invalid_request', '/a/__proto__'],
    ['beyond a double', '{"n":1e400}', 'invalid_request', '/n'],
    ['digits that would be lost', '{"n":12345678901234567}', 'invalid_request', ''],
    ['negative digits that would be lost', '[-9007199254740993]', 'invalid_request', ''],
  ])('refuses %s', (_, text, code, pointer) => {
    const error = refusal(() => parseJson(text))
    expect(error.code).toBe(code)
    expect(error.errors?.[0]?.pointer).toBe(pointer)
    expect(store(error.message)).toBeTruthy()
  })

  test('the depth allowed can be smaller', () => {
    expect(parseJson('[[1]]', { maxDepth: 2 })).toEqual([[1]])
    expect(refusal(() => parseJson('[[[1]]]', { maxDepth: 2 })).code).toBe('malformed')
    expect(parseJson('[["[[[{{\\"[[["]]', { maxDepth: 2 })).toEqual([['[[[{{"[[[']])
  })
})

describe('canonical', () => {
  test('the order of members and white space do not matter, everything else does', () => {
    expect(canonical({ b: 1, a: [{ z: null, y: 'é' }], 10: 1, 9: 2 })).toBe('{"10":1,"9":2,"a":[{"y":"é","z":null}],"b":1}')
    expect(canonical({ a: 1, b: undefined })).toBe('{"a":1}')
    expect(canonical([1, 2])).not.toBe(canonical([2, 1]))
    expect(canonical('1')).not.toBe(canonical(1))
  })

  test('members are sorted by UTF-16 code units, as RFC 8785 says', () => {
    const keys = ['\u20ac', '\r', '\ufb33', '1', '\ud83d\ude00', '\u0080', '\u00f6']
    const value = Object.fromEntries(keys.map((key) => [key, key]))
    expect(Object.keys(JSON.parse(canonical(value)) as object)).toEqual([
      '1',
      '\r',
      '\u0080',
      '\u00f6',
      '\u20ac',
      '\ud83d\ude00',
      '\ufb33',
    ])
  })

  test('equal values share one text whatever the order they were built in', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
        const reversed = reverseMembers(value as Json)
        expect(canonical(reversed)).toBe(canonical(value as Json))
        expect(JSON.parse(canonical(value as Json))).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })

  test('sha256Hex is SHA-256 over UTF-8', async () => {
    expect(await sha256Hex('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
    expect(await sha256Hex('é')).toBe('4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c')
  })
})

function reverseMembers(value: Json): Json {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map((item: Json) => reverseMembers(item))
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, member]) => [key, reverseMembers(member as Json)]),
  )
}

describe('texts', () => {
  test('cleanText replaces NUL and lone surrogates and leaves the rest', () => {
    expect(cleanText('a\0b\ud800c😀')).toBe('a\uFFFDb\uFFFDc😀')
  })

  test('utf8Length counts bytes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 3_000 }), (text) => {
        expect(utf8Length(text)).toBe(Buffer.byteLength(text))
      }),
    )
    expect(utf8Length('é'.repeat(5_000))).toBe(10_000)
  })

  test('toPointer escapes as RFC 6901 says', () => {
    expect(toPointer([])).toBe('')
    expect(toPointer(['a/b', 'c~d', 0, { key: 'e' }])).toBe('/a~1b/c~0d/0/e')
  })
})
