import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import type { StepContextRuntime } from '../../src/core/context.ts'
import { createInbox } from '../../src/core/context.ts'
import { type Definition, isDefinition, runtimeOf } from '../../src/core/definition.ts'
import type { PawlError } from '../../src/core/errors.ts'
import { job } from '../../src/core/job.ts'
import { limit } from '../../src/core/limit.ts'
import { machine } from '../../src/core/machine.ts'
import { createRegistry } from '../../src/core/registry.ts'
import { cron, webhook } from '../../src/core/trigger.ts'

function refusal(run: () => unknown): PawlError {
  try {
    run()
  } catch (error) {
    return error as PawlError
  }
  return expect.unreachable('nothing was refused')
}

const simple = (options: Readonly<Record<string, unknown>>) => job({ ...{ name: 'simple', run: () => 1 }, ...options })

describe('job', () => {
  test('fills in the documented defaults', () => {
    const runtime = runtimeOf(job({ name: 'plain', run: () => 1 }))
    expect(runtime).toMatchObject({
      kind: 'job',
      name: 'plain',
      version: 1,
      queue: 'default',
      initial: 'run',
      priority: 0,
      timeoutMs: 15_000,
      leaseMs: 30_000,
      maxSnoozes: 1_000,
      declaredRetention: { completed: undefined, failed: undefined },
      tags: [],
      limits: [],
      triggers: [],
    })
    expect(runtime.retry.maxAttempts).toBe(10)
    expect(Object.keys(runtime.steps)).toEqual(['run'])
    expect(runtime.steps.constructor).toBeUndefined()
  })

  test('keeps what it is given, in milliseconds', () => {
    const perUser = limit('per-user', { concurrency: 2, rate: { count: 10, per: '1m' } })
    const runtime = runtimeOf(
      job({
        name: 'full',
        version: 3,
        queue: 'mail',
        input: z.object({ user: z.string() }),
        timeout: '1m',
        lease: '5m',
        priority: -5,
        tags: ['a', 'a', 'b'],
        retention: '1 day',
        maxSnoozes: 3,
        retry: { maxAttempts: 2 },
        key: (input) => `user:${input.user}`,
        concurrencyKey: (input) => input.user,
        limits: [perUser.by((input: { user: string }) => input.user, { weight: 2 })],
        run: ({ input }) => input.user,
      }),
    )
    expect(runtime).toMatchObject({
      version: 3,
      queue: 'mail',
      timeoutMs: 60_000,
      leaseMs: 300_000,
      priority: -5,
      tags: ['a', 'b'],
    })
    expect(runtime.declaredRetention).toEqual({ completed: 86_400_000, failed: 86_400_000 })
    expect(runtime.key?.({ user: 'x' })).toBe('user:x')
    expect(runtime.concurrencyKey?.({ user: 'x' })).toBe('x')
    expect(runtime.limits[0]).toMatchObject({
      name: 'per-user',
      weight: 2,
      policy: { concurrency: 2, rate: { count: 10, perMs: 60_000, burst: 10 } },
    })
    expect(runtime.limits[0]?.partition({ user: 'x' })).toBe('x')
    expect(runtime.retry.maxAttempts).toBe(2)
  })

  test.each([
    ['an empty name', { name: '' }, 'job.name'],
    ['a name of 201', { name: 'x'.repeat(201) }, 'job.name'],
    ['a name with NUL', { name: 'a\0b' }, 'job.name'],
    ['a name with a line break', { name: 'a\nb' }, 'job.name'],
    ['a name with a lone surrogate', { name: 'a\ud800' }, 'job.name'],
    ['a name with spaces around', { name: ' a' }, 'job.name'],
    ['__proto__ as a name', { name: '__proto__' }, 'job.name'],
    ['a number as a name', { name: 5 }, 'job.name'],
    ['version 0', { version: 0 }, 'job "simple".version'],
    ['a queue with NUL', { queue: '\0' }, 'job "simple".queue'],
    ['a timeout of nothing', { timeout: 0 }, 'job "simple".timeout'],
    ['a timeout of two days', { timeout: '2 days' }, 'job "simple".timeout'],
    ['a lease of a millisecond', { lease: 1 }, 'job "simple".lease'],
    ['a priority that is not whole', { priority: 0.5 }, 'job "simple".priority'],
    ['a priority out of range', { priority: 32_768 }, 'job "simple".priority'],
    ['33 tags', { tags: Array.from({ length: 33 }, (_, index) => `t${index}`) }, 'job "simple".tags'],
    ['a tag of 129', { tags: ['x'.repeat(129)] }, 'job "simple".tags[0]'],
    ['a key that is no function', { key: 'order:42' }, 'job "simple".key'],
    ['limits that are no limits', { limits: ['per-user'] }, 'job "simple".limits'],
    ['triggers that are no triggers', { triggers: ['0 0 * * *'] }, 'job "simple".triggers'],
    ['a retention before now', { retention: { completed: -1 } }, 'job "simple".retention.completed'],
    ['negative snoozes', { maxSnoozes: -1 }, 'job "simple".maxSnoozes'],
    ['a handler that is none', { run: 'later' }, 'job "simple".run'],
    ['an input that is no schema', { input: {} }, 'job "simple".input'],
  ])('refuses %s, naming field, got and allowed', (_, options, field) => {
    const error = refusal(() => simple(options))
    expect(error.code).toBe('invalid_configuration')
    expect(error.field).toBe(field)
    expect(error.got).toBeTruthy()
    expect(error.allowed).toBeTruthy()
  })

  test('refuses a schedule whose input does not match, when it is defined', () => {
    const error = refusal(() =>
      job({
        name: 'nightly',
        input: z.object({ day: z.string().min(3) }),
        triggers: [cron('0 0 * * *', { input: { day: 'x' } })],
        run: () => null,
      }),
    )
    expect(error.code).toBe('invalid_configuration')
    expect(error.message).toContain('0 0 * * *')
  })

  test('one limit is listed once', () => {
    const cap = limit('cap', { concurrency: 1 })
    expect(refusal(() => job({ name: 'x', limits: [cap, cap], run: () => 1 })).field).toBe('job "x".limits')
  })
})

