import { createHmac } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import * as z from 'zod'
import { nextSlot } from '../../src/core/cron.ts'
import { signDelivery, verifyDelivery } from '../../src/core/delivery.ts'
import type { PawlError } from '../../src/core/errors.ts'
import { cron, type WebhookTrigger, webhook } from '../../src/core/trigger.ts'

function slots(expression: string, timeZone: string, after: string, count: number): (string | undefined)[] {
  let at: Date | undefined = new Date(after)
  const found: (string | undefined)[] = []
  for (let index = 0; index < count && at; index += 1) {
    at = nextSlot(expression, timeZone, at)
    found.push(at?.toISOString())
  }
  return found
}

describe('cron', () => {
  test('a slot is strictly after the instant given', () => {
    expect(slots('*/15 * * * *', 'UTC', '2026-01-01T00:00:00.000Z', 2)).toEqual([
      '2026-01-01T00:15:00.000Z',
      '2026-01-01T00:30:00.000Z',
    ])
    expect(slots('0 0 * * *', 'UTC', '2025-12-31T23:59:59.999Z', 1)).toEqual(['2026-01-01T00:00:00.000Z'])
  })

  test('C202 02:30 on the day the clocks go forward fires once, at the first instant after the gap', () => {
    expect(slots('30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', 2)).toEqual([
      '2026-03-29T01:00:00.000Z',
      '2026-03-30T00:30:00.000Z',
    ])
    expect(slots('0,30 2 * * *', 'Europe/Berlin', '2026-03-28T12:00:00Z', 2)).toEqual([
      '2026-03-29T01:00:00.000Z',
      '2026-03-30T00:00:00.000Z',
    ])
  })

  test('C202 02:30 on the day the clocks go back fires once, at the first of the two instants', () => {
    expect(slots('30 2 * * *', 'Europe/Berlin', '2026-10-24T12:00:00Z', 2)).toEqual([
      '2026-10-25T00:30:00.000Z',
      '2026-10-26T01:30:00.000Z',
    ])
    expect(slots('30 1 * * *', 'America/New_York', '2026-10-31T12:00:00Z', 2)).toEqual([
      '2026-11-01T05:30:00.000Z',
      '2026-11-02T06:30:00.000Z',
    ])
  })

  test('C202 an expression by the hour or minute follows real time through both changes', () => {
    expect(slots('0 * * * *', 'Europe/Berlin', '2026-10-24T23:30:00Z', 4)).toEqual([
      '2026-10-25T00:00:00.000Z',
      '2026-10-25T01:00:00.000Z',
      '2026-10-25T02:00:00.000Z',
      '2026-10-25T03:00:00.000Z',
    ])
    expect(slots('*/30 * * * *', 'Europe/Berlin', '2026-03-29T00:20:00Z', 3)).toEqual([
      '2026-03-29T00:30:00.000Z',
      '2026-03-29T01:00:00.000Z',
      '2026-03-29T01:30:00.000Z',
    ])
  })

  test('C202 no slot of a year repeats or goes back, in zones that change their clocks', () => {
    for (const zone of ['Europe/Berlin', 'America/New_York', 'America/Santiago', 'Australia/Lord_Howe', 'UTC']) {
      const found = slots('30 2 * * *', zone, '2026-01-01T00:00:00Z', 365)
      expect(new Set(found).size).toBe(365)
      expect([...found].sort()).toEqual(found)
      const days = found.map((slot) => new Intl.DateTimeFormat('sv', { timeZone: zone }).format(new Date(slot as string)))
      expect(new Set(days).size).toBe(365)
    }
  })

  test.each([
    ['61 * * * *', 'UTC'],
    ['* * * *', 'UTC'],
    ['0 0 * * * *', 'UTC'],
    ['every day', 'UTC'],
    ['', 'UTC'],
    ['*/0 * * * *', 'UTC'],
    ['0 0 30 2 *', 'UTC'],
    ['0 0 * * *', 'Mars/Olympus'],
    ['0 0 * * *', ''],
  ])('C201 %j in %j is refused when it is written', (expression, timeZone) => {
    try {
      cron(expression, { timeZone })
      expect.unreachable()
    } catch (error) {
      expect((error as PawlError).code).toBe('invalid_configuration')
      expect((error as PawlError).field).toBeTruthy()
      expect((error as PawlError).allowed).toBeTruthy()
    }
  })

  test('29 February waits for its year', () => {
    expect(slots('0 12 29 2 *', 'UTC', '2026-03-01T00:00:00Z', 1)).toEqual(['2028-02-29T12:00:00.000Z'])
  })
})

