import { untilNothingIsPending } from './drain.ts'
import type { Scenario } from './scenario.ts'

const CHILDREN = 10_000

export const fanOut: Scenario = {
  name: 'fan-out',
  title: 'One run, 10,000 children and the join of their results',
  unit: 'runs',
  template: 'empty',
  run: async ({ adapter, setting, url, meter }) => {
    let started = 0
    let finish = (): void => {}
    const all = new Promise<void>((resolve) => {
      finish = resolve
    })
    const engine = await adapter.open(url, setting, () => {
      started += 1
      if (started === CHILDREN) finish()
    })
    if (engine.fanOut === undefined) throw new Error(`${adapter.name} does not fan out`)
    await engine.start()
    const requestsBefore = engine.requests?.() ?? 0
    meter.begin()
    await engine.fanOut(CHILDREN)
    await all
    await untilNothingIsPending(url, adapter.pendingSql)
    const usage = meter.end()
    const requests = engine.requests && engine.requests() - requestsBefore
    await engine.stop()
    return { ...usage, items: CHILDREN, requests }
  },
}
