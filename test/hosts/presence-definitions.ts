import { createPawl, job } from '../../src/index.ts'

const one = { wallMs: 3_600_000, requests: 1_000_000, concurrency: 1, batch: 1, lanes: 1, lingerMs: 0 }
export const ONE_BUDGET = { kick: one, tick: one, cron: one }

/** Runs of it do what the process that has them says. */
export function oneAtATime(run: (id: string) => unknown) {
  return createPawl({ definitions: [job({ name: 'task', timeout: '30m', run: ({ run: { id } }) => run(id) })] })
}
