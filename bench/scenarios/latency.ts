import { sleep } from '../numbers.ts'
import type { Scenario } from './scenario.ts'

const SAMPLES = 100
/** The first ones open connections and compile code. */
const WARM_UP = 5
const SETTLE_MS = 1_000
const PAUSE_MS = 20
const JITTER_MS = 40

export const idleStart: Scenario = {
  name: 'idle-start',
  title: 'From the call that enqueues to the start of the handler, engine idle, same process',
  unit: 'runs',
  template: 'empty',
  run: async ({ adapter, setting, url, meter }) => {
    let heard = (_at: number): void => {}
    const engine = await adapter.open(url, setting, () => heard(performance.now()))
    await engine.start()
    await sleep(SETTLE_MS)
    meter.begin()
    const latenciesMs: number[] = []
    for (let index = 0; index < SAMPLES + WARM_UP; index++) {
      await sleep(PAUSE_MS + Math.random() * JITTER_MS)
      const start = new Promise<number>((resolve) => {
        heard = resolve
      })
      const from = performance.now()
      const [at] = await Promise.all([start, engine.enqueue(index)])
      if (index >= WARM_UP) latenciesMs.push(at - from)
    }
    const usage = meter.end()
    await engine.stop()
    return { ...usage, items: SAMPLES, latenciesMs }
  },
}
