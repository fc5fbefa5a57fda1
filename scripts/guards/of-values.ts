import type { Guard } from './guard.ts'

const statements = (file: string) => `src/db/statements/${file}.ts`
const APPLY = statements('apply-outcomes')
const CLAIM = statements('claim-runs')
const DELIVER = statements('deliver-signals')
const SETTLE = statements('settle-outcomes')
const KEEP = statements('keep-claims')
const INSERT = statements('insert-runs')
const UPKEEP = statements('upkeep')
const trap = (name: string) => `test/traps/trap-${name}.test.ts`
const T12 = trap('12-hostile-user-code')
const T13 = trap('13-killed-hosts')
const T15 = trap('15-first-run-and-replay')
const T16 = trap('16-expired-leases')
const T19 = trap('19-future-rows')
const T21 = trap('21-json-once')
const T22 = trap('22-bounded-sweeps')
const T25 = trap('25-plans-by-id')
const T27 = trap('27-bounds-of-the-wire')

/** Guards against what hosts, user code, values and statistics do. */
export const GUARDS_OF_VALUES: readonly Guard[] = [
  // trap 12: user code
  {
    guard: 'outcomes are serialised inside the guarded region',
    file: 'src/worker/settle.ts',
    find: 'return outcome instanceof Promise ? outcome.catch(asFailure) : outcome\n  } catch (error) {\n    return asFailure(error)',
    replace: 'return outcome instanceof Promise ? outcome.catch(asFailure) : outcome\n  } catch (error) {\n    throw error',
    test: T12,
    name: 'a BigInt ends the run',
  },
  {
    guard: 'what user code throws is looked at with care',
    file: 'src/core/run-error.ts',
    find: "return error instanceof Error && error.name === 'NonRetryableError'\n  } catch {\n    return false",
    replace: "return error instanceof Error && error.name === 'NonRetryableError'\n  } catch (no) {\n    throw no",
    test: T12,
    name: 'an error whose name throws ends the run',
  },
  {
    guard: 'statements to commit are checked inside the step',
    file: 'src/core/outcome-checks.ts',
    find: 'for (const { sql, params = [] } of commit as readonly CommitStatement[]) checkStatement(sql, params)',
    replace: 'void checkStatement',
    test: T12,
    name: 'a statement to commit that is no statement (object)',
  },
  // trap 13: killed hosts
  {
    guard: 'a run with a loss is taken alone',
    file: CLAIM,
    find: ' AND (w.lane_id >= 0 OR w.tenant IS NULL)\n',
    replace: '\n',
    test: T13,
    name: 'after a loss among others each of them is claimed alone',
  },
  {
    guard: 'nobody takes a run with a loss beside others',
    file: CLAIM,
    find: 'SELECT CASE WHEN (SELECT $10::boolean) THEN -2147483648 ELSE (SELECT $9::int) END AS lane_id',
    replace: 'SELECT -2147483648 AS lane_id',
    test: T13,
    name: 'nobody takes a run with a loss beside others',
  },
  {
    guard: 'a rescued run goes where runs are taken alone',
    file: 'src/db/statements/window.ts',
    find: ' > 0 THEN -',
    replace: ' > 0 THEN ',
    test: T13,
    name: 'after a loss among others each of them is claimed alone',
  },
  {
    guard: 'losses alone are bounded',
    file: 'src/worker/start-run.ts',
    find: 'const MAX_LONELY_LOSSES = 3',
    replace: 'const MAX_LONELY_LOSSES = 1_000_000',
    test: T13,
    name: 'a step that kills its host three times while it is alone',
  },
  {
    guard: 'the first loss among others is free',
    file: KEEP,
    find: 'lonely_losses = r.lonely_losses + h.lonely::int',
    replace: 'lonely_losses = r.lonely_losses + 1',
    test: T13,
    name: 'after a loss among others each of them is claimed alone',
  },
  // trap 15: first run and replay
  {
    guard: 'undefined in an array is refused',
    file: 'src/core/json.ts',
    find: "if (item === undefined) throw refuse(walk, 'undefined in an array would read back as null')",
    replace: 'void 0',
    test: T15,
    name: 'undefined in an array would come back as null',
  },
  {
    guard: 'nothing returned is null',
    file: 'src/core/json.ts',
    find: 'if (value === undefined || value === null) return NULL_STORED',
    replace: 'if (value === undefined || value === null) return { text: \'"undefined"\', bytes: 11 }',
    test: T15,
    name: 'nothing returned is null',
  },
  {
    guard: 'the next step sees what is stored, not what the last one did to it',
    file: 'src/worker/execute.ts',
    find: "typeof value === 'object' ? structuredClone(value) : value",
    replace: "typeof value === 'object' ? value : value",
    test: T15,
    name: 'the next steps of a machine see the same',
  },
  // trap 16 and the guard
  {
    guard: 'the sequence number',
    file: APPLY,
    find: 'AND r.seq = k.seq AND r.claimed_by',
    replace: 'AND r.claimed_by',
    test: T16,
    name: 'an outcome of an earlier step is stale',
  },
  {
    guard: 'an outcome is written under a living lease only',
    file: APPLY,
    find: 'AND k.alive AND r.id = o.id',
    replace: 'AND r.id = o.id',
    test: T16,
    name: 'an outcome is refused once the lease has expired',
  },
  {
    guard: 'a beat does not bring a lease back',
    file: KEEP,
    find: "AND c.lease_until - clock.at > '0'\nRETURNING c.id",
    replace: '\nRETURNING c.id',
    test: T16,
    name: 'a beat after the lease does not bring it back',
  },
  // trap 19
  {
    guard: 'what is not due is not in the window',
    file: INSERT,
    find: 'id FROM inserted WHERE timer_at IS NULL',
    replace: 'id FROM inserted',
    test: T19,
    name: 'future runs are outside the window',
  },
  {
    guard: 'a delayed retry is not in the window',
    file: APPLY,
    find: "r.status = 'pending' AND r.timer_at IS NULL AND r.hold IS NULL AS due",
    replace: "r.status = 'pending' AND r.hold IS NULL AS due",
    test: T19,
    name: 'a delayed retry leaves the window until it is due',
  },
  // trap 21
  {
    guard: 'input is bound as text and cast',
    file: INSERT,
    find: 'i.input::jsonb',
    replace: 'to_jsonb(i.input)',
    every: true,
    test: T21,
    name: 'input, result, headers and origin are objects to SQL',
  },
  {
    guard: 'results are bound as text and cast',
    file: APPLY,
    find: 'result = ($12::text[])[o.n]::jsonb',
    replace: 'result = to_jsonb(($12::text[])[o.n])',
    test: T21,
    name: 'input, result, headers and origin are objects to SQL',
  },
  {
    guard: 'payloads of signals are bound as text and cast',
    file: DELIVER,
    find: '$9::jsonb',
    replace: 'to_jsonb($9::text)',
    test: T21,
    name: 'state, the payload of a signal and an error are objects',
  },
  // trap 22
  ...(
    [
      [statements('promote-due'), '  LIMIT (SELECT $3::int)\n', 'no more becomes due at once than the bound'],
      [KEEP, '  LIMIT (SELECT $3::int)\n  FOR NO KEY UPDATE OF r SKIP LOCKED', 'no more runs are rescued at once than the bound'],
      [UPKEEP, 'ORDER BY r.created_at, r.position LIMIT (SELECT n FROM share)', 'no more ended runs are deleted at once'],
      [UPKEEP, 'ORDER BY t.expires_at LIMIT (SELECT $3::int) FOR UPDATE OF t', 'no more expired receipts are deleted at once'],
      [statements('heal-gates'), 'ORDER BY c.gate, c.shard LIMIT (SELECT $3::int)', 'no more gates with waiters are looked at'],
    ] as const
  ).map(([file, find, name]) => ({
    guard: `bound: ${name}`,
    file,
    find,
    replace: find.replace(/LIMIT \(SELECT (\$3::int|n FROM share)\)/, 'LIMIT ($3::int * 0 + 1000000)'),
    test: T22,
    name,
  })),
  // trap 25
  {
    guard: 'keys are found by the index of their run',
    file: SETTLE,
    find: 'WHERE u.run_id = ANY (ARRAY(SELECT x.id FROM ended x))\n',
    replace: 'WHERE u.run_id IN (SELECT x.id FROM ended x)\n',
    test: T25,
    name: 'when the tables were never analysed',
  },
  {
    guard: 'empty tables keep rows to be counted by',
    file: 'src/db/migrations.generated.ts',
    find: 'DELETE FROM "pawl"."ready" WHERE lane_id = 0;',
    replace: 'DELETE FROM "pawl"."runs"; DELETE FROM "pawl"."history"; DELETE FROM "pawl"."ready" WHERE lane_id = 0;',
    test: T25,
    name: 'when the tables were analysed when empty',
  },
  // trap 27
  {
    guard: 'more parameters than a message counts are refused',
    file: 'src/db/values.ts',
    find: 'if (params.length > MAX_PARAMETERS)',
    replace: 'if (params.length > MAX_PARAMETERS * 100)',
    test: T27,
    name: 'a statement with more parameters than a message can count',
  },
  {
    guard: 'NUL is refused',
    file: 'src/core/json.ts',
    find: "if (text.includes('\\0')) throw refuse(walk, 'a string holds NUL (U+0000)')",
    replace: 'void 0',
    test: T27,
    name: 'NUL is refused where it is written',
  },
  {
    guard: 'lone surrogates are refused',
    file: 'src/core/json.ts',
    find: "if (!isWellFormed(text)) throw refuse(walk, 'a string holds a lone surrogate')",
    replace: 'void 0',
    test: T27,
    name: 'a lone surrogate is refused where it is written',
  },
  {
    guard: '__proto__ is refused',
    file: 'src/core/json.ts',
    find: "    if (key === '__proto__') throw refuse(walk, 'a member may not be named __proto__')\n    const plain",
    replace: '    const plain',
    test: T27,
    name: 'a member named __proto__ is refused where it is written',
  },
]
