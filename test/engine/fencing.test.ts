import { describe, expect, test } from 'vitest'
import { job } from '../../src/core/job.ts'
import { moment, sharedEngines } from '../support/engine.ts'
import { LEASE_MS, PAUSE_MS } from './claim-request.ts'

describe('fencing', () => {
  const { start } = sharedEngines()

  test('C048 the fence rises with each claim: a store that keeps the highest refuses an owner that was taken over', async () => {
    const refused: string[] = []
    const store = { fence: 0, value: '' }
    const write = (fence: number, value: string): void => {
      if (fence < store.fence) refused.push(value)
      else Object.assign(store, { fence, value })
    }
    const [entered, mayWrite] = [moment(), moment()]
    let claims = 0
    const writing = job({
      name: 'writing',
      run: async ({ fence }) => {
        claims += 1
        const owner = `owner ${claims}`
        if (claims === 1) {
          entered.happen()
          await mayWrite.promise
        }
        write(fence, owner)
        return owner
      },
    })
    const old = await start({ definitions: [writing] })
    const id = await old.spawnId('writing')
    const tick = old.tick()
    await entered.promise
    const next = await start({ definitions: [writing], beside: old })
    next.advance(LEASE_MS + 1_000)
    await next.tick()
    next.advance(PAUSE_MS)
    await next.tick()
    expect(await next.run(id)).toMatchObject({ status: 'completed', result: 'owner 2' })
    mayWrite.happen()
    expect(await tick).toMatchObject({ stale: 1 })
    expect(store.value).toBe('owner 2')
    expect(refused).toEqual(['owner 1'])
  })

  test('C048 it rises from attempt to attempt too', async () => {
    const fences: number[] = []
    const twice = job({
      name: 'twice',
      retry: { backoff: { kind: 'fixed', base: 0 } },
      run: ({ fence, attempt }) => {
        fences.push(fence)
        if (attempt < 3) throw new Error('again')
      },
    })
    const engine = await start({ definitions: [twice] })
    await engine.spawnId('twice')
    await engine.tick()
    expect(fences).toHaveLength(3)
    expect(fences).toEqual([...new Set(fences)].sort((left, right) => left - right))
  })
})
