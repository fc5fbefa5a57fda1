import * as z from 'zod'
import { node } from '../src/hosts/node.ts'
import { createPawl, job, machine } from '../src/index.ts'

const ship = job({ name: 'ship', input: z.object({ order: z.number() }), run: ({ input }) => `parcel-${input.order}` })

const checkout = machine({
  name: 'checkout',
  state: z.object({ order: z.number() }),
  signals: { paid: z.object({ cents: z.number() }) },
  output: z.string(),
  key: ({ order }) => `order:${order}`,
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('paid', { goto: 'ship', timeout: '1h' }),
    ship: ({ timedOut, state, fail, join }) => (timedOut ? fail('never paid') : join([ship.with(state)], { goto: 'end' })),
    end: ({ children, done, fail }) => children(ship).map((c) => (c.status === 'completed' ? done(c.result) : fail('lost')))[0]!,
  },
})

const { connection: pawl, close } = await node(createPawl({ definitions: [ship, checkout] }), { database: 'memory' })
const { id } = await pawl.spawn(checkout, { order: 42 })
await pawl.signal({ key: 'order:42' }, 'paid', { cents: 1250 })
console.log(await pawl.result(checkout, id, { wait: '20s' })) // { id, status: 'completed', result: 'parcel-42' }
await close()
