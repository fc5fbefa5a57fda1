/** What the shorter programs in docs take for granted: each stands where `// the block` is. The others are whole. */

const CHECKOUT = `
const checkout = machine({
  name: 'checkout',
  state: z.object({ order: z.number() }),
  signals: { paid: z.object({ cents: z.number() }) },
  output: z.number(),
  key: ({ order }) => \`order:\${order}\`,
  initial: 'start',
  steps: {
    start: ({ waitFor }) => waitFor('paid', { goto: 'end' }),
    end: ({ signals, done }) => done(signals.first('paid')?.payload.cents ?? 0),
  },
})
`

const WAITS = `
import * as z from 'zod'
import { createPawl, endOf, job, machine } from 'pawl'
import { node } from 'pawl/node'

const printing = job({ name: 'printing', input: z.number(), run: () => 'printed' })
const waiting = machine({
  name: 'waiting',
  state: z.object({ printing: z.string() }),
  signals: { paid: z.object({ cents: z.number() }) },
  events: { opened: z.object({}) },
  output: z.object({ timedOut: z.boolean(), cents: z.number().optional(), printing: z.string().optional() }),
  initial: 'wait',
  steps: {
    // the block
  },
})
const { connection: pawl, close } = await node(createPawl({ definitions: [printing, waiting] }), { database: 'memory' })
const printed = await pawl.spawn(printing, 1)
await pawl.result(printing, printed.id, { wait: '20s' })
const first = await pawl.spawn(waiting, { printing: printed.id })
const later = await pawl.spawn(printing, 2, { delay: '1h' })
const second = await pawl.spawn(waiting, { printing: later.id })
await pawl.signal({ id: second.id }, 'paid', { cents: 7 })
const results = [await pawl.result(waiting, first.id, { wait: '20s' }), await pawl.result(waiting, second.id, { wait: '20s' })]
console.log(results.map((one) => (one.status === 'completed' ? JSON.stringify(one.result) : one.status)).join(' '))
await close()
`

const TELLS = `
import * as z from 'zod'
import { createPawl, machine } from 'pawl'
import { node } from 'pawl/node'
${CHECKOUT}
const payload = {}
const result = 'told'
const telling = machine({
  name: 'telling',
  state: z.object({}),
  events: { opened: z.object({}) },
  output: z.string(),
  initial: 'tell',
  steps: {
    tell: ({ done }) => {
      return (
        // the block
      )
    },
  },
})
const { connection: pawl, close } = await node(createPawl({ definitions: [checkout, telling] }), { database: 'memory' })
const { id } = await pawl.spawn(checkout, { order: 42 })
await pawl.spawn(telling, {})
const told = await pawl.result(checkout, id, { wait: '20s' })
console.log(told.status === 'completed' ? told.result : told.status)
await close()
`

const OVER_POSTGRES = `
import { drizzle } from 'drizzle-orm/node-postgres'
import { integer, pgTable } from 'drizzle-orm/pg-core'
import pg from 'pg'
import * as z from 'zod'
import { createPawl, machine } from 'pawl'
import { nodePostgres } from 'pawl/node-postgres'
${CHECKOUT}
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
const pawl = createPawl({ definitions: [checkout], database: nodePostgres(pool) })
const db = drizzle(pool)
const orders = pgTable('orders', { id: integer() })
const order = { id: 41 }
await pool.query('CREATE TABLE orders (id int)')
`

const OVER_NEON = `
import { neon, neonConfig } from '@neondatabase/serverless'
import * as z from 'zod'
import { createPawl, machine } from 'pawl'
import { neonHttp } from 'pawl/neon-http'
${CHECKOUT}
const [url, endpoint] = [process.env.NEON_URL ?? '', process.env.NEON_ENDPOINT ?? '']
neonConfig.fetchEndpoint = () => endpoint
const sql = neon(url)
const pawl = createPawl({ definitions: [checkout], database: neonHttp(url, { endpoint }) })
`

export const FRAMES: Readonly<Record<string, string>> = {
  'coordination-0': WAITS,
  'coordination-1': TELLS,
  'transactions-0': `${OVER_POSTGRES}
// the block
const { rows: [found] } = await pool.query('SELECT count(*)::int AS n, min(r.status) AS status FROM orders, pawl.runs r WHERE r.key IS NOT NULL')
console.log(\`\${found.n} order, \${found.status}\`)
await pool.end()
`,
  'transactions-1': `${OVER_NEON}
const insertOrder = sql\`INSERT INTO orders VALUES (42)\`
// the block
const [found] = await sql\`SELECT (SELECT count(*)::int FROM orders) AS n, status FROM pawl.runs WHERE key = 'order:42'\`
console.log(\`\${found?.n} orders, \${found?.status}\`)
`,
  'transactions-2': `${OVER_NEON}
await pawl.spawn(checkout, { order: 43 }, { idempotencyKey: 'order-42' })
// the block
console.log(found.kind, (await sql\`SELECT count(*)::int AS n FROM pawl.runs WHERE key IS NOT NULL\`)[0]?.n)
`,
}
