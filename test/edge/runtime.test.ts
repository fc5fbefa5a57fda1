import { expect, test } from 'vitest'

test('runs inside workerd, not Node', () => {
  expect(navigator.userAgent).toBe('Cloudflare-Workers')
})
