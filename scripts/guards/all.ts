import type { Guard } from './guard.ts'
import { GUARDS_OF_ADMISSION } from './of-admission.ts'
import { GUARDS_OF_CROWDS } from './of-crowds.ts'
import { GUARDS_OF_LIMITS } from './of-limits.ts'
import { GUARDS_OF_OPEN_GATES } from './of-open-gates.ts'
import { GUARDS_OF_OPERATING } from './of-operating.ts'
import { GUARDS_OF_OUTCOMES } from './of-outcomes.ts'
import { GUARDS_OF_RACES } from './of-races.ts'
import { GUARDS_OF_TOPICS } from './of-topics.ts'
import { GUARDS_OF_TRANSACTIONS } from './of-transactions.ts'
import { GUARDS_OF_VALUES } from './of-values.ts'

/** Every guard of the engine that a test must see gone: `npm run mutants` takes them away, the suite looks that they are where they are looked for. */
export const GUARDS: readonly Guard[] = [
  ...GUARDS_OF_ADMISSION,
  ...GUARDS_OF_OUTCOMES,
  ...GUARDS_OF_RACES,
  ...GUARDS_OF_VALUES,
  ...GUARDS_OF_CROWDS,
  ...GUARDS_OF_LIMITS,
  ...GUARDS_OF_OPEN_GATES,
  ...GUARDS_OF_OPERATING,
  ...GUARDS_OF_TOPICS,
  ...GUARDS_OF_TRANSACTIONS,
]
