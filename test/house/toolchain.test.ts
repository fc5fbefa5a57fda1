import { expect, test } from 'vitest'

test('tests run on the Node that the tools need, not on an older one of the machine', () => {
  expect(Number(process.versions.node.split('.')[0])).toBeGreaterThanOrEqual(22)
})
