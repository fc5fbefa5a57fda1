import type { Guard } from './guard.ts'

const statements = (file: string) => `src/db/statements/${file}.ts`
const APPLY = statements('apply-outcomes')
const CLAIM = statements('claim-runs')
const DELIVER = statements('deliver-signals')
const SETTLE = statements('settle-outcomes')
const GATES = statements('gates')
const CLAIM_GATES = statements('claim-gates')
const INSERT = statements('insert-runs')
const UPKEEP = statements('upkeep')
const trap = (name: string) => `test/traps/trap-${name}.test.ts`
const T01 = trap('01-lost-wake-up')
const T02 = trap('02-lock-order')
const T03 = trap('03-changed-after-the-snapshot')
const T04 = trap('04-one-write-per-row')
const T05 = trap('05-exclusive-keys')
const T06 = trap('06-failing-claim')
const T11 = trap('11-children')
const RACES = 'test/traps/races.test.ts'
const RACES_OF_CANCEL = 'test/traps/races-of-cancel.test.ts'
const END = statements('end-runs')

/** Guards against what others do at the same time. */
export const GUARDS_OF_RACES: readonly Guard[] = [
  // trap 1: lost wake-ups
  {
    guard: 'a delivery locks its target whatever its status',
    file: DELIVER,
    find: '\n  FOR NO KEY UPDATE OF r\n',
    replace: '\n',
    test: T01,
    name: 'a signal that waited for the last step to finish finds an ended run',
  },
  {
    guard: 'a delivery checks the status under the lock',
    file: DELIVER,
    find: "    AND r.status NOT IN ('completed', 'failed', 'cancelled', 'discarded')\n",
    replace: '',
    test: T01,
    name: 'a signal that waited for the last step to finish finds an ended run',
  },
  {
    guard: 'a delivery does not look for waiting runs only',
    file: DELIVER,
    find: "    AND r.status NOT IN ('completed', 'failed', 'cancelled', 'discarded')\n",
    replace: "    AND r.status = 'waiting'\n",
    test: T01,
    name: 'parking and delivering at the same time',
  },
  {
    guard: 'a park rechecks the inbox in a later statement',
    file: 'src/db/flush.ts',
    find: '...(waiting.length > 0\n',
    replace: '...(waiting.length > 1_000_000\n',
    test: T01,
    name: 'a park that waits for a delivery finds its signal',
  },
  {
    guard: 'the recheck leaves out what was shown',
    file: SETTLE,
    find: 'WHERE x.run_id = r.id AND x.signal_id = g.id))',
    replace: 'WHERE false))',
    test: T01,
    name: 'waiting for a pack by waiting again',
  },
  {
    guard: 'what was shown is left out by id, not by maximum',
    file: SETTLE,
    find: 'WHERE x.run_id = r.id AND x.signal_id = g.id))',
    replace: 'WHERE x.run_id = r.id AND x.signal_id >= g.id))',
    test: T01,
    name: 'what is left out on waiting again is what was shown',
  },
  {
    guard: 'the recheck wakes only what this transaction parked',
    file: SETTLE,
    find: ' AND r.awaits IS NOT NULL AND r.xmin = pg_current_xact_id()::xid',
    replace: ' AND r.awaits IS NOT NULL',
    test: T01,
    name: 'a stale park wakes nobody',
  },
  // trap 2: lock order
  {
    guard: 'own rows and parents are locked as one list',
    file: 'src/db/flush.ts',
    find: 'return [lockRuns(context.schema, { ids })]',
    replace:
      'return [lockRuns(context.schema, { ids: outcomes.map((outcome) => outcome.run.id) }), lockRuns(context.schema, { ids })]',
    test: T02,
    name: 'two flushes, each with a parent of a child in the other',
  },
  {
    guard: 'possible parents are locked in one order too',
    file: 'src/db/flush.ts',
    find: 'possibleSeconds.length < 2',
    replace: 'possibleSeconds.length < 1_000_000',
    test: T02,
    name: 'a flush of parents alone locks them in the order of their ids',
  },
  {
    guard: 'locks are taken in the order of ids',
    file: statements('lock-runs'),
    find: 'ORDER BY r.id FOR NO KEY UPDATE',
    replace: 'ORDER BY r.id DESC FOR NO KEY UPDATE',
    test: T02,
    name: 'a flush of parents alone locks them in the order of their ids',
  },
  {
    guard: 'a cancellation locks run and parent first',
    file: 'src/db/ending.ts',
    find: '    lockFamilies(schema, { ids }),\n',
    replace: '    lockFamilies(schema, { ids: [] }),\n',
    test: T02,
    name: 'cancelling a child and flushing its parent',
  },
  {
    guard: 'what ends a run looks at its status under the lock',
    file: END,
    find: "r.status IN ('pending', 'waiting') AND r.cancel_requested_at IS NOT NULL AND",
    replace: "r.status IN ('pending', 'waiting', 'running') AND r.cancel_requested_at IS NOT NULL AND",
    test: 'test/engine/cancel.test.ts',
    name: 'the heartbeat of a cancelled run is refused',
  },
  {
    guard: 'a run that ends leaves the window',
    file: END,
    find: "outOfWindow(s, 'before', `x.status = 'pending'`)",
    replace: "outOfWindow(s, 'before', 'false')",
    test: RACES_OF_CANCEL,
    name: 'a cancellation and a claim at the same time',
  },
  {
    guard: 'what is to follow waits for nobody',
    file: END,
    find: "'FOR NO KEY UPDATE SKIP LOCKED'",
    replace: "'FOR NO KEY UPDATE'",
    test: 'test/engine/cascade.test.ts',
    name: 'a child that somebody holds is left to a later tick',
  },
  {
    guard: 'a cancellation leaves word for the children',
    file: END,
    find: ' LIMIT 1) END\n  ON CONFLICT',
    replace: ' LIMIT 0) END\n  ON CONFLICT',
    test: RACES_OF_CANCEL,
    name: 'a cancellation and the spawning of children at the same time',
  },
  // trap 3: rows that changed after the snapshot
  {
    guard: 'outcomes are written by id',
    file: APPLY,
    find: 'AND k.alive AND r.id = o.id AND',
    replace: 'AND k.alive AND r.id = o.id AND r.ctid = (SELECT x.ctid FROM pawl.runs x WHERE x.id = o.id) AND',
    test: T03,
    name: 'an outcome that had to wait for the row is written all the same',
  },
  {
    guard: 'what leaves the window is what was claimed',
    file: CLAIM,
    find: 'WHEN (SELECT count(*) FROM claimed) = (SELECT count(*) FROM fitting) THEN',
    replace: 'WHEN true THEN',
    test: T03,
    name: 'a pending run that changed after the snapshot of a claim is left to the next claim',
  },
  {
    guard: 'a claim writes rows where it locked them',
    file: statements('places'),
    find: `\${row}.ctid = ANY (ARRAY(SELECT f.place FROM \${from} f\${which})) AND ((\${row}.ctid, \${row}.id) IN (SELECT f.place, f.id FROM \${from} f\${which})) IS TRUE`,
    replace: `\${row}.id = ANY (ARRAY(SELECT f.id FROM \${from} f\${which}))`,
    test: T03,
    name: 'a run that was taken, run and put off after the snapshot',
  },
  // trap 4: one write per row
  {
    guard: 'a child counts for the join it belongs to',
    file: SETTLE,
    find: 'AND p.join_seq = e.parent_join_seq AND',
    replace: 'AND',
    test: T04,
    name: 'a parent that parks and its late child that finishes',
  },
  {
    guard: 'children of one parent are added up',
    file: SETTLE,
    find: 'SELECT x.parent_id, x.parent_join_seq, count(*)::int AS n,',
    replace: 'SELECT x.parent_id, x.parent_join_seq, 1 AS n,',
    test: T04,
    name: 'children of one parent that finish in one batch count each',
  },
  {
    guard: 'batches are READ COMMITTED whatever the default is',
    file: 'src/db/exchange.ts',
    find: "text: 'BEGIN ISOLATION LEVEL READ COMMITTED'",
    replace: "text: 'BEGIN'",
    test: RACES,
    name: 'spawns with one key from sixteen connections',
  },
  // trap 5: exclusive keys
  {
    guard: 'a claim skips counters that others hold',
    file: CLAIM_GATES,
    find: 'FOR UPDATE OF c SKIP LOCKED',
    replace: 'FOR UPDATE OF c',
    test: T05,
    name: 'a claim that meets a release skips the counter',
  },
  {
    guard: 'a claim skips runs that others hold',
    file: CLAIM,
    find: 'FOR NO KEY UPDATE OF r SKIP LOCKED',
    replace: 'FOR NO KEY UPDATE OF r',
    test: T05,
    name: 'a claim never waits for another that takes the same keys',
  },
  {
    guard: 'who makes a counter does so only if nobody else is making it',
    file: GATES,
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    find: ' WHERE pg_try_advisory_xact_lock(${MINT_LOCK_CLASS}, hashtext(m.gate))\n',
    replace: '',
    test: T05,
    name: 'a claim never waits for another that takes the same keys',
  },
  {
    guard: 'only a counter that was seen full blocks a run',
    file: CLAIM_GATES,
    find: 'FROM ranked a JOIN remaining m ON m.gate = a.gate JOIN verdicts v ON v.id = a.id AND NOT v.admitted\n    WHERE NOT a.fits AND (a.gate, a.slots, a.tokens) NOT IN (SELECT x.gate, x.slots, x.tokens FROM elsewhere x) AND (a.slots > m.slots OR a.tokens > m.tokens OR a.behind AND (m.held > 0 OR a.tokens > 0))',
    replace:
      'FROM ranked a LEFT JOIN remaining m ON m.gate = a.gate JOIN verdicts v ON v.id = a.id AND NOT v.admitted\n    WHERE NOT a.fits',
    test: T05,
    name: 'a run whose counter another claim holds stays in the window',
  },
  {
    guard: 'a release hands over',
    file: 'src/db/flush.ts',
    find: '    ...(held.length > 0 ? [handOver(schema, { environment, gates: held })] : []),\n',
    replace: '',
    test: T05,
    name: 'a release that meets a claim which is blocking the next run',
  },
  {
    guard: 'an heir that was passed over is handed over late',
    file: 'src/db/late-handover.ts',
    find: '  await passOnRoom(context, [...gates]).catch(() => {})\n',
    replace: '',
    test: T05,
    name: 'a release commits at once although the row of the heir is locked',
  },
  {
    guard: 'an heir is written by id',
    file: GATES,
    find: 'WHERE r.id = ANY (ARRAY(SELECT h.id FROM heirs h)) AND',
    replace:
      'WHERE r.ctid = ANY (ARRAY(SELECT x.ctid FROM pawl.runs x WHERE x.id IN (SELECT h.id FROM heirs h) FOR NO KEY UPDATE)) AND',
    test: T05,
    name: 'an heir that changes after the snapshot of the handover',
  },
  {
    guard: 'upkeep hands over what was left',
    file: 'src/db/upkeep.ts',
    find: '  await handOverBlocked(context, blocked)\n',
    replace: '',
    test: T05,
    name: 'handed the key by the upkeep when the releasing process is gone',
  },
  {
    guard: 'a gate admits no more than its capacity',
    file: CLAIM_GATES,
    find: 'a.slots_sum <= r.slots_before + r.slots)',
    replace: 'a.slots_sum <= r.slots_before + r.slots + 1)',
    test: T05,
    name: 'eight claimers on twenty keys',
  },
  // trap 6: claims that fail, replies that are lost
  {
    guard: 'the flush is sent again alone when its claim fails',
    file: 'src/db/engine.ts',
    find: 'if (own.length === 0 || (riding.length === 0 && !isLost(error))) throw error',
    replace: 'if (own.length === 0 || !isLost(error)) throw error',
    test: T06,
    name: 'the outcomes with which a failing claim rode are sent again alone',
  },
  {
    guard: 'history proves what was applied',
    file: APPLY,
    find: '  ) IS NOT NULL AS applied_before',
    replace: '  ) IS NULL AND false AS applied_before',
    test: T06,
    name: 'when the reply is lost, outcomes and claim are both found',
  },
  {
    guard: 'a resend waits for the first before it looks',
    file: 'src/db/engine.ts',
    find: 'isLost(error) ? behindFirst(context, request, own) : own',
    replace: 'own',
    test: T06,
    name: 'an outcome that is sent again while the first still waits',
  },
  {
    guard: 'a claim whose reply was lost is found by its id',
    file: 'src/db/engine.ts',
    find: 'next && isLost(error) ? await recover(context, next) : null',
    replace: 'null',
    test: T06,
    name: 'when the reply is lost, outcomes and claim are both found',
  },
  {
    guard: 'a resent signal looks again for what its first attempt wrote',
    file: 'src/db/signalling.ts',
    find: "if (!sent.resent || delivery.kind === 'delivered') return delivery",
    replace: 'if (sent !== undefined) return delivery',
    test: T06,
    name: 'a signal that is sent again while the first still waits',
  },
  // trap 11: children
  {
    guard: 'the barrier counts the children that came to be',
    file: SETTLE,
    find: 'least(coalesce(i.need, c.n), c.n) AS remaining',
    replace: 'coalesce(i.need, c.n) AS remaining',
    test: T11,
    name: 'a join that needs more children than came to be',
  },
  {
    guard: 'the barrier is set in the commit that parks',
    file: 'src/db/flush.ts',
    find: '    parkParents(context.schema, {\n',
    replace: '    lockRuns(context.schema, {\n',
    test: T11,
    name: 'nobody can claim a child before the barrier',
  },
  {
    guard: 'children come to be only under a parent that this transaction parked',
    file: INSERT,
    find: "p.join_seq = i.parent_join_seq AND p.status = 'waiting' AND p.xmin = pg_current_xact_id()::xid))",
    replace: 'true))',
    test: T11,
    name: 'a stale join spawns no child',
  },
  {
    guard: 'keys of children are taken only under a parent that this transaction parked',
    file: statements('admit-runs'),
    find: "p.join_seq = i.parent_join_seq AND p.status = 'waiting' AND p.xmin = pg_current_xact_id()::xid))",
    replace: 'true))',
    test: T11,
    name: 'a stale join spawns no child and takes no key',
  },
  {
    guard: 'an end counts in the transaction that wrote it',
    file: SETTLE,
    find: 'AND h.written_by = pg_current_xact_id()::xid\n)',
    replace: '\n)',
    test: T11,
    name: 'a child counts once, however often its end is sent',
  },
  {
    guard: 'retention spares what a join has yet to read',
    file: UPKEEP,
    find: 'p.id = r.parent_id AND p.join_seq = r.parent_join_seq AND p.status NOT IN',
    replace: "p.id = r.parent_id AND p.join_seq = r.parent_join_seq AND p.status = 'waiting' AND p.status NOT IN",
    test: T11,
    name: 'results of children outlive their retention',
  },
  {
    guard: 'a retry locks its run before it takes the key',
    file: 'src/db/changing.ts',
    find: '    lockFamilies(schema, { ids: [id] }),\n    retakeKeys',
    replace: '    lockFamilies(schema, { ids: [] }),\n    retakeKeys',
    test: T11,
    name: 'retrying an ended run while it is pruned',
  },
  {
    guard: 'a limit that is changed has who waits for it looked at',
    file: 'src/db/statements/declare-limits.ts',
    find: ' AND (SELECT true FROM written w WHERE w.changed LIMIT 1)',
    replace: ' AND false',
    test: 'test/engine/live-limits.test.ts',
    name: 'a limit is given',
  },
  {
    guard: 'a limit that is new makes nothing due',
    file: 'src/db/statements/declare-limits.ts',
    find: 'RETURNING xmax <> 0 AS changed',
    replace: 'RETURNING true AS changed',
    test: 'test/engine/live-limits.test.ts',
    name: 'a limit that is new, or declared as it was, makes nothing due',
  },
  {
    guard: 'who waits for tokens is looked at again whenever counters are',
    file: 'src/db/statements/heal-gates.ts',
    find: 'f.awaited AND coalesce(c.due_at > (SELECT now FROM environment), true))',
    replace: 'f.awaited AND c.due_at IS NULL)',
    test: 'test/engine/live-limits.test.ts',
    name: 'a limit is given tokens that come sooner',
  },
]
