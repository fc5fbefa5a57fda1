import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import * as z from 'zod'
import { createCalls } from '../../src/client/calls.ts'
import { DatabaseError } from '../../src/core/database.ts'
import { uuidv7 } from '../../src/core/ids.ts'
import { job } from '../../src/core/job.ts'
import { machine } from '../../src/core/machine.ts'
import { createRegistry } from '../../src/core/registry.ts'
import type { NewRun } from '../../src/core/store.ts'
import { forEachVersion } from '../support/database.ts'
import { type CallsSubject, callsSubject, mail } from './subject.ts'

const TO = { to: 'a@example.org' }

forEachVersion('spawn', (version) => {
  let subject: CallsSubject
  beforeAll(async () => {
    subject = await callsSubject(version)
  })
  afterAll(() => subject.close())

  const countRuns = async (): Promise<number> => {
    const { rows } = await subject.fresh
      .pool({ max: 1 })
      .query('SELECT count(*)::int AS n FROM pawl.runs WHERE environment_id > 0')
    return rows[0].n
  }

  test('C004 a run without a queue is put into the queue of its definition, and one with a queue into that', async () => {
    const { calls } = subject
    const { id } = await calls.spawn({ definition: 'mail', input: TO })
    expect(await calls.getRun(id)).toMatchObject({ queue: 'mails', status: 'pending', version: 1, step: 'run' })
    const other = await calls.spawn({ definition: 'mail', input: TO, queue: 'slow' })
    expect((await calls.getRun(other.id)).queue).toBe('slow')
  })

  test('costs one request', async () => {
    await subject.calls.spawn({ definition: 'mail', input: TO })
    const before = subject.database.requests
    await subject.calls.spawn({ definition: 'mail', input: TO })
    expect(subject.database.requests - before).toBe(1)
  })

  test('stores the input as it was sent, not as the schema gives it', async () => {
    const { id } = await subject.calls.spawn({ definition: 'mail', input: TO })
    expect((await subject.calls.getRun(id)).input).toEqual(TO)
  })

  test('C026 an input that does not match is refused with pointers, and nothing is written', async () => {
    const before = await countRuns()
    const spawning = subject.calls.spawn({ definition: 'mail', input: { to: 'nobody', copies: 'two' } })
    await expect(spawning).rejects.toMatchObject({ code: 'invalid_input', status: 422 })
    const error = await spawning.catch((thrown: { errors: { pointer: string }[] }) => thrown)
    expect((error as { errors: { pointer: string }[] }).errors.map(({ pointer }) => pointer)).toEqual(['/to', '/copies'])
    expect(await countRuns()).toBe(before)
  })

  test('C026 a value that cannot be what a handler reads back is refused at spawn', async () => {
    const dated = job({ name: 'dated', input: z.object({ on: z.date() }), run: () => null })
    const calls = createCalls({ store: subject.store, registry: createRegistry([dated]) })
    await expect(calls.spawn({ definition: 'dated', input: { on: new Date() } })).rejects.toMatchObject({
      code: 'invalid_input',
      errors: [{ pointer: '/on' }],
    })
  })

  test('C026 an input for a job that declares none is refused, and none is none', async () => {
    await expect(subject.calls.spawn({ definition: 'nothing', input: { a: 1 } })).rejects.toMatchObject({ code: 'invalid_input' })
    const { id } = await subject.calls.spawn({ definition: 'nothing' })
    expect((await subject.calls.getRun(id)).input).toBeNull()
  })

  test('an optional input may be left out', async () => {
    const optional = job({ name: 'optional', input: z.object({ a: z.number() }).optional(), run: () => null })
    const calls = createCalls({ store: subject.store, registry: createRegistry([optional]) })
    await expect(calls.spawn({ definition: 'optional' })).resolves.toMatchObject({ created: true })
    await expect(calls.spawn({ definition: 'optional', input: { a: 'x' } })).rejects.toMatchObject({ code: 'invalid_input' })
  })

  test('a machine begins with the state that its definition makes of the input', async () => {
    const { id } = await subject.calls.spawn({ definition: 'order', input: { order: 7, customer: 'ada' } })
    expect(await subject.calls.getRun(id)).toMatchObject({
      step: 'wait',
      key: 'order:7',
      input: { order: 7, customer: 'ada' },
      state: { order: 7, paid: false },
    })
    const { rows } = await subject.fresh.pool({ max: 1 }).query('SELECT gates FROM pawl.runs WHERE id = $1', [id])
    expect(rows[0].gates).toEqual(['key\u001fdefault\u001fada', 'per-customer\u001fada', 'queue:orders\u001f'])
  })

  test('C027 headers given at spawn are kept with the run', async () => {
    const headers = { TraceParent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'x-shop': 'berlin' }
    const { id } = await subject.calls.spawn({ definition: 'mail', input: TO, headers })
    expect((await subject.calls.getRun(id)).headers).toEqual({ traceparent: headers.TraceParent, 'x-shop': 'berlin' })
  })

  test('C029 an unknown definition or version is refused by name', async () => {
    const { calls } = subject
    await expect(calls.spawn({ definition: 'mial', input: TO })).rejects.toMatchObject({
      code: 'unknown_definition',
      status: 422,
    })
    await expect(calls.spawn({ definition: 'mial', input: TO })).rejects.toThrow(/mail, order, survey/)
    await expect(calls.spawn({ definition: 'mail', version: 2, input: TO })).rejects.toThrow(/version.*one of 1/)
    await expect(calls.spawn({ definition: 'mial', queue: 'mails' })).rejects.toMatchObject({ code: 'unknown_definition' })
    await expect(calls.spawn({ definition: 'mial', version: 1 })).rejects.toMatchObject({ code: 'unknown_definition' })
  })

  test('C029 an unknown definition with queue and version is stored for a build that knows it', async () => {
    const { id } = await subject.calls.spawn({ definition: 'later', version: 3, queue: 'orders', input: { a: 1 } })
    expect(await subject.calls.getRun(id)).toMatchObject({ definition: 'later', version: 3, queue: 'orders', status: 'pending' })
  })

  test('C030 attempts: of the call, else of the definition, else of the client, else 10', async () => {
    const attemptsOf = async (options: { definition: string; input: unknown; maxAttempts?: number }, clientDefault?: number) => {
      const calls = subject.callsWith({ defaults: { maxAttempts: clientDefault } })
      const { id } = await calls.spawn(options)
      return (await calls.getRun(id)).maxAttempts
    }
    const input = (order: number) => ({ order, customer: 'bob' })
    expect(await attemptsOf({ definition: 'order', input: input(1), maxAttempts: 2 }, 7)).toBe(2)
    expect(await attemptsOf({ definition: 'order', input: input(2) }, 7)).toBe(3)
    expect(await attemptsOf({ definition: 'mail', input: TO, maxAttempts: 2 }, 7)).toBe(2)
    expect(await attemptsOf({ definition: 'mail', input: TO }, 7)).toBe(7)
    expect(await attemptsOf({ definition: 'mail', input: TO })).toBe(10)
  })

  test('C031 a list by tag gives the runs that have it, of the definition and of the call', async () => {
    const { calls, store } = subject
    const tagged = await calls.spawn({ definition: 'mail', input: TO, tags: ['spring', 'sale', 'spring'] })
    const other = await calls.spawn({ definition: 'nothing', tags: ['sale'] })
    await calls.spawn({ definition: 'mail', input: TO })
    expect((await calls.getRun(tagged.id)).tags).toEqual(['mail', 'spring', 'sale'])
    const query = {
      tenant: 'default',
      status: null,
      definition: null,
      queue: null,
      key: null,
      parent: null,
      since: null,
      until: null,
    }
    const { items } = await store.listRuns({ ...query, tag: 'sale', limit: 50, cursor: null })
    expect(items.map(({ id }) => id).sort()).toEqual([tagged.id, other.id].sort())
    expect((await store.listRuns({ ...query, tag: 'winter', limit: 50, cursor: null })).items).toEqual([])
  })

  test('a key that is held answers the run that holds it, and writes nothing', async () => {
    const first = await subject.calls.spawn({ definition: 'mail', input: TO, key: 'welcome:1' })
    const before = await countRuns()
    const second = await subject.calls.spawn({ definition: 'mail', input: TO, key: 'welcome:1' })
    expect(second).toEqual({ id: first.id, status: 'pending', created: false, replayed: false })
    expect(await countRuns()).toBe(before)
  })

  test('an id of the caller is spawned once, and taken for another tenant', async () => {
    const id = uuidv7()
    expect(await subject.calls.spawn({ definition: 'mail', input: TO, id })).toMatchObject({ id, created: true })
    expect(await subject.calls.spawn({ definition: 'mail', input: TO, id })).toMatchObject({ id, created: false })
    const asOther = subject.calls.spawn({ definition: 'mail', input: TO, id }, { tenant: 'acme' })
    await expect(asOther).rejects.toMatchObject({ code: 'conflict' })
    await expect(subject.calls.spawn({ definition: 'mail', input: TO, id: 'mine' })).rejects.toMatchObject({
      code: 'invalid_request',
      field: 'id',
    })
  })

  test('C014 the same request under one idempotency key is answered as it was, whatever traces it bears', async () => {
    const call = { definition: 'mail', input: TO, idempotencyKey: 'once' }
    const first = await subject.calls.spawn({ ...call, headers: { traceparent: 'a' } })
    const again = await subject.calls.spawn({ ...call, headers: { traceparent: 'b' } })
    expect(again).toEqual({ ...first, replayed: true })
    await expect(subject.calls.spawn({ ...call, input: { to: 'b@example.org' } })).rejects.toMatchObject({
      code: 'idempotency_mismatch',
      status: 422,
    })
  })

  test.each([
    [{ delay: '1 fortnight' }, 'delay'],
    [{ delay: '1s', at: '2030-01-01T00:00:00Z' }, 'delay'],
    [{ at: 'soon' }, 'at'],
    [{ priority: 1.5 }, 'priority'],
    [{ maxAttempts: 0 }, 'maxAttempts'],
    [{ tags: [''] }, 'tags[0]'],
    [{ headers: { 'bad name': 'x' } }, 'headers'],
    [{ key: 'a\u0000b' }, 'key'],
    [{ queue: '' }, 'queue'],
    [{ version: 0 }, 'version'],
    [{ idempotencyKey: '' }, 'idempotencyKey'],
  ])('refuses %j by the name of the field', async (options, field) => {
    const spawning = subject.calls.spawn({ definition: 'mail', input: TO, ...options })
    await expect(spawning).rejects.toMatchObject({ code: 'invalid_request', field })
  })

  test('a function of the definition that throws is a mistake of the definition, not of the caller', async () => {
    const broken = job({
      name: 'broken',
      input: z.object({}),
      key: () => {
        throw new Error('no such thing')
      },
      run: () => null,
    })
    const calls = createCalls({ store: subject.store, registry: createRegistry([broken]) })
    await expect(calls.spawn({ definition: 'broken', input: {} })).rejects.toMatchObject({ code: 'invalid_configuration' })
  })

  test('a first state that does not match is refused as such', async () => {
    const odd = machine({
      name: 'odd',
      input: z.object({ n: z.number() }),
      state: z.object({ n: z.number().max(5) }),
      initialState: ({ n }) => ({ n }),
      initial: 'a',
      steps: { a: ({ done }) => done(undefined) },
    })
    const calls = createCalls({ store: subject.store, registry: createRegistry([odd]) })
    await expect(calls.spawn({ definition: 'odd', input: { n: 9 } })).rejects.toMatchObject({ code: 'invalid_state' })
  })

  test('tells when a commit may have made something due, and only then', async () => {
    let commits = 0
    const calls = subject.callsWith({ onCommit: () => (commits += 1) })
    await calls.spawn({ definition: 'mail', input: TO, key: 'commit', idempotencyKey: 'commit' })
    expect(commits).toBe(1)
    await calls.spawn({ definition: 'mail', input: TO, key: 'commit', idempotencyKey: 'commit' })
    await calls.spawn({ definition: 'mail', input: TO, key: 'commit' })
    await calls.spawn({ definition: 'mail', input: {} }).catch(() => {})
    expect(commits).toBe(1)
  })
})

