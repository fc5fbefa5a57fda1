import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type Database, DatabaseError, type Statement, type Value } from '../../src/core/database.ts'
import {
  neonHttpSubject,
  neonPackageSubject,
  neonWebsocketSubject,
  nodePostgresSubject,
  pgliteSubject,
  type Subject,
  sql,
} from './subjects.ts'

const drivers = [
  { driver: 'node-postgres', open: nodePostgresSubject },
  { driver: 'neon-http', open: neonHttpSubject },
  { driver: 'neon-http over the package', open: neonPackageSubject },
  { driver: 'neon-websocket', open: neonWebsocketSubject },
  { driver: 'pglite', open: pgliteSubject },
] as const

const ODD_TEXTS = [
  'plain',
  '',
  'NULL',
  'null',
  '"',
  '\\',
  '\\"',
  'a,b',
  '{}',
  ' x ',
  'new\nline',
  'tab\t',
  'žluťoučký 🐎 漢字',
  "it's",
  '$1',
]

describe.each(drivers)('driver $driver', ({ driver, open }) => {
  let subject: Subject
  let database: Database
  beforeAll(async () => {
    subject = await open()
    database = subject.database
    await database.batch([
      sql('CREATE TABLE items (id int PRIMARY KEY, amount int CHECK (amount >= 0), note text UNIQUE)'),
      sql('CREATE TABLE links (id int PRIMARY KEY, item int REFERENCES items DEFERRABLE INITIALLY DEFERRED)'),
      sql('CREATE SEQUENCE attempts'),
      sql(FAIL_UNTIL),
    ])
  })
  afterAll(() => subject.close())

  const read = async (expression: string, ...params: Statement['params']): Promise<Value> => {
    const [row] = await database.query(sql(`SELECT ${expression} AS value`, ...params))
    return row?.value as Value
  }
  const count = async (table: string): Promise<Value> => read(`(SELECT count(*) FROM ${table})`)
  const failure = async (work: Promise<unknown>): Promise<DatabaseError> => {
    const error = await work.then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    expect(error).toBeInstanceOf(DatabaseError)
    return error as DatabaseError
  }

  test('says which driver it is', () => {
    expect(database.driver).toBe(driver.split(' ')[0])
  })

  describe('reads', () => {
    const scalars: readonly (readonly [expression: string, value: Value])[] = [
      ['1::int2', 1],
      ["'-2147483648'::int4", -2147483648],
      ['9007199254740993::int8', 9007199254740993n],
      ["'-9223372036854775808'::int8", -9223372036854775808n],
      ['count(*)', 1n],
      ['1.5::float4', 1.5],
      ['0.1::float8', 0.1],
      ["'Infinity'::float8", Number.POSITIVE_INFINITY],
      ["'NaN'::float8", Number.NaN],
      ['1.50::numeric', '1.50'],
      ['26::oid', 26],
      ['true', true],
      ['false', false],
      ['NULL::int8', null],
      ['NULL::text[]', null],
      [`'{"a":[1,null,{"b":"c"}],"__proto__":1}'::jsonb`, JSON.parse('{"a":[1,null,{"b":"c"}],"__proto__":1}')],
      [`'[1, 2]'::json`, [1, 2]],
      [`'"text"'::jsonb`, 'text'],
      ["'null'::jsonb", null],
      ["'5f0c6f0e-0000-4000-8000-000000000001'::uuid", '5f0c6f0e-0000-4000-8000-000000000001'],
      ["'2026-11-30'::date", '2026-11-30'],
      ["'ab'::char(3)", 'ab '],
      ["'\\x00ff'::bytea", '\\x00ff'],
    ]
    test.each(scalars)('%s', async (expression, value) => {
      expect(await read(expression)).toEqual(value)
    })

    const instants: readonly (readonly [expression: string, value: string])[] = [
      ["'2026-11-30 12:00:00+00'::timestamptz", '2026-11-30T12:00:00.000Z'],
      ["'2026-11-30 12:00:00.123456-08'::timestamptz", '2026-11-30T20:00:00.123Z'],
      ["'2026-11-30 12:00:00.9999+00'::timestamptz", '2026-11-30T12:00:00.999Z'],
      ["'1900-01-01 00:00:00+00'::timestamptz", '1900-01-01T00:00:00.000Z'],
      ["'2026-11-30 12:00:00.5'::timestamp", '2026-11-30T12:00:00.500Z'],
      ["'infinity'::timestamptz", 'infinity'],
    ]
    test.each(instants)('%s, whatever the time zone of the session', async (expression, value) => {
      expect(await read("current_setting('timezone')")).toBe('Asia/Kathmandu')
      expect(await read(expression)).toBe(value)
    })

    const arrays: readonly (readonly [expression: string, value: Value])[] = [
      ["'{}'::text[]", []],
      [`'{a,NULL,"NULL","","b c"}'::text[]`, ['a', null, 'NULL', '', 'b c']],
      ["'[0:1]={a,b}'::text[]", ['a', 'b']],
      ["'{{1,2},{3,NULL}}'::int[]", [[1, 2], [3, null]]], // biome-ignore format: one line per case
      ["'{1,9007199254740993}'::int8[]", [1n, 9007199254740993n]],
      ["'{t,f,NULL}'::bool[]", [true, false, null]],
      [`ARRAY['{"a": "\\"}"}','null']::jsonb[]`, [{ a: '"}' }, null]],
      ["ARRAY['2026-11-30 12:00:00+00']::timestamptz[]", ['2026-11-30T12:00:00.000Z']],
      ["'{5f0c6f0e-0000-4000-8000-000000000001}'::uuid[]", ['5f0c6f0e-0000-4000-8000-000000000001']],
      ["'{1.50}'::numeric[]", ['1.50']],
    ]
    test.each(arrays)('%s', async (expression, value) => {
      expect(await read(expression)).toEqual(value)
    })

    test('a column named __proto__ as a column', async () => {
      const [row] = await database.query(sql('SELECT 1 AS "__proto__", 2 AS b'))
      expect(Object.entries(row ?? {})).toEqual([
        ['__proto__', 1],
        ['b', 2],
      ])
    })

    test('no rows as an empty list, for statements that return none too', async () => {
      expect(await database.query(sql('SELECT 1 AS a WHERE false'))).toEqual([])
      expect(await database.query(sql('UPDATE items SET amount = 0 WHERE false'))).toEqual([])
    })
  })

  describe('binds', () => {
    const round: readonly (readonly [expression: string, value: Value & Statement['params'][number]])[] = [
      ['$1::int', 42],
      ['$1::float8', -0.000001],
      ['$1::bool', true],
      ['$1::text', null],
      ['$1::int[]', [1, null, -3]],
      ['$1::bool[]', [true, null, false]],
      ['$1::text[]', ODD_TEXTS],
      ['$1::text[]', []],
      ['$1::uuid[]', ['5f0c6f0e-0000-4000-8000-000000000001', null]],
    ]
    test.each(round)('%s as %j and reads the same', async (expression, value) => {
      expect(await read(expression, value)).toEqual(value)
    })

    test.each(ODD_TEXTS)('the text %j and reads the same', async (text) => {
      expect(await read('$1::text', text)).toBe(text)
    })

    test('bigints, alone and in arrays', async () => {
      expect(await read('$1::int8', 9007199254740993n)).toBe(9007199254740993n)
      expect(await read('$1::int8[]', [1n, null])).toEqual([1n, null])
    })

    test('JSON text that reads back as an object, not as a string', async () => {
      const document = { text: ODD_TEXTS, nested: { a: 1 } }
      expect(await read('$1::jsonb', JSON.stringify(document))).toEqual(document)
      expect(await read("jsonb_typeof($1::jsonb -> 'nested')", JSON.stringify(document))).toBe('object')
      const documents = [JSON.stringify(document), '"x"', null]
      expect(await read('$1::text[]::jsonb[]', documents)).toEqual([document, 'x', null])
    })

    test('arrays of more than 65,535 elements', async () => {
      const numbers = Array.from({ length: 70_000 }, (_, index) => index)
      const rows = await database.query(
        sql('SELECT n, t FROM unnest($1::int[], $2::text[]) AS u(n, t)', numbers, numbers.map(String)),
      )
      expect(rows).toHaveLength(70_000)
      expect(rows[69_999]).toEqual({ n: 69_999, t: '69999' })
    })

    const refused: readonly (readonly [what: string, statement: Statement, message: RegExp])[] = [
      ['a NUL in a text', sql('SELECT $1::text', 'a\0b'), /\$1 .*NUL/],
      ['a NUL in an array', sql('SELECT $1::int, $2::text[]', 1, ['a\0b']), /\$2 .*NUL/],
      ['a lone surrogate', sql('SELECT $1::text', 'a\ud800'), /\$1 .*lone surrogate/],
      ['an object', sql('SELECT $1::jsonb', { a: 1 } as never), /bind JSON text/],
      ['undefined', sql('SELECT $1::text', undefined as never), /undefined/],
      ['65,536 parameters', sql('SELECT 1', ...new Array<null>(65_536).fill(null)), /65536 parameters/],
    ]
    test.each(refused)('not: %s fails before anything is sent', async (_what, statement, message) => {
      const before = database.requests
      for (const work of [database.query(statement), database.batch([sql('SELECT 1'), statement])]) {
        const error = await failure(work)
        expect(error.fate).toBe('not_sent')
        expect(error.message).toMatch(message)
      }
      expect(database.requests).toBe(before)
    })
  })

  describe('batch', () => {
    test('answers the rows of each statement, in order', async () => {
      const statement = sql('SELECT $1::int AS n', 1)
      const results = await database.batch([statement, sql('SELECT WHERE false'), { ...statement, params: [2] }, statement])
      expect(results).toEqual([[{ n: 1 }], [], [{ n: 2 }], [{ n: 1 }]])
      expect(await database.batch([])).toEqual([])
    })

    test('is one request, as is a query', async () => {
      const before = database.requests
      await database.batch([sql('SELECT 1'), sql('SELECT 2'), sql('SELECT 3')])
      expect(database.requests).toBe(before + 1)
      await database.query(sql('SELECT 1'))
      expect(database.requests).toBe(before + 2)
    })

    test('is READ COMMITTED, whatever the role’s default', async () => {
      expect(await read("current_setting('transaction_isolation')")).toBe('repeatable read')
      const [rows] = await database.batch([sql("SELECT current_setting('transaction_isolation') AS level")])
      expect(rows).toEqual([{ level: 'read committed' }])
    })

    test('rolls back as one, and the connection goes on', async () => {
      const insert = sql('INSERT INTO items (id, amount) VALUES ($1::int, $2::int)', 1, 1)
      const error = await failure(database.batch([insert, { ...insert, params: [2, -1] }, { ...insert, params: [3, 1] }]))
      expect(error).toMatchObject({ fate: 'refused', sqlstate: '23514', constraint: 'items_amount_check' })
      expect(await count('items')).toBe(0n)
      const before = database.requests
      await database.batch([insert, { ...insert, params: [2, 1] }])
      expect(database.requests).toBe(before + 1)
      expect(await count('items')).toBe(2n)
      await database.batch([sql('DELETE FROM items')])
    })

    test('tells a unique violation with its constraint and detail', async () => {
      const error = await failure(database.batch([sql("INSERT INTO items (id, note) VALUES (10, 'a'), (11, 'a')")]))
      expect(error).toMatchObject({ fate: 'refused', sqlstate: '23505', constraint: 'items_note_key' })
      expect(error.detail).toContain('(note)=(a)')
    })

    test('fails when its COMMIT does', async () => {
      const error = await failure(database.batch([sql('INSERT INTO links VALUES (1, 404)')]))
      expect(error).toMatchObject({ fate: 'refused', sqlstate: '23503', constraint: 'links_item_fkey' })
      expect(await count('links')).toBe(0n)
    })

    test.each(['40P01', '40001'])('is sent again after %s', async (sqlstate) => {
      await database.query(sql('ALTER SEQUENCE attempts RESTART'))
      const before = database.requests
      const [rows] = await database.batch([sql('SELECT fail_until(3, $1::text) AS attempt', sqlstate)])
      expect(rows).toEqual([{ attempt: 3n }])
      expect(database.requests).toBe(before + 3)
    })

    test('is sent five times in all', async () => {
      await database.query(sql('ALTER SEQUENCE attempts RESTART'))
      const error = await failure(database.batch([sql("SELECT fail_until(100, '40001')")]))
      expect(error).toMatchObject({ fate: 'refused', sqlstate: '40001' })
      expect(await read("nextval('attempts')")).toBe(6n)
    })

    test('is not sent again after other failures', async () => {
      await database.query(sql('ALTER SEQUENCE attempts RESTART'))
      expect(await failure(database.batch([sql("SELECT fail_until(100, '55P03')")]))).toMatchObject({ sqlstate: '55P03' })
      expect(await read("nextval('attempts')")).toBe(2n)
    })
  })

  describe('query', () => {
    const errors: readonly (readonly [text: string, sqlstate: string])[] = [
      ['SELEC 1', '42601'],
      ['SELECT 1; SELECT 2', '42601'],
      ['SELECT * FROM nowhere', '42P01'],
      ['SELECT 1 / 0', '22012'],
    ]
    test.each(errors)('%s is refused as %s', async (text, sqlstate) => {
      expect(await failure(database.query(sql(text)))).toMatchObject({ fate: 'refused', sqlstate, constraint: undefined })
      expect(await read('1')).toBe(1)
    })

    test('is not sent again by the driver', async () => {
      await database.query(sql('ALTER SEQUENCE attempts RESTART'))
      expect(await failure(database.query(sql("SELECT fail_until(100, '40001')")))).toMatchObject({ sqlstate: '40001' })
      expect(await read("nextval('attempts')")).toBe(2n)
    })

    test('many at once get each their own answer', async () => {
      const answers = await Promise.all(Array.from({ length: 40 }, (_, n) => database.query(sql('SELECT $1::int AS n', n))))
      expect(answers.map(([row]) => row?.n)).toEqual(Array.from({ length: 40 }, (_, n) => n))
    })
  })

  test('refuses requests after close, which may be called twice', async () => {
    const other = await open()
    await other.database.query(sql('SELECT 1'))
    await other.database.close()
    await other.database.close()
    expect(await failure(other.database.query(sql('SELECT 1')))).toMatchObject({ fate: 'not_sent' })
    await other.close()
  })
})

