import type { Guard } from './guard.ts'

const ADMIT = 'src/db/statements/admit-runs.ts'
const MERGE = 'src/db/statements/merge-spawns.ts'
const T24 = 'test/traps/trap-24-uniqueness.test.ts'
const GATHERING = 'test/engine/gathering.test.ts'

/** Guards of keys, uniqueness and gathering. */
export const GUARDS_OF_ADMISSION: readonly Guard[] = [
  {
    guard: 'an entry is taken over only when its time is up',
    file: ADMIT,
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    find: "\n  WHERE ${free(s, 'u')}\n",
    replace: '\n',
    test: T24,
    name: 'a takeover that waits for another one finds the entry taken',
  },
  {
    guard: 'a holder that cannot be seen has not started',
    file: ADMIT,
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    find: 'WHERE h.id = ${u}.run_id), false))`',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template
    replace: 'WHERE h.id = ${u}.run_id), true))`',
    test: T24,
    name: 'eight clients trigger one debounced run at once',
  },
  {
    guard: 'an input is added only while nothing is decided on its receipt',
    file: MERGE,
    find: 'AND x.nonce = $2::uuid AND x.decision IS NULL LIMIT 1',
    replace: 'AND x.nonce = $2::uuid LIMIT 1',
    test: GATHERING,
    name: 'a spawn whose reply was lost and that is sent again adds its input once',
  },
]