const now = new Date('2026-11-30T12:00:00.000Z')
const secret = `whsec_${Buffer.from('a secret of 24 bytes, or so').toString('base64')}`
const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>
const payload = bytes('{"order":42,"paid":true}')
const standard = webhook({ name: 'orders', secret: () => secret, spawn: ({ body }) => body })
const github = webhook({ name: 'repo', secret: () => 'text secret', scheme: 'github', spawn: ({ body }) => body })

interface Attempt {
  headers: Record<string, string>
  rawBody?: Uint8Array<ArrayBuffer>
  trigger?: WebhookTrigger<unknown>
  secrets?: readonly string[]
  at?: Date
}

function verify({ headers, rawBody = payload, trigger = standard, secrets = [secret], at = now }: Attempt) {
  return verifyDelivery({ headers: new Headers(headers), rawBody, trigger, secrets, now: at })
}

async function refusedWith(code: string, attempt: Promise<unknown>): Promise<void> {
  const error = await attempt.then(
    () => undefined,
    (thrown: PawlError) => thrown,
  )
  expect(error?.code).toBe(code)
}

describe('webhook signatures', () => {
  test('C206 the example of the Standard Webhooks specification verifies', async () => {
    const delivery = await verify({
      headers: {
        'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
        'webhook-timestamp': '1614265330',
        'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
      },
      rawBody: bytes('{"test": 2432232314}'),
      secrets: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
      at: new Date(1_614_265_330_000),
    })
    expect(delivery).toMatchObject({ deliveryId: 'msg_p5jXN8AQM9LWM0D4loKWxJek', body: { test: 2_432_232_314 } })
  })

  test('C206 what signDelivery signs verifies, and only with the same body, id, time and secret', async () => {
    const headers = await signDelivery({ deliveryId: 'd1', rawBody: payload, secret, now })
    expect(await verify({ headers })).toMatchObject({ deliveryId: 'd1', body: { order: 42, paid: true } })
    await refusedWith('bad_signature', verify({ headers, rawBody: bytes('{"order":43,"paid":true}') }))
    await refusedWith('bad_signature', verify({ headers: { ...headers, 'webhook-id': 'd2' } }))
    await refusedWith(
      'bad_signature',
      verify({ headers: { ...headers, 'webhook-timestamp': String(now.getTime() / 1_000 + 1) } }),
    )
    await refusedWith('bad_signature', verify({ headers, secrets: ['another'] }))
  })

  test('C206 a delivery older or newer than five minutes is refused', async () => {
    const headers = await signDelivery({ deliveryId: 'd1', rawBody: payload, secret, now })
    expect(await verify({ headers, at: new Date(now.getTime() + 300_000) })).toBeTruthy()
    await refusedWith('bad_signature', verify({ headers, at: new Date(now.getTime() + 301_000) }))
    await refusedWith('bad_signature', verify({ headers, at: new Date(now.getTime() - 301_000) }))
  })

  test('C208 while a secret is rotated the old and the new one verify', async () => {
    const headers = await signDelivery({ deliveryId: 'd1', rawBody: payload, secret: 'old', now })
    expect(await verify({ headers, secrets: ['new', 'old'] })).toBeTruthy()
    const other = await signDelivery({ deliveryId: 'd1', rawBody: payload, secret: 'new', now })
    const both = `${headers['webhook-signature']} ${other['webhook-signature']}`
    expect(await verify({ headers: { ...headers, 'webhook-signature': both }, secrets: ['new'] })).toBeTruthy()
  })

  test('C206 the GitHub style verifies against an independent HMAC', async () => {
    const signature = createHmac('sha256', 'text secret').update(payload).digest('hex')
    const headers = { 'x-github-delivery': 'g1', 'x-hub-signature-256': `sha256=${signature}` }
    const attempt = { headers, trigger: github, secrets: ['text secret'] }
    expect(await verify(attempt)).toMatchObject({ deliveryId: 'g1', body: { order: 42, paid: true } })
    await refusedWith('bad_signature', verify({ ...attempt, rawBody: bytes('{}') }))
    await refusedWith('bad_signature', verify({ ...attempt, headers: { ...headers, 'x-hub-signature-256': signature } }))
    expect(await signDelivery({ deliveryId: 'g1', rawBody: payload, secret: 'text secret', now, scheme: 'github' })).toEqual(
      headers,
    )
  })

  test("C206 a header of one's own verifies; without an id header equal bodies are one delivery", async () => {
    const own = webhook({
      name: 'own',
      secret: () => 's',
      scheme: { header: 'X-Signature', encoding: 'base64' },
      spawn: ({ body }) => body,
    })
    const signed = (body: Uint8Array): Record<string, string> => ({
      'x-signature': createHmac('sha256', 's').update(body).digest('base64'),
    })
    const attempt = { trigger: own, secrets: ['s'] }
    const first = await verify({ ...attempt, headers: signed(payload) })
    const again = await verify({ ...attempt, headers: signed(payload) })
    const other = await verify({ ...attempt, headers: signed(bytes('{}')), rawBody: bytes('{}') })
    expect(again.deliveryId).toBe(first.deliveryId)
    expect(other.deliveryId).not.toBe(first.deliveryId)
  })

  test.each([
    ['no headers', {}],
    ['an empty signature', { 'webhook-signature': '' }],
    ['a signature that is not base64', { 'webhook-signature': 'v1,???' }],
    ['an empty v1', { 'webhook-signature': 'v1,' }],
    ['another version only', { 'webhook-signature': 'v2,AAAA' }],
    ['a timestamp that is no number', { 'webhook-timestamp': 'soon' }],
    ['a timestamp beyond all time', { 'webhook-timestamp': '9'.repeat(400) }],
  ])('C206 %s is refused as bad_signature', async (name, change) => {
    const headers = await signDelivery({ deliveryId: 'd1', rawBody: payload, secret, now })
    await refusedWith('bad_signature', verify({ headers: name === 'no headers' ? {} : { ...headers, ...change } }))
  })

  test('without a secret nothing verifies, not even a signature made with an empty one', async () => {
    const headers = await signDelivery({ deliveryId: 'd1', rawBody: payload, secret, now })
    await refusedWith('not_configured', verify({ headers, secrets: [] }))
    await refusedWith('not_configured', verify({ headers, secrets: [''] }))
    await refusedWith('not_configured', verify({ headers, secrets: [undefined as unknown as string] }))
  })

  test('a signed body that is not what it says is malformed', async () => {
    const sign = (rawBody: Uint8Array<ArrayBuffer>) => signDelivery({ deliveryId: 'd1', rawBody, secret, now })
    const broken = bytes('{"a":')
    await refusedWith('malformed', verify({ headers: await sign(broken), rawBody: broken }))
    const notText = new Uint8Array([0xff, 0xfe, 0x00])
    await refusedWith('malformed', verify({ headers: await sign(notText), rawBody: notText }))
  })

  test('forms and texts are read as what they are', async () => {
    const read = async (text: string, type: string): Promise<unknown> => {
      const headers = await signDelivery({ deliveryId: 'd1', rawBody: bytes(text), secret, now })
      return (await verify({ headers: { ...headers, 'content-type': type }, rawBody: bytes(text) })).body
    }
    expect(await read('a=1&b=x%20y', 'application/x-www-form-urlencoded')).toEqual({ a: '1', b: 'x y' })
    expect(await read('hello', 'text/plain; charset=utf-8')).toBe('hello')
    expect(await read('{"a":1}', 'application/cloudevents+json')).toEqual({ a: 1 })
    expect(await read('', 'application/json')).toBeNull()
  })
})

