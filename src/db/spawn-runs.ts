import { randomUuid } from '../core/ids.ts'
import type { Admission, NewRun, Receipt } from '../core/store.ts'
import { learnPlace, type StoreContext, sendRepeatable } from './context.ts'
import { groupByLane } from './inserting.ts'
import { finishHandovers } from './late-handover.ts'
import { planSpawn } from './spawning.ts'

/**
 * Times a spawn is sent in a row without anything more becoming of it: a lane is missing, or the run that had its key ended between two
 * statements of the batch or was held by somebody, which can happen again.
 */
const SENDS_WITHOUT_PROGRESS = 10

/** Sends runs, and again those of which nothing became, until something has become of all. */
export async function spawn(context: StoreContext, runs: readonly NewRun[]): Promise<readonly Admission[]> {
  if (runs.length === 0) return []
  const nonce = randomUuid()
  const { sent, repeats } = withoutRepeats(runs)
  const answers = new Map<NewRun, Admission>()
  let left = sent
  for (let sends = 1; left.length > 0 && sends <= SENDS_WITHOUT_PROGRESS; sends += 1) {
    const before = left.length
    const admissions = await sendSpawn(context, left, nonce, sends === 1)
    left.forEach((run, index) => {
      const admission = admissions[index]
      if (admission) answers.set(run, admission)
    })
    left = left.filter((run) => !answers.has(run))
    // a list that filled up, and others that begin the next one
    if (left.length < before) sends = 1
  }
  const inOrder = sent.map((run) => answers.get(run) ?? { kind: 'contended' as const })
  return runs.map((_, index) => answerOf(inOrder, repeats[index] ?? { kind: 'mismatch' }))
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
  const effect = answer.kind === 'occupied' ? answer.effect : undefined
  return { kind: 'replayed', id: answer.id, status: answer.status, created: answer.kind === 'created', effect }
}

/** Null: nothing became of that run, and it has to be sent again. */
async function sendSpawn(
  context: StoreContext,
  runs: readonly NewRun[],
  nonce: string,
  isFirst: boolean,
): Promise<readonly (Admission | null)[]> {
  if (!isFirst) context.lanes.forget()
  const plan = planSpawn(context, runs, nonce)
  const { replies } = await sendRepeatable(context.database, plan.statements)
  learnPlace(context.lanes, plan.statements, replies)
  await finishHandovers(context, plan.statements, replies)
  const { admissions, lanesMissing } = plan.read(replies)
  // or their reply was lost and they are there: sent again, with the lanes, each is there once
  if (lanesMissing && isFirst) return runs.map(() => null)
  for (const lane of groupByLane(runs).lanes) context.lanes.remember(lane)
  return admissions
}
