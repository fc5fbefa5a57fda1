/** The application that the tests of the command line load. */
import * as z from 'zod'
import { createPawl, job, machine } from '../../src/index.ts'

const double = job({ name: 'double', input: z.object({ n: z.number() }), output: z.number(), run: ({ input }) => input.n * 2 })

/** Holds until the server of the test answers. */
const held = job({
  name: 'held',
  input: z.object({ url: z.string() }),
  retry: 'none',
  run: async ({ input }) => (await fetch(input.url)).status,
})

const door = machine({
  name: 'door',
  state: z.object({ n: z.number() }),
  signals: { open: z.object({ by: z.string() }) },
  events: { fire: z.object({ floor: z.number() }) },
  output: z.string(),
  key: ({ n }) => `door:${n}`,
  initial: 'shut',
  steps: {
    shut: ({ waitFor }) => waitFor('open', { goto: 'ajar', timeout: '1h' }),
    ajar: ({ signals, done }) => done(signals.first('open')?.payload.by ?? 'nobody'),
  },
})

export const pawl = createPawl({ definitions: [double, held, door] })