forEachVersion('spawning many at once', (version) => {
  let subject: CallsSubject
  beforeAll(async () => {
    subject = await callsSubject(version)
    await subject.calls.spawn({ definition: 'mail', input: TO })
  })
  afterAll(() => subject.close())

  test('C011 500 concurrent spawns are committed in a few batches, each answered after its commit', async () => {
    const before = subject.database.requests
    const pool = subject.fresh.pool({ max: 2 })
    const results = await Promise.all(
      Array.from({ length: 500 }, async (_, index) => {
        const result = await subject.calls.spawn({ definition: 'mail', input: TO, tags: [`n${index}`] })
        // read on a connection of its own: what is answered must be committed
        const { rows } = await pool.query('SELECT tags FROM pawl.runs WHERE id = $1', [result.id])
        expect(rows[0].tags).toEqual(['mail', `n${index}`])
        return result
      }),
    )
    expect(new Set(results.map(({ id }) => id)).size).toBe(500)
    expect(subject.database.requests - before).toBeLessThanOrEqual(5)
  })

  test('C011 the same with idempotency keys, which take longer to prepare', async () => {
    const before = subject.database.requests
    const spawnAll = () =>
      Promise.all(
        Array.from({ length: 500 }, (_, n) => subject.calls.spawn({ definition: 'mail', input: TO, idempotencyKey: `k${n}` })),
      )
    const first = await spawnAll()
    expect(subject.database.requests - before).toBeLessThanOrEqual(25)
    const again = await spawnAll()
    expect(again).toEqual(first.map((result) => ({ ...result, replayed: true })))
  })

  test('C011 one that is refused leaves its neighbours alone', async () => {
    const settled = await Promise.allSettled([
      subject.calls.spawn({ definition: 'mail', input: TO }),
      subject.calls.spawn({ definition: 'mail', input: {} }),
      subject.calls.spawn({ definition: 'mail', input: TO }),
    ])
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  })

  test('spawnMany answers per item, in order, in one request', async () => {
    const before = subject.database.requests
    const items = await subject.calls.spawnMany([
      { definition: 'mail', input: TO, key: 'k' },
      { definition: 'nope', input: TO },
      { definition: 'mail', input: TO, key: 'k' },
      { definition: 'mail', input: { to: 1 } },
      { definition: 'mail', input: TO },
    ])
    expect(subject.database.requests - before).toBe(1)
    const codes = items.map((item) => (item.ok ? item.value.created : item.error.code))
    expect(codes).toEqual([true, 'unknown_definition', false, 'invalid_input', true])
    const [first, , third] = items
    expect(third?.ok && first?.ok && third.value.id === first.value.id).toBe(true)
  })

  test('spawnMany takes 10,000 and no more', async () => {
    const before = subject.database.requests
    const calls = Array.from({ length: 10_000 }, (_, index) => ({ definition: 'mail', input: TO, tags: [`b${index}`] }))
    const items = await subject.calls.spawnMany(calls)
    expect(items.every((item) => item.ok && item.value.created)).toBe(true)
    expect(subject.database.requests - before).toBe(10)
    const tooMany = subject.calls.spawnMany([...calls, { definition: 'mail', input: TO }])
    await expect(tooMany).rejects.toMatchObject({ code: 'too_many_items', status: 413 })
  })
})

