/** What must, and what must not, compile of joins, events and ends of runs. Checked by `tsc`: an unused @ts-expect-error is an error. */
import * as z from 'zod'
import { type ChildResult, type ConnectedPawl, createClient, createPawl, endOf, job, machine } from '../../src/index.ts'

type Eq<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false

const part = job({ name: 'part', input: z.number(), run: ({ input }) => ({ doubled: input * 2 }) })

const whole = machine({
  name: 'whole',
  state: z.object({ id: z.string() }),
  signals: { stop: z.null() },
  events: { opened: z.object({ day: z.number() }), closed: z.null() },
  initial: 'split',
  steps: {
    split: ({ join }) =>
      join([part.with(1), part.with(2)], {
        goto: 'gather',
        need: 1,
        onChildFailure: 'fail-fast',
        deadline: '1h',
        stragglers: 'cancel',
        emit: [{ name: 'opened', payload: { day: 1 }, retention: '1 day' }],
        signal: [{ to: { key: 'k', definition: 'whole' }, name: 'stop' }],
      }),
    gather: ({ children, waitFor, state }) => {
      const [first] = children(part)
      const known: Eq<typeof first, ChildResult<{ doubled: number }> | undefined> = true
      // one that has not ended has no error and no result
      if (first?.status === 'pending') first.error satisfies undefined
      // @ts-expect-error not every child has a result
      first?.result
      if (first?.status === 'completed') first.result.doubled satisfies number
      return waitFor(['opened', 'stop', endOf(state.id), endOf({ definition: part, key: known ? 'k' : 'l' })], { goto: 'end' })
    },
    end: ({ signals, waitFor, join, done }) => {
      const opened = signals.first('opened')
      opened?.payload.day satisfies number | undefined
      for (const signal of signals.all) if (signal.name === 'closed') signal.payload satisfies null
      // @ts-expect-error no such signal or event
      waitFor('open', { goto: 'end' })
      // @ts-expect-error no such policy
      join([], { goto: 'end', onChildFailure: 'ignore' })
      // @ts-expect-error no such way with stragglers
      join([], { goto: 'end', stragglers: 'kill' })
      // @ts-expect-error a run is waited for by its end
      waitFor({ id: 'x' }, { goto: 'end' })
      return done(undefined)
    },
  },
})

const pawl = createPawl({ definitions: [part, whole] })
declare const connected: ConnectedPawl<typeof pawl.definitions>
const client = createClient<typeof pawl>({ url: 'https://example.org' })

export async function emits(): Promise<void> {
  await connected.emit('opened', { day: 1 })
  await connected.emit('closed')
  await client.emit('opened', { day: 1 }, { retention: '1h', idempotencyKey: 'k' })
  // @ts-expect-error a signal is no event
  await connected.emit('stop')
  // @ts-expect-error its payload is missing
  await client.emit('opened')
  // @ts-expect-error an event is no signal
  await connected.signal({ id: 'x' }, 'opened', { day: 1 })
}
