import * as z from 'zod'
import { createPawl, cron, job, machine, webhook } from '../../src/index.ts'

export const HOOK_SECRET = 'a secret of the shop'

export const double = job({
  name: 'double',
  input: z.object({ n: z.number() }),
  output: z.number(),
  retry: 'none',
  run: ({ input }) => input.n * 2,
})

/** Waits until the test lets go of it. */
export const held = job({
  name: 'held',
  input: z.object({ gate: z.string() }),
  timeout: '20s',
  run: async ({ input, services }) => {
    const { gates } = services as { gates: Gates }
    await gates.pass(input.gate)
    return input.gate
  },
})

export const checkout = machine({
  name: 'checkout',
  state: z.object({ order: z.number(), cents: z.number().optional() }),
  signals: { paid: z.object({ cents: z.number() }), shipped: z.object({ parcel: z.string() }) },
  output: z.object({ order: z.number(), cents: z.number(), parcel: z.string() }),
  key: ({ order }) => `order:${order}`,
  triggers: [
    webhook({
      name: 'shop',
      secret: () => HOOK_SECRET,
      body: z.object({ order: z.number(), cents: z.number() }),
      signal: ({ body }) => ({ to: { key: `order:${body.order}` }, name: 'paid', payload: { cents: body.cents } }),
    }),
  ],
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('paid', { goto: 'ship', timeout: '1h' }),
    ship: ({ signals, state, timedOut, fail, waitFor }) => {
      const paid = signals.first('paid')
      if (timedOut || !paid) return fail('payment never came')
      return waitFor('shipped', { goto: 'end', timeout: '1h', state: { ...state, cents: paid.payload.cents } })
    },
    end: ({ signals, state, timedOut, done, fail }) => {
      const shipped = signals.first('shipped')
      if (timedOut || !shipped) return fail('it was never shipped')
      return done({ order: state.order, cents: state.cents ?? 0, parcel: shipped.payload.parcel })
    },
  },
})

export const fan = machine({
  name: 'fan',
  state: z.object({ width: z.number() }),
  output: z.number(),
  initial: 'spread',
  steps: {
    spread: ({ join, state }) =>
      join(
        Array.from({ length: state.width }, (_, n) => double.with({ n })),
        { goto: 'gather', state },
      ),
    gather: ({ children, done }) =>
      done(children(double).reduce((sum, child) => sum + (child.status === 'completed' ? child.result : 0), 0)),
  },
})

export const nightly = job({
  name: 'nightly',
  triggers: [cron('0 3 * * *', { name: 'every-night' })],
  run: () => 'swept',
})

export const definitions = [double, held, checkout, fan] as const

export const pawl = createPawl({ definitions })

interface Door {
  readonly promise: Promise<void>
  readonly open: () => void
}

function makeDoor(): Door {
  let open = () => {}
  const promise = new Promise<void>((resolve) => {
    open = resolve
  })
  return { promise, open }
}

/** Doors that handlers wait at; a test sees who waits and lets them go. */
export class Gates {
  readonly #doors = new Map<string, Door>()
  readonly #reached = new Map<string, Door>()

  /** For handlers. */
  pass(name: string): Promise<void> {
    doorOf(this.#reached, name).open()
    return doorOf(this.#doors, name).promise
  }

  /** Resolves when a handler waits there. */
  reached(name: string): Promise<void> {
    return doorOf(this.#reached, name).promise
  }

  open(name: string): void {
    doorOf(this.#doors, name).open()
  }
}

function doorOf(doors: Map<string, Door>, name: string): Door {
  const door = doors.get(name) ?? makeDoor()
  doors.set(name, door)
  return door
}