describe('a spawn whose database fails', () => {
  const registry = createRegistry([mail])
  const failing = (error: unknown) => {
    const store = { ...unreachableStore, spawn: () => Promise.reject(error) }
    return createCalls({ store: store as never, registry })
  }

  test('says when the reply was lost, with the id to look for', async () => {
    const calls = failing(new DatabaseError('reset', { fate: 'lost' }))
    const lost = await calls.spawn({ definition: 'mail', input: TO, id: ID }).catch((error: unknown) => error)
    expect(lost).toMatchObject({ code: 'unknown_outcome', status: 503, kind: 'unknown' })
    expect(String(lost)).toContain(ID)
    await expect(calls.spawn({ definition: 'mail', input: TO })).rejects.toThrow(/Look for the run [0-9a-f-]{36}/)
  })

  test.each([
    ['not_sent', undefined, 'database_unreachable', true],
    ['not_sent', '57P03', 'database_busy', true],
    ['not_sent', '53300', 'database_busy', true],
    ['refused', '57014', 'database_busy', true],
    ['refused', '42P01', 'schema_outdated', false],
    ['refused', '3F000', 'schema_outdated', false],
    ['refused', '28P01', 'not_configured', false],
    ['refused', '42601', 'internal', false],
  ] as const)('%s %s is %s', async (fate, sqlstate, code, again) => {
    const calls = failing(new DatabaseError('no', { fate, sqlstate }))
    const error = await calls.spawn({ definition: 'mail', input: TO }).catch((thrown: { retryAfterMs?: number }) => thrown)
    expect(error).toMatchObject({ code })
    expect((error as { retryAfterMs?: number }).retryAfterMs !== undefined).toBe(again)
  })

  test('a run that the server refuses does not take its neighbours along', async () => {
    const spawned: string[] = []
    const store = {
      ...unreachableStore,
      spawn: (runs: readonly NewRun[]) => {
        if (runs.some((run) => run.key === 'poison'))
          return Promise.reject(new DatabaseError('bad', { fate: 'refused', sqlstate: '22P05' }))
        spawned.push(...runs.map(({ id }) => id))
        return Promise.resolve(runs.map(({ id }) => ({ kind: 'created', id, status: 'pending' }) as const))
      },
    }
    const calls = createCalls({ store: store as never, registry })
    const keys = ['a', 'b', 'poison', 'c', 'd']
    const settled = await Promise.allSettled(keys.map((key) => calls.spawn({ definition: 'mail', input: TO, key })))
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
    expect(spawned).toHaveLength(4)
    const items = await calls.spawnMany(keys.map((key) => ({ definition: 'mail', input: TO, key })))
    expect(items.map(({ ok }) => ok)).toEqual([true, true, false, true, true])
  })

  test('spawnMany says what was accepted before the database went away', async () => {
    let sent = 0
    const store = {
      ...unreachableStore,
      spawn: (runs: readonly NewRun[]) => {
        sent += 1
        if (sent === 2) return Promise.reject(new DatabaseError('reset', { fate: 'lost' }))
        return Promise.resolve(runs.map(({ id }) => ({ kind: 'created', id, status: 'pending' }) as const))
      },
    }
    const calls = createCalls({ store: store as never, registry })
    const items = await calls.spawnMany(Array.from({ length: 2_500 }, () => ({ definition: 'mail', input: TO })))
    const outcomes = items.map((item) => (item.ok ? 'created' : item.error.code))
    expect(outcomes[999]).toBe('created')
    expect(outcomes[1_000]).toBe('unknown_outcome')
    expect(outcomes[2_499]).toBe('database_unreachable')
    expect(sent).toBe(2)
    await expect(
      failing(new DatabaseError('x', { fate: 'not_sent' })).spawnMany([{ definition: 'mail', input: TO }]),
    ).rejects.toMatchObject({
      code: 'database_unreachable',
    })
  })
})

const ID = uuidv7()

const unreachableStore = {
  spawn: () => Promise.reject(new Error('unused')),
  signal: () => Promise.reject(new Error('unused')),
  emit: () => Promise.reject(new Error('unused')),
  cancel: () => Promise.reject(new Error('unused')),
  retry: () => Promise.reject(new Error('unused')),
  resolve: () => Promise.reject(new Error('unused')),
  getRun: () => Promise.reject(new Error('unused')),
}