describe('with', () => {
  const send = job({ name: 'send', version: 4, input: z.object({ to: z.string() }), run: () => null })

  test('makes a call of this very version', () => {
    expect(send.with({ to: 'a' })).toMatchObject({ definition: 'send', version: 4, input: { to: 'a' }, key: undefined })
    expect(send.with({ to: 'a' }, { key: 'k', queue: 'q', delay: '2s', priority: 3, maxAttempts: 2, tags: ['t'] })).toMatchObject(
      {
        key: 'k',
        queue: 'q',
        delayMs: 2_000,
        priority: 3,
        maxAttempts: 2,
        tags: ['t'],
      },
    )
    expect(send.with({ to: 'a' }, { at: new Date(0) }).at).toBe('1970-01-01T00:00:00.000Z')
    expect(send.with({ to: 'a' }, { headers: { 'Trace-Parent': 'x' } }).headers).toEqual({ 'trace-parent': 'x' })
  })

  test.each([
    [{ key: '' }, 'key'],
    [{ key: 'x'.repeat(513) }, 'key'],
    [{ key: 'a\0' }, 'key'],
    [{ queue: ' ' }, 'queue'],
    [{ delay: 'soon' }, 'delay'],
    [{ delay: '1s', at: new Date() }, 'delay'],
    [{ at: 'yesterday' }, 'at'],
    [{ priority: 1e9 }, 'priority'],
    [{ maxAttempts: 0 }, 'maxAttempts'],
    [{ tags: 'x' }, 'tags'],
    [{ headers: { 'a b': 'x' } }, 'headers'],
    [{ headers: { a: 'x\r\ny' } }, 'headers.a'],
    [{ headers: Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`h${index}`, ''])) }, 'headers'],
  ])('refuses %j', (options, field) => {
    const error = refusal(() => send.with({ to: 'a' }, options as never))
    expect([error.code, error.field]).toEqual(['invalid_request', field])
  })
})

