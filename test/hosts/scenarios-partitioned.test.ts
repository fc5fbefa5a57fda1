import { expect, test, vi } from 'vitest'
import { uuidv7 } from '../../src/core/ids.ts'
import { describeScenarios } from './node-scenarios.ts'

/** Between one id and the next: some dozens of ids per week, so that the rows of one scenario lie in several partitions. */
const STEP_MS = 4 * 3_600_000

vi.mock(import('../../src/core/ids.ts'), async (original) => {
  const ids = await original()
  const begun = Date.now()
  let made = 0
  return {
    ...ids,
    uuidv7: () => {
      made += 1
      return ids.uuidv7(begun + made * STEP_MS)
    },
  }
})

describeScenarios('the catalogue of scenarios, on partitioned tables', 'C218 C242', { partitioned: 'week' })

test('ids are hours apart', () => {
  const [first, second] = [uuidv7(), uuidv7()]
  expect(Number.parseInt(second.slice(0, 8), 16)).toBeGreaterThan(Number.parseInt(first.slice(0, 8), 16))
})
