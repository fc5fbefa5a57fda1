import { defineStatement } from './statement.ts'

/**
 * For the rest of its transaction plans do not depend on parameters: what follows is planned once per connection, not the six times after which
 * it would settle on that plan anyway, and planning a claim takes longer than the claim. Not ahead of statements of users, which are planned as they would be without us.
 */
export const planOnce = defineStatement<object>(
  'plan_once',
  () => `SELECT set_config('plan_cache_mode', 'force_generic_plan', true)`,
  () => [],
)
