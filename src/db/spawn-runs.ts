import { randomUuid } from '../core/ids.ts'
import type { Admission, NewRun, Receipt } from '../core/store.ts'
import { type StoreContext, sendRepeatable } from './context.ts'
import { groupByLane, planSpawn } from './spawning.ts'

/**
 * Times a spawn is sent while it comes to nothing that can be told: a lane is missing, or the run that held its key ended between two
 * statements of the batch, which can happen again.
 */
const SPAWN_SENDS = 10

export async function spawn(context: StoreContext, runs: readonly NewRun[]): Promise<readonly Admission[]> {
  if (runs.length === 0) return []
  const nonce = randomUuid()
  const { sent, repeats } = withoutRepeats(runs)
  let answers: readonly Admission[] | null = null
  for (let sends = 1; answers === null; sends += 1)
    answers = await sendSpawn(context, sent, nonce, { first: sends === 1, last: sends >= SPAWN_SENDS })
  return runs.map((_, index) => answerOf(answers, repeats[index] ?? { kind: 'mismatch' }))
}

type Place =
  | { readonly kind: 'first'; readonly at: number }
  | { readonly kind: 'repeat'; readonly at: number }
  | { readonly kind: 'mismatch' }

/** One batch may name a receipt key or an id twice: the first is sent, the others get its answer. */
function withoutRepeats(runs: readonly NewRun[]): { readonly sent: readonly NewRun[]; readonly repeats: readonly Place[] } {
  const sent: NewRun[] = []
  const byReceipt = new Map<string, { readonly receipt: Receipt; readonly at: number }>()
  const byId = new Map<string, number>()
  const repeats = runs.map((run): Place => {
    const earlier = run.receipt ? byReceipt.get(`${run.tenant}\u0000${run.receipt.key}`) : undefined
    if (earlier)
      return earlier.receipt.fingerprint === run.receipt?.fingerprint ? { kind: 'repeat', at: earlier.at } : { kind: 'mismatch' }
    const sameId = run.idIsCallers ? byId.get(run.id) : undefined
    if (sameId !== undefined) return { kind: 'repeat', at: sameId }
    const at = sent.push(run) - 1
    if (run.receipt) byReceipt.set(`${run.tenant}\u0000${run.receipt.key}`, { receipt: run.receipt, at })
    if (run.idIsCallers) byId.set(run.id, at)
    return { kind: 'first', at }
  })
  return { sent, repeats }
}

function answerOf(answers: readonly Admission[], place: Place): Admission {
  if (place.kind === 'mismatch') return { kind: 'mismatch' }
  const answer = answers[place.at]
  if (!answer) return { kind: 'mismatch' }
  if (place.kind === 'first' || (answer.kind !== 'created' && answer.kind !== 'occupied')) return answer
  return { kind: 'replayed', id: answer.id, status: answer.status, created: answer.kind === 'created' }
}

/** Null: it has to be sent again, with everything it may need. */
async function sendSpawn(
  context: StoreContext,
  runs: readonly NewRun[],
  nonce: string,
  options: { readonly first: boolean; readonly last: boolean },
): Promise<readonly Admission[] | null> {
  if (!options.first) context.lanes.forget()
  const plan = planSpawn(context, runs, nonce)
  const { replies, resent } = await sendRepeatable(context.database, plan.statements)
  const { admissions, lanesMissing } = plan.read(replies)
  if (lanesMissing && !resent && options.first) return null
  for (const lane of groupByLane(runs).lanes) context.lanes.remember(lane)
  if (admissions.some((admission) => admission === null) && !options.last) return null
  return admissions.map((admission) => admission ?? { kind: 'mismatch' })
}