describe('machine', () => {
  const order = machine({
    name: 'order',
    version: 2,
    initial: 'start',
    state: z.object({ id: z.number() }),
    signals: { paid: z.object({ cents: z.number() }) },
    output: z.number(),
    upgrade: { 1: (old) => ({ id: Number(old) }) },
    steps: {
      start: ({ waitFor }) => waitFor('paid', { goto: 'end', timeout: '1h' }),
      end: ({ state, done }) => done(state.id),
    },
  })

  test('keeps steps and signals without a prototype, and takes the state as its input', () => {
    const runtime = runtimeOf(order)
    expect(order.steps).toEqual(['start', 'end'])
    expect(runtime.initial).toBe('start')
    expect(runtime.input).toBe(runtime.state)
    expect(runtime.steps.toString).toBeUndefined()
    expect(runtime.signals.constructor).toBeUndefined()
    expect(runtime.upgrade[1]?.('7')).toEqual({ id: 7 })
    expect(runtime.self).toBe(order)
    expect(Object.isFrozen(order) && Object.isFrozen(runtime)).toBe(true)
  })

  test('its steps run on the erased context', () => {
    const runtime = runtimeOf(order)
    const context = { ...runtime.outcomes, state: { id: 42 }, signals: createInbox([]) } as unknown as StepContextRuntime
    expect(runtime.steps.start?.(context)).toMatchObject({ kind: 'wait', names: ['paid'], step: 'end', timeoutMs: 3_600_000 })
    expect(runtime.steps.end?.(context)).toMatchObject({ kind: 'done', result: 42 })
  })

  test.each([
    ['no steps', { steps: {} }, 'machine "bad".steps'],
    ['an initial step that is not there', { initial: 'toString' }, 'machine "bad".initial'],
    ['a step that is no function', { steps: { a: 1 } }, 'machine "bad".steps.a'],
    ['a step name with NUL', { steps: { 'a\0': () => null } }, 'machine "bad".steps'],
    ['no state', { state: undefined }, 'machine "bad".state'],
    ['a signal without a schema', { signals: { paid: true } }, 'machine "bad".signals.paid'],
    ['an upgrade from itself', { version: 2, upgrade: { 2: () => null } }, 'machine "bad".upgrade'],
    ['an upgrade from a name', { version: 2, upgrade: { one: () => null } }, 'machine "bad".upgrade'],
  ])('refuses %s', (_, options, field) => {
    const bad = { name: 'bad', initial: 'a', state: z.object({}), steps: { a: () => null }, ...options }
    const error = refusal(() => machine(bad as never))
    expect([error.code, error.field]).toEqual(['invalid_configuration', field])
  })
})

