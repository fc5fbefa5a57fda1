import { isRefusal } from '../core/database.ts'
import { PawlError } from '../core/errors.ts'
import { isTerminal } from '../core/status.ts'
import type { ClaimedRun, ClaimReply, ClaimRequest, CommittedOutcome, FlushedOutcome, Peek } from '../core/store.ts'
import { continued, ended, refused } from './committed.ts'
import { CANCEL_GRACE_MS, cancelled, Endings } from './endings.ts'
import { Hand, type InHand, isLeaving } from './hand.ts'
import type { InvocationParams } from './invocation-params.ts'
import { LonelyTurns, ROOM_PATIENCE_MS } from './lonely-turns.ts'
import { Relay, tellsOthers } from './relay.ts'
import { createTally, type Tally } from './report.ts'
import { FLUSH_RESERVE_MS, type Stage, startRun } from './start-run.ts'

/** Payload that one claim takes at most, in bytes: a reply of that size fits every host and the HTTP driver's 64 MB. */
const MAX_CLAIM_BYTES = 8_388_608
/** Requests kept back for the last flush and what it may have to send again. */
const FLUSH_RESERVE_REQUESTS = 4
/** Claims that found something left but got nothing, in a row, before the pass leaves it to whoever holds it. */
const MAX_EMPTY_CLAIMS = 4
/** A pass whose claims are always full looks about this often for what no claim finds: lost runs, timers, what waits to be alone. */
const PEEK_EVERY_MS = 1_000
/** Pause after such a claim, in milliseconds: about a flush of somebody else. */
const EMPTY_CLAIM_PAUSE_MS = 10

/**
 * One pass over the work: runs claimed steps side by side, commits outcomes as they come and takes the next runs in the same request,
 * until nothing is due or the budget says stop.
 *
 * Modes: *open* (claims while there is room), *solo* (a run that has lost its host before is in hand: nothing is claimed beside it; such
 * a one has its turn, and what is in hand finishes first),
 * *closing* (told to stop, out of time, or nothing left: finishes what is in hand). The pass is over when it is closing and nothing is
 * in hand, in the outbox or on the wire.
 */
export class Invocation {
  readonly tally: Tally = createTally()
  readonly #params: InvocationParams
  readonly #startedAt: number
  readonly #hand = new Hand()
  readonly #stage: Stage
  readonly #endings: Endings
  /** Runs with an outcome to send. */
  #outbox: InHand[] = []
  #onWire = 0
  #expected = 0
  #awaitsLonely = false // a claim is on the wire that may bring a run which must have no company
  #stopping = false
  #exhausted = false
  #poked = false
  #lastClaimWasFull = false
  #emptyClaims = 0
  #gathering = false
  readonly #relay: Relay
  /** A reply is being read: what ends at once goes out together, when all of it has been read. */
  #reading = false
  #laneCursor = 0
  readonly #lonely = new LonelyTurns()
  #aloneSince = 0
  #roomTimer: ReturnType<typeof setTimeout> | undefined
  #peekedAt = Number.NEGATIVE_INFINITY
  #peek: Peek | null = null
  #failure: unknown
  #finish: () => void = () => {}
  #wake: () => void = () => {}