describe('webhook declarations', () => {
  test('a mapping is kept with what it does', () => {
    const signalling = webhook({
      name: 'paid',
      secret: () => ['a', 'b'],
      body: z.object({ order: z.number() }),
      signal: ({ body, deliveryId }) => ({ to: { key: `order:${body.order}` }, name: 'paid', payload: deliveryId }),
    })
    expect(signalling.secrets({})).toEqual(['a', 'b'])
    expect(signalling.action.kind).toBe('signal')
    if (signalling.action.kind !== 'signal') return
    expect(signalling.action.toSignal({ deliveryId: 'd', headers: {}, body: { order: 42 } })).toEqual({
      to: { key: 'order:42' },
      name: 'paid',
      payload: 'd',
    })
  })

  const refused: readonly (readonly [unknown])[] = [
    [{ name: 'x', secret: 'text', spawn: () => 1 }],
    [{ name: 'x', secret: () => 's' }],
    [{ name: 'x', secret: () => 's', spawn: () => 1, signal: () => undefined }],
    [{ name: '', secret: () => 's', spawn: () => 1 }],
    [{ name: 'x', secret: () => 's', spawn: () => 1, scheme: { header: 'a b' } }],
    [{ name: 'x', secret: () => 's', spawn: () => 1, tolerance: 'soon' }],
    [{ name: 'x', secret: () => 's', spawn: () => 1, body: {} }],
  ]

  test.each(refused)('refuses %j', (options) => {
    expect(() => webhook(options as never)).toThrow(expect.objectContaining({ code: 'invalid_configuration' }))
  })
})
