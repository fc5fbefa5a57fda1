import { holdRun, insertPause, readPause, unholdRun } from '../../src/db/statements/change-pauses.ts'
import {
  decideEvent,
  lockFreeWaiters,
  lockWaiters,
  pruneEvents,
  readEvent,
  tellEnd,
  tellEvent,
  writeEvent,
} from '../../src/db/statements/events.ts'
import { holdMismatched } from '../../src/db/statements/hold-runs.ts'
import { lockRuns } from '../../src/db/statements/lock-runs.ts'
import { dropMessage, leaveEnds, leaveMessages, lockMessage, readMessages } from '../../src/db/statements/outbox.ts'
import { noteUncertainty } from '../../src/db/statements/resolve-run.ts'
import { dismissStragglers } from '../../src/db/statements/stragglers.ts'
import { awaitRuns, findRuns, forgetWaits, hearEvents, registerWaits } from '../../src/db/statements/topics.ts'
import { EVENT, FIRST_KEPT, HANDFUL, idOf, idsOf } from '../support/claim-world.ts'
import type { Case } from './claim-case.ts'
import { environment, inMinutes, now, outcomes, receipt, S, scope, tenant, UNIQUES, WRITTEN_BY, waits } from './claim-params.ts'

const topic = `event:${EVENT}`
const endTopic = `run:${idOf('finished', FIRST_KEPT)}`
const emitted = { now, environment, nonce: WRITTEN_BY, tenant, name: EVENT, receiptKey: null }
const waiters = { environment, tenant, topic, after: null, limit: 1_000 }
/** The first message of the world. */
const message = { environment, messageId: '1' }
const target = { ...scope, id: idOf('due', 7) }

/** Runs of this batch that are parked on a topic. */
const parkedOn = (awaits: string) => outcomes(151, 200, 'wait', 'waiting', { awaits: waits.map(() => awaits) })
const parkedRuns = (awaits: string) => ({ now, runIds: waits, topics: waits.map(() => awaits) })
const running = idsOf('running', 1, 100)
const done = outcomes(1, 100, 'done', 'completed')

