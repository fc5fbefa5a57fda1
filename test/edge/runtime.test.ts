import { expect, inject, test } from 'vitest'

test('runs inside workerd, not Node', () => {
  expect(navigator.userAgent).toBe('Cloudflare-Workers')
})

test('can ask for a database of its own', async () => {
  const response = await fetch(inject('edgeDatabases'), { method: 'POST' })
  const { connectionString } = await response.json<{ connectionString: string }>()
  expect(connectionString).toMatch(/^postgres:\/\/postgres@127\.0\.0\.1:\d+\/pawl_[0-9a-f]{16}$/)
})