  constructor(params: InvocationParams) {
    this.#params = params
    this.#startedAt = params.nowMs()
    this.#stage = this.#toStage()
    this.#relay = new Relay(params, (told) => {
      if (told > 0) this.#exhausted = false
      this.#pump()
    })
    this.#endings = new Endings(params, this.tally, (moved) => {
      if (moved) this.#exhausted = false
      else this.#pauseAfterEmptyClaim()
      this.#pump()
    })
  }

  get peek(): Peek | null {
    return this.#peek && !this.#exhausted ? { ...this.#peek, more: true } : this.#peek
  }

  /** What is being worked on: claimed, and no outcome of it sent yet. */
  get inHand(): readonly ClaimedRun[] {
    return this.#hand.unsent
  }

  /** Something new may be there: a pass that thought it was done looks again. */
  poke(): void {
    this.#poked = true
    this.#exhausted = false
    this.#wake()
    this.#pump()
  }

  get stopping(): boolean {
    return this.#stopping
  }

  /** Pauses between two passes; ends early when poked or told to stop. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** Claims nothing more; what is in hand finishes. */
  stop(): void {
    this.#stopping = true
    this.#wake()
    this.#pump()
  }

  /** Drops runs that are no longer ours: their handlers are told, their outcomes are not committed. */
  lose(runIds: readonly string[]): void {
    for (const id of runIds) {
      const held = this.#hand.find(id)
      if (!held || held.sent) continue
      this.#outbox = this.#outbox.filter((other) => other !== held)
      held.abort.abort(new PawlError('lost_ownership', `Run ${id} is no longer owned by this invocation.`))
      this.#hand.drop(held)
      this.#hand.settle(held.run)
      this.tally.stale += 1
    }
    this.#pump()
  }

  /** Tells handlers to stop. One that has not done so within the grace is left behind: its run ends, another takes its place. */
  cancel(runIds: readonly string[]): void {
    for (const id of runIds) {
      const held = this.#hand.find(id)
      if (!held || held.abort.signal.aborted) continue
      held.abort.abort(cancelled(id))
      setTimeout(() => this.#post(held, ended(held.run, 'cancelled')), this.#params.cancelGraceMs ?? CANCEL_GRACE_MS)
    }
  }

  remainingMs(): number {
    return this.#params.budget.wallMs - (this.#params.nowMs() - this.#startedAt)
  }

  /** Runs the pass to its end. Rejects when the database fails for good; what was in hand is rescued by its lease then. */
  async run(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#finish = resolve
      this.#pump()
    })
    clearTimeout(this.#roomTimer)
    this.#roomTimer = undefined
    if (this.#failure !== undefined) throw this.#failure
  }

  /** Sends what can be sent. Called whenever something has changed; never waits. */
  #pump(): void {
    if (this.#failure !== undefined) {
      this.#finish()
      return
    }
    while (this.#onWire < this.#params.budget.lanes) {
      const claim = this.#nextClaim()
      if (claim === null && this.#outbox.length === 0) break
      // a claim beside other exchanges waits for outcomes to ride along with, unless there is room nobody else will fill
      if (this.#outbox.length === 0 && this.#onWire > 0 && !this.#lastClaimWasFull) break
      void this.#exchange(claim)
    }
    if (this.#onWire + this.#hand.size + this.#outbox.length > 0 || this.#relay.isUnderWay || this.#endings.isUnderWay) return
    // a claim whose last run was taken from us has no outcome to ride with
    if (this.#hand.hasEnded) void this.#exchange(null)
    else this.#finish()
  }

  #nextClaim(): ClaimRequest | null {
    const { budget, requests, queues, leaseMs, registry, newClaimId } = this.#params
    // a claim that rides along with outcomes is free, and they may have made work
    if (this.#stopping || this.#awaitsLonely || this.#hand.isSolo || (this.#exhausted && this.#outbox.length === 0)) return null
    if (requests() + FLUSH_RESERVE_REQUESTS + this.#onWire >= budget.requests) return null
    // what is about to be flushed leaves its place to what is claimed with it; what is on its way has left
    const room = Math.min(budget.batch, budget.concurrency - this.#hand.running - this.#expected)
    if (room <= 0) return null
    const left = this.remainingMs() - FLUSH_RESERVE_MS
    const definitions = registry.definitions.filter((definition) => definition.timeoutMs <= left)
    if (definitions.length === 0) return null
    const nowMs = this.#params.nowMs()
    const isIdle = this.#hand.remaining === 0 && this.#expected === 0
    const makesRoom = this.#lonely.isDue(nowMs)
    if (makesRoom && !isIdle) return this.#makeRoom()
    return {
      claimId: newClaimId(),
      definitions,
      queues,
      limit: room,
      maxBytes: MAX_CLAIM_BYTES,
      leaseMs,
      laneCursor: this.#laneCursor,
      // not while work flows, unless it is their turn: such a claim has the wire to itself
      alone: isIdle && (makesRoom || (!this.#lastClaimWasFull && this.#lonely.may(nowMs))),
      besides: this.#hand.solitaryClaims,
      peek: !this.#lastClaimWasFull || makesRoom || nowMs - this.#peekedAt >= PEEK_EVERY_MS,
      gated: this.#params.registry.isGated && 'open',
      rated: this.#params.registry.isRated,
    }
  }

  /** Claims nothing until what is in hand has finished, and no longer than patience lasts. */
  #makeRoom(): null {
    this.#roomTimer ??= setTimeout(() => {
      this.#roomTimer = undefined
      this.#pump()
    }, ROOM_PATIENCE_MS)
    return null
  }

  /** One request: commits the outbox and takes the next runs. */
  async #exchange(claim: ClaimRequest | null): Promise<void> {
    const sending = this.#takeOutbox()
    for (const held of sending) {
      held.sent = true
      if (isLeaving(held)) this.#hand.settle(held.run)
    }
    const outcomes = sending.flatMap(({ outcome }) => outcome ?? [])
    const endedClaims = this.#hand.takeEnded()
    this.#onWire += 1
    this.#expected += claim?.limit ?? 0
    if (claim?.peek) this.#peekedAt = this.#params.nowMs()
    if (claim?.alone) {
      this.#awaitsLonely = true
      this.#aloneSince = this.#params.nowMs()
    }
    this.#poked = false
    try {
      const isClaimAlone = outcomes.length === 0 && endedClaims.length === 0 && claim !== null
      const reply = isClaimAlone
        ? { outcomes: [], claim: await this.#params.store.claim(claim) }
        : await this.#params.store.flush({ outcomes, endedClaims }, claim)
      this.#reading = true
      sending.forEach((held, index) => {
        this.#flushed(held, reply.outcomes[index] ?? STALE)
      })
      if (claim) this.#received(claim, reply.claim)
      if (!this.#stopping && (outcomes.some(tellsOthers) || reply.claim?.peek?.relayDue)) this.#relay.start()
    } catch (error) {
      await this.#flushFailed(sending, error)
    } finally {
      this.#reading = false
      this.#onWire -= 1
      this.#expected -= claim?.limit ?? 0
      if (claim?.alone) this.#awaitsLonely = false
    }
    this.#pump()
  }

  /** Outcomes with statements of the user go alone: what those statements do wrong is that run's failure, nobody else's. */
  #takeOutbox(): InHand[] {
    const alone = this.#outbox.findIndex(({ outcome }) => outcome !== null && outcome.commit.length > 0)
    return this.#outbox.splice(0, alone < 0 ? this.#outbox.length : Math.max(alone, 1))
  }

  #received(claim: ClaimRequest, reply: ClaimReply | null): void {
    if (!reply) return
    this.tally.countClaim(reply)
    this.#lastClaimWasFull = reply.runs.length > 0 && reply.runs.length + reply.passedOver >= claim.limit
    // what a gate denied is out of the way now; behind the lanes that one claim opens there are more
    const isProgress = reply.setAside > 0 || claim.laneCursor > 0
    if (isProgress || reply.runs.length > 0) this.#emptyClaims = 0
    this.#laneCursor = reply.laneCursor
    if (reply.peek) this.#peek = reply.peek
    if (reply.peek) this.#lonely.noted(reply.peek)
    if (claim.alone && !reply.runs.some((run) => run.losses > 0)) this.#lonely.cameToNothing()
    if (reply.peek?.endingDue && !this.#stopping) this.#endings.start()
    if (reply.peek && !reply.peek.more && !this.#poked) this.#exhausted = true
    if (reply.runs.length > 0) {
      this.#hand.open(claim, reply.runs.length)
      const taken = reply.runs.map((run) => this.#hand.take(run, 0))
      for (const held of taken) startRun(this.#stage, held)
      return
    }
    if (reply.peek?.more && !this.#poked && !isProgress) this.#pauseAfterEmptyClaim()
  }

  /** Something is there but others hold it: look again shortly, a few times, then leave it to them. */
  #pauseAfterEmptyClaim(): void {
    this.#exhausted = true
    if (this.#endings.isUnderWay) return
    this.#emptyClaims += 1
    if (this.#emptyClaims > MAX_EMPTY_CLAIMS) return
    this.#onWire += 1
    const pauseMs = EMPTY_CLAIM_PAUSE_MS * this.#emptyClaims * (0.5 + this.#params.random())
    setTimeout(() => {
      this.#onWire -= 1
      this.#exhausted = false
      this.#pump()
    }, pauseMs)
  }

  #toStage(): Stage {
    const isStopping = (): boolean => this.#stopping
    return {
      params: this.#params,
      get stopping() {
        return isStopping()
      },
      remainingMs: () => this.remainingMs(),
      post: (held, outcome) => this.#post(held, outcome),
      heartbeat: (run, leaseMs) => this.#heartbeat(run, leaseMs),
      fail: (error) => this.#fail(error),
    }
  }

  async #heartbeat(run: ClaimedRun, leaseMs: number): Promise<void> {
    const reply = await this.#params.store.keep([run], leaseMs)
    if (reply.lostClaims.length === 0 && reply.lostRuns.length === 0) {
      this.cancel(reply.cancelRequested)
      if (reply.cancelRequested.includes(run.id)) throw cancelled(run.id)
      return
    }
    this.lose([run.id])
    throw new PawlError('lost_ownership', `Run ${run.id} is no longer owned by this invocation: its lease has lapsed.`)
  }

  #post(held: InHand, outcome: CommittedOutcome): void {
    if (!this.#hand.holds(held) || held.outcome !== null) return
    this.#hand.conclude(held, outcome)
    this.#outbox.push(held)
    if (this.#reading) return
    if (this.#hand.working === 0) {
      this.#pump()
      return
    }
    if (this.#gathering) return
    this.#gathering = true
    // one turn of the event loop: outcomes of one moment share a flush
    setTimeout(() => {
      this.#gathering = false
      this.#pump()
    }, 0)
  }

  #flushed(held: InHand, answer: FlushedOutcome): void {
    const { outcome, run } = held
    this.#hand.drop(held)
    if (run.losses > 0) this.#lonely.over(this.#params.nowMs(), this.#aloneSince)
    // nothing is sent without one
    if (outcome === null) return
    this.tally.count(outcome, answer)
    if (answer.kind === 'applied' && answer.status === 'running') {
      startRun(this.#stage, this.#hand.take(continued(outcome), held.inlineSteps + 1))
      return
    }
    // asked to go on here but lost or cancelled meanwhile: nothing of it is left in hand
    if (outcome.status === 'running') this.#hand.settle(run)
    if (answer.kind === 'applied' && !isTerminal(answer.status)) this.#exhausted = false
    if (run.parentId !== null || outcome.join !== null || run.gates.length > 0) this.#exhausted = false
  }

  /** The database refused a flush: one outcome may be what it refuses, so each is sent alone, and that one becomes its run's failure. */
  async #flushFailed(sent: readonly InHand[], error: unknown): Promise<void> {
    if (sent.length === 0 || !isRefusal(error)) {
      this.#fail(error)
      return
    }
    for (const held of sent) {
      try {
        await this.#flushAlone(held)
      } catch (own) {
        await this.#refused(held, own)
      }
    }
  }

  /** The database failed for good: handlers are told, and the pass ends. */
  #fail(error: unknown): void {
    this.#failure ??= error
    this.#hand.abortAll(error)
    this.#pump()
  }

  async #flushAlone(held: InHand): Promise<void> {
    if (held.outcome === null) return
    const reply = await this.#params.store.flush({ outcomes: [held.outcome], endedClaims: [] }, null)
    this.#flushed(held, reply.outcomes[0] ?? STALE)
  }

  async #refused(held: InHand, error: unknown): Promise<void> {
    if (held.outcome === null) return
    if (!isLeaving(held)) this.#hand.settle(held.run)
    this.#hand.conclude(held, refused(held.outcome, error))
    try {
      await this.#flushAlone(held)
    } catch (again) {
      this.#failure ??= again
    }
  }
}

const STALE: FlushedOutcome = { kind: 'stale' }