describe('registry', () => {
  const version = (number: number, queue = 'default') => job({ name: 'mail', version: number, queue, run: () => number })
  const [v1, v2, v10] = [version(1), version(2, 'slow'), version(10)]

  test('holds versions side by side and spawns the latest by default', () => {
    const registry = createRegistry([v10, v1, v2])
    expect(registry.versions('mail')).toEqual([1, 2, 10])
    expect(registry.latest('mail')?.version).toBe(10)
    expect(registry.find('mail')?.version).toBe(10)
    expect(registry.find('mail', 2)?.queue).toBe('slow')
    expect(registry.find('mail', 3)).toBeUndefined()
    expect(registry.find('toString')).toBeUndefined()
    expect(registry.versions('nope')).toEqual([])
    expect(registry.names).toEqual(['mail'])
    expect([...registry.queues.keys()].sort()).toEqual(['default', 'slow'])
  })

  test('refuses the same name and version twice', () => {
    expect(refusal(() => createRegistry([v1, v2, version(1)])).message).toBe('The definition "mail" version 1 is declared twice.')
  })

  test('refuses one limit with two policies, and takes equal ones', () => {
    const using = (name: string, concurrency: number) => job({ name, limits: [limit('cap', { concurrency })], run: () => 1 })
    expect(createRegistry([using('a', 1), using('b', 1)]).limits.get('cap')).toEqual({
      concurrency: 1,
      rate: undefined,
      shards: 1,
    })
    expect(refusal(() => createRegistry([using('a', 1), using('b', 2)])).message).toContain('"cap"')
  })

  test('refuses one schedule or hook name twice, and takes triggers of the latest version only', () => {
    const hook = (name: string) => webhook({ name, secret: () => 's', spawn: () => null })
    const old = job({ name: 'a', version: 1, triggers: [cron('0 0 * * *'), hook('h')], run: () => 1 })
    const current = job({ name: 'a', version: 2, triggers: [cron('0 1 * * *'), hook('h')], run: () => 1 })
    const registry = createRegistry([old, current])
    expect(registry.schedules.get('a')?.trigger.expression).toBe('0 1 * * *')
    expect(registry.webhooks.get('h')?.definition.version).toBe(2)
    expect(refusal(() => createRegistry([old, job({ name: 'b', triggers: [hook('h')], run: () => 1 })])).message).toContain(
      'webhook "h"',
    )
    const twice = job({ name: 'c', triggers: [cron('0 0 * * *'), cron('0 1 * * *')], run: () => 1 })
    expect(refusal(() => createRegistry([twice])).message).toContain('schedule "c"')
  })

  test('C030 what a definition leaves out of its retry comes from the defaults given', () => {
    const own = job({ name: 'own', retry: { maxAttempts: 2 }, run: () => 1 })
    const registry = createRegistry([own, v1], {}, { retry: { maxAttempts: 7, backoff: { kind: 'fixed', base: '1s' } } })
    expect(registry.find('own')?.retry).toEqual({ maxAttempts: 2, backoff: { kind: 'fixed', baseMs: 1_000, jitter: 0 } })
    expect(registry.find('mail')?.retry.maxAttempts).toBe(7)
  })

  test.each([[{}], [null], ['mail'], [{ name: 'mail', version: 1 }]])('refuses %j as a definition', (value) => {
    expect(isDefinition(value)).toBe(false)
    expect(refusal(() => createRegistry([value as unknown as Definition<unknown, unknown>])).field).toBe('definitions[0]')
  })

  test('refuses a queue with a bad name or cap', () => {
    expect(refusal(() => createRegistry([], { 'a\0': {} })).field).toBe('queues')
    expect(refusal(() => createRegistry([], { orders: { concurrency: 0 } })).field).toBe('queues.orders.concurrency')
    expect(createRegistry([], { orders: { concurrency: 20 } }).queues.get('orders')).toEqual({ concurrency: 20 })
  })
})

describe('limit', () => {
  test.each([
    [{}, 'limit "x"'],
    [{ concurrency: 0 }, 'limit "x".concurrency'],
    [{ rate: { count: 0, per: '1s' } }, 'limit "x".rate.count'],
    [{ rate: { count: 1, per: 0 } }, 'limit "x".rate.per'],
    [{ rate: { count: 1, per: '1s', burst: 0 } }, 'limit "x".rate.burst'],
  ])('refuses %j', (options, field) => {
    expect(refusal(() => limit('x', options as never)).field).toBe(field)
  })

  test('C166 a weight that the limit can never give is refused', () => {
    const rated = limit('x', { concurrency: 10, rate: { count: 5, per: '1s', burst: 8 } })
    expect(rated.weighing(8).weight).toBe(8)
    expect(refusal(() => rated.weighing(9)).allowed).toBe('a whole number from 1 to 8')
    expect(refusal(() => rated.by(() => 'p', { weight: 11 })).field).toBe('limit "x".weight')
  })

  test('a limit without a partition is one for all', () => {
    expect(limit('x', { concurrency: 1 }).partition({ user: 'a' })).toBeUndefined()
  })
})
