/** A Node host in a process of its own, to be killed: says its address, and which run it has begun; ends none. */
import { node } from '../../src/hosts/node.ts'
import { ONE_BUDGET, oneAtATime } from './presence-definitions.ts'

const [connectionString = '', presence = ''] = process.argv.slice(2)
const pawl = oneAtATime((id) => {
  process.send?.({ began: id })
  return new Promise(() => {})
})
const { url } = await node(pawl, { database: connectionString, presence, leaseMs: 3_600_000, budget: ONE_BUDGET })
process.send?.({ url })