/** Each on an object of its own, because it gives up preparing by name for good. */
describe.each(drivers)('prepared statements of $driver', ({ open }) => {
  let subject: Subject
  let database: Database
  beforeEach(async () => {
    subject = await open()
    database = subject.database
  })
  afterEach(() => subject.close())

  test('sees columns that were added since it read the same statement', async () => {
    const all = sql('SELECT * FROM growing')
    await database.batch([sql('CREATE TABLE growing AS SELECT 1 AS a')])
    expect((await database.batch([all]))[0]).toEqual([{ a: 1 }])
    await database.batch([sql('ALTER TABLE growing ADD COLUMN b int')])
    expect((await database.batch([all]))[0]).toEqual([{ a: 1, b: null }])
    expect((await database.batch([all]))[0]).toEqual([{ a: 1, b: null }])
  })

  test('goes on when the session has lost its prepared statements', async () => {
    const statement = sql('SELECT $1::int AS n', 7)
    await database.batch([statement])
    await database.query(sql('DEALLOCATE ALL'))
    expect((await database.batch([statement]))[0]).toEqual([{ n: 7 }])
    expect(await database.query(statement)).toEqual([{ n: 7 }])
  })
})

/** Fails with the SQLSTATE until its n-th call; a sequence does not roll back. */
const FAIL_UNTIL = `
CREATE FUNCTION fail_until(calls bigint, code text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  call bigint := nextval('attempts');
BEGIN
  IF call < calls THEN
    RAISE EXCEPTION 'call %', call USING ERRCODE = code;
  END IF;
  RETURN call;
END $$`
