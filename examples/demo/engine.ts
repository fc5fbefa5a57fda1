/** The process that serves and works, and that the demo kills: started by main.ts, which says where everything is in the environment. */
import { appendFileSync } from 'node:fs'
import { BUDGETS, node } from '../../src/hosts/node.ts'
import { type DemoServices, pawl } from './definitions.ts'

const { DEMO_DATABASE = '', DEMO_EFFECTS = '', DEMO_LEASE_MS = '2000' } = process.env

const services: DemoServices = {
  note: (kind, runId) => appendFileSync(DEMO_EFFECTS, `${JSON.stringify({ kind, runId, pid: process.pid })}\n`),
}

// ten steps side by side, so that a crash finds some done, some in flight and some not begun
const kick = { ...BUDGETS.node.kick, concurrency: 10, batch: 10 }
const budget = { ...BUDGETS.node, kick }
const host = await node(pawl, { database: DEMO_DATABASE, services, budget, leaseMs: Number(DEMO_LEASE_MS) })
process.stdout.write(`${JSON.stringify({ url: host.url })}\n`)

async function end(): Promise<void> {
  await host.close()
  process.exit(0)
}

process.once('SIGTERM', () => void end())
// whoever started it is gone
process.stdin.once('end', () => void end())
process.stdin.resume()