/** Events, the ends of other runs, and what a commit leaves to be told. */
const telling: readonly Case[] = [
  {
    name: 'register_waits',
    before: [parkedOn(topic)],
    statement: registerWaits(S, parkedRuns(topic)),
    indexes: ['runs_pkey'],
  },
  {
    name: 'hear_events',
    before: [parkedOn(topic)],
    statement: hearEvents(S, parkedRuns(topic)),
    indexes: ['events_pkey', 'runs_pkey'],
  },
  {
    name: 'await_runs that have ended',
    before: [lockRuns(S, { ids: [idOf('finished', FIRST_KEPT), ...waits] }), parkedOn(endTopic)],
    statement: awaitRuns(S, parkedRuns(endTopic)),
    indexes: ['runs_pkey'],
  },
  {
    name: 'await_runs that have not',
    before: [lockRuns(S, { ids: waits }), parkedOn(`run:${idOf('due', 7)}`)],
    statement: awaitRuns(S, parkedRuns(`run:${idOf('due', 7)}`)),
    indexes: ['runs_pkey'],
  },
  {
    name: 'forget_waits',
    before: [done],
    statement: forgetWaits(S, { ids: running }),
    indexes: ['event_waits_run_idx', 'history_pkey', 'runs_pkey'],
  },
  {
    name: 'find_runs',
    statement: findRuns(S, {
      environment,
      tenant,
      ids: [idOf('finished', 400), null],
      definitions: [null, 'charge'],
      keys: [null, `r${HANDFUL / 2}`],
    }),
    indexes: ['runs_pkey', UNIQUES],
  },
  {
    name: 'write_event',
    statement: writeEvent(S, { ...emitted, name: 'fresh', payload: '{}', retentionMs: 1_000, messageId: null }),
    indexes: [],
  },
  {
    name: 'decide_event',
    statement: decideEvent(S, { ...emitted, receiptKey: receipt.receiptKey }),
    indexes: ['events_pkey', 'receipts_pkey'],
  },
  { name: 'read_event', statement: readEvent(S, emitted), indexes: ['events_pkey'] },
  { name: 'lock_free_waiters', statement: lockFreeWaiters(S, waiters), indexes: ['event_waits_pkey', 'runs_pkey'] },
  {
    name: 'lock_waiters of an end',
    statement: lockWaiters(S, { ...waiters, topic: endTopic }),
    indexes: ['event_waits_pkey', 'runs_pkey'],
  },
  {
    name: 'tell_event',
    before: [lockFreeWaiters(S, waiters)],
    statement: tellEvent(S, { ...waiters, now, nonce: WRITTEN_BY, messageId: null }),
    indexes: ['event_waits_pkey', 'events_pkey', 'runs_pkey'],
  },
  {
    name: 'tell_event that a message tells',
    before: [lockMessage(S, message), lockWaiters(S, waiters)],
    statement: tellEvent(S, { ...waiters, now, nonce: null, messageId: message.messageId }),
    indexes: ['event_waits_pkey', 'events_pkey', 'outbox_pkey', 'runs_pkey'],
  },
  {
    name: 'tell_end',
    before: [lockMessage(S, message), lockWaiters(S, { ...waiters, topic: endTopic })],
    statement: tellEnd(S, { ...waiters, topic: endTopic, now, nonce: null, messageId: message.messageId }),
    indexes: ['event_waits_pkey', 'outbox_pkey', 'runs_pkey'],
  },
  {
    name: 'prune_events',
    statement: pruneEvents(S, { now: inMinutes(-1), environment, limit: 10 }),
    indexes: ['events_expires_idx'],
  },
  {
    name: 'leave_messages',
    before: [done],
    statement: leaveMessages(S, {
      now,
      runIds: running,
      kinds: running.map(() => 'event'),
      subjects: running.map(() => EVENT),
      bodies: running.map(() => '{}'),
    }),
    indexes: ['history_pkey', 'runs_pkey'],
  },
  { name: 'leave_ends', before: [done], statement: leaveEnds(S, { now, ids: running }), indexes: ['runs_pkey'] },
  { name: 'read_messages', statement: readMessages(S, { environment, limit: 100 }), indexes: ['outbox_pkey'] },
  { name: 'lock_message', statement: lockMessage(S, message), indexes: ['outbox_pkey'] },
  { name: 'drop_message', before: [lockMessage(S, message)], statement: dropMessage(S, message), indexes: ['outbox_pkey'] },
  {
    name: 'dismiss_stragglers',
    before: [outcomes(1, 50, 'next', 'pending')],
    statement: dismissStragglers(S, { now, ids: idsOf('running', 1, 50), joinSeqs: running.slice(0, 50).map(() => 2) }),
    indexes: ['history_pkey', 'runs_parent_idx', 'runs_pkey'],
  },
]

/** What holds runs, and what is said of those that nobody can tell about. */
const holding: readonly Case[] = [
  {
    name: 'hold_mismatched',
    before: [outcomes(1, 100, 'hold', 'pending')],
    statement: holdMismatched(S, { now, ids: running, details: running.map(() => 'no such step') }),
    indexes: ['runs_pkey'],
  },
  {
    name: 'note_uncertainty',
    before: [outcomes(1, 100, 'uncertain', 'uncertain')],
    statement: noteUncertainty(S, { now, ids: running, reports: running.map(() => '{}') }),
    indexes: ['runs_pkey'],
  },
  { name: 'hold_run', statement: holdRun(S, { ...target, by: null }), indexes: ['ready_order_key', 'runs_pkey'] },
  {
    name: 'unhold_run',
    before: [holdRun(S, { ...target, by: null })],
    statement: unholdRun(S, target),
    indexes: ['runs_pkey'],
  },
  {
    name: 'insert_pause',
    statement: insertPause(S, { ...scope, kind: 'queue', name: 'default', by: null, declared: false }),
    indexes: [],
  },
  {
    name: 'read_pause',
    statement: readPause(S, { ...scope, kind: 'queue', name: 'q7', by: null, declared: false }),
    indexes: [],
  },
]

/** What coordination adds to a commit, and what follows from it. */
export const coordinating: readonly Case[] = [...telling, ...holding]
